"""The environment of OS scripts: pure, and declared once in `VARIABLES` (seed 002, S116-S131, X6, X7, X22).

Values never become names: parameter names pass an allow-list and keep a prefix (G24, A46).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.process import CLEAN_ENVIRONMENT
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.instance_spec import NO_FACTS, DiskSpec, InstanceSpec, NicSpec, OsFacts

Environment = dict[str, str]

VALUE_LIMIT = 64 * 1024
TOTAL_LIMIT = 512 * 1024
"""Bytes; the kernel allows 128 KiB a string, and 2 MiB for all of them with the arguments."""

PARAMETER_LIMIT = 256
"""Parameters of one OS."""

_KEY = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)

_ACCESS = {"rw": "rw", "w": "rw", "ro": "ro", "r": "ro"}
_DEVICE_TYPES = {"paravirtual": "virtio"}
"""Values of hypervisor parameters that have another name in OS scripts (seed 002)."""


@dataclass(frozen=True)
class Variable:
    """One variable, or one for each disk or interface (`<N>`), or parameter (`<NAME>`, `<name>`: in lower case)."""

    name: str
    since: int
    """The first version of the interface with this variable."""

    @property
    def pattern(self) -> str:
        """Return a regular expression for the names of the variable."""
        parts = {"<N>": "[0-9]+", "<NAME>": "[A-Z0-9_]+", "<name>": "[a-z0-9_]+"}
        found = self.name
        for part, expression in parts.items():
            found = found.replace(part, expression)
        return found


VARIABLES = (
    *(Variable(name, 10) for name in CLEAN_ENVIRONMENT),
    Variable("OS_API_VERSION", 10),
    Variable("OS_NAME", 10),
    Variable("INSTANCE_NAME", 10),
    Variable("INSTANCE_OS", 10),
    Variable("HYPERVISOR", 10),
    Variable("DEBUG_LEVEL", 10),
    Variable("DISK_COUNT", 10),
    Variable("DISK_<N>_PATH", 10),
    Variable("DISK_<N>_ACCESS", 10),
    Variable("DISK_<N>_FRONTEND_TYPE", 10),
    Variable("DISK_<N>_BACKEND_TYPE", 10),
    Variable("NIC_COUNT", 10),
    Variable("NIC_<N>_MAC", 10),
    Variable("NIC_<N>_IP", 10),
    Variable("NIC_<N>_BRIDGE", 10),
    Variable("NIC_<N>_FRONTEND_TYPE", 10),
    Variable("INSTANCE_REINSTALL", 10),
    Variable("OLD_INSTANCE_NAME", 10),
    Variable("EXPORT_DEVICE", 10),
    Variable("EXPORT_INDEX", 10),
    Variable("IMPORT_DEVICE", 10),
    Variable("IMPORT_INDEX", 10),
    Variable("OS_VARIANT", 15),
    Variable("INSTANCE_HYPERVISOR", 15),
    Variable("INSTANCE_UUID", 15),
    Variable("INSTANCE_PRIMARY_NODE", 15),
    Variable("INSTANCE_SECONDARY_NODES", 15),
    Variable("INSTANCE_CTIME", 15),
    Variable("INSTANCE_MTIME", 15),
    Variable("INSTANCE_BE_<name>", 15),
    Variable("INSTANCE_HV_<name>", 15),
    Variable("DISK_<N>_NAME", 15),
    Variable("DISK_<N>_URI", 15),
    Variable("DISK_<N>_UUID", 15),
    Variable("DISK_<N>_SIZE", 15),
    Variable("NIC_<N>_NAME", 15),
    Variable("NIC_<N>_UUID", 15),
    Variable("NIC_<N>_MODE", 15),
    Variable("NIC_<N>_LINK", 15),
    Variable("NIC_<N>_NETWORK_NAME", 15),
    Variable("NIC_<N>_NETWORK_UUID", 15),
    Variable("NIC_<N>_NETWORK_SUBNET", 15),
    Variable("NIC_<N>_NETWORK_GATEWAY", 15),
    Variable("NIC_<N>_NETWORK_SUBNET6", 15),
    Variable("NIC_<N>_NETWORK_GATEWAY6", 15),
    Variable("NIC_<N>_NETWORK_MAC_PREFIX", 15),
    Variable("NIC_<N>_NETWORK_TAGS", 15),
    Variable("EXPORT_DISK_PATH", 15),
    Variable("EXPORT_DISK_URI", 15),
    Variable("IMPORT_DISK_PATH", 15),
    Variable("IMPORT_DISK_URI", 15),
    Variable("OSP_<NAME>", 20),
)


@dataclass(frozen=True)
class ChosenOs:
    """Return the variables about the OS: its name and variant, the version of the interface, parameters."""

    name: str
    variant: str
    api_version: int
    osparams: Mapping[str, str]
    facts: OsFacts = NO_FACTS

    @property
    def os(self) -> str:
        """`name+variant`, or `name`."""
        return f"{self.name}+{self.variant}" if self.variant else self.name


def instance_environment(
    chosen: ChosenOs,
    instance: InstanceSpec,
    disk_paths: Sequence[str],
    *,
    debug: int = 0,
    script: Mapping[str, str] | None = None,
) -> Environment:
    """Return the environment of create, export, import and rename; `script` holds variables of one script (S131)."""
    full = {
        **_common(chosen),
        "DEBUG_LEVEL": "1" if debug else "0",
        "INSTANCE_NAME": instance.name,
        "INSTANCE_OS": instance.os,
        "INSTANCE_UUID": instance.uuid,
        "INSTANCE_PRIMARY_NODE": chosen.facts.primary_node,
        "INSTANCE_SECONDARY_NODES": " ".join(chosen.facts.secondary_nodes),
        "INSTANCE_CTIME": str(chosen.facts.ctime),
        "INSTANCE_MTIME": str(chosen.facts.mtime),
        "HYPERVISOR": instance.hypervisor,
        "INSTANCE_HYPERVISOR": instance.hypervisor,
        "DISK_COUNT": str(len(instance.disks)),
        "NIC_COUNT": str(len(instance.nics)),
        **_params("INSTANCE_BE_", chosen.facts.beparams, "beparams"),
        **_params("INSTANCE_HV_", instance.hvparams, "hvparams"),
        **(script or {}),
    }
    for number, (disk, path) in enumerate(zip(instance.disks, disk_paths, strict=True)):
        full |= _disk(number, disk, path, instance)
    for number, nic in enumerate(instance.nics):
        full |= _nic(number, nic, instance)
    for kind, names in (("DISK", chosen.facts.disk_names), ("NIC", chosen.facts.nic_names)):
        full |= {f"{kind}_{number}_NAME": name for number, name in enumerate(names) if name}
    return _finished(full, chosen.api_version)


def disk_of_script(script: str, place: str, index: int) -> Environment:
    """Return the variables of an `EXPORT` or `IMPORT` about the disk that it reads or writes."""
    known = _place(f"{script}_DISK_", place)
    if path := known.get(f"{script}_DISK_PATH"):
        known[f"{script}_DEVICE"] = path
    return {**known, f"{script}_INDEX": str(index)}


def _place(prefix: str, place: str) -> Environment:
    """Return the location of a disk: a path on the node, or the URI of a disk that only QEMU opens."""
    return {prefix + ("PATH" if place.startswith("/") else "URI"): place}


def verify_environment(chosen: ChosenOs) -> Environment:
    """Return the environment of `verify parameters`: the OS and its parameters, no instance (X22)."""
    return _finished(_common(chosen), chosen.api_version)


def check_osparams(osparams: Mapping[str, str]) -> None:
    """Refuse parameters that do not fit into an environment; InputError names the wrong one."""
    if len(osparams) > PARAMETER_LIMIT:
        raise InputError(f"more than {PARAMETER_LIMIT} parameters", "osparams")
    _finished(_prefixed("OSP_", osparams, "osparams"), max(one.since for one in VARIABLES))


def _common(chosen: ChosenOs) -> Environment:
    check_osparams(chosen.osparams)
    # An empty value means the same as a missing parameter (S144), so it is one.
    present = {name: value for name, value in chosen.osparams.items() if value}
    return {
        **CLEAN_ENVIRONMENT,
        "OS_API_VERSION": str(chosen.api_version),
        "OS_NAME": chosen.name,
        "OS_VARIANT": chosen.variant,
        **_prefixed("OSP_", present, "osparams"),
    }


def _disk(number: int, disk: DiskSpec, path: str, instance: InstanceSpec) -> Environment:
    template = DISK_TEMPLATES.get(disk.template)
    in_files = template is not None and template.in_files
    kind = str(instance.hvparams.get("disk_type", "paravirtual"))
    access = _ACCESS.get(disk.mode.lower())
    if access is None:
        raise InputError(f"{disk.mode!r:.20} is neither rw nor ro", f"disks[{number}].mode")
    return _place(f"DISK_{number}_", path) | _named(
        f"DISK_{number}_",
        ACCESS=access,
        FRONTEND_TYPE=_DEVICE_TYPES.get(kind, kind),
        BACKEND_TYPE=f"file:{disk.logical_id[0]}" if in_files else "block",
        UUID=disk.uuid,
        SIZE=str(disk.size),
    )


def _nic(number: int, nic: NicSpec, instance: InstanceSpec) -> Environment:
    kind = str(instance.hvparams.get("nic_type", "paravirtual"))
    variables = _named(
        f"NIC_{number}_",
        MAC=nic.mac,
        MODE=nic.mode,
        LINK=nic.link,
        FRONTEND_TYPE=_DEVICE_TYPES.get(kind, kind),
        UUID=nic.uuid,
    )
    if nic.ip:
        variables[f"NIC_{number}_IP"] = nic.ip
    if nic.mode == "bridged":
        variables[f"NIC_{number}_BRIDGE"] = nic.link
    if nic.network is not None:
        variables |= nic.network.environment(f"NIC_{number}_")
    return variables


def _named(prefix: str, **values: str) -> Environment:
    return {prefix + name: value for name, value in values.items()}


def _prefixed(prefix: str, params: Mapping[str, Any], field: str) -> Environment:
    """Return parameters as variables in upper case. Their names are in lower case, so the variables are distinct."""
    return {name.upper(): value for name, value in _params(prefix, params, field).items()}


def _params(prefix: str, params: Mapping[str, Any], field: str) -> Environment:
    """Return parameters as variables, whose names keep the case of the parameters, as in upstream Ganeti."""
    for key in params:
        if not _KEY.fullmatch(key):
            raise InputError(
                "not the name of a parameter: lower-case letters, digits and '_', at most 64",
                f"{field}[{key!r:.80}]",
            )
    return {prefix + key: str(value) for key, value in params.items()}


def _finished(full: Environment, api_version: int) -> Environment:
    """Return the checked variables, without those that the scripts' version lacks (S116)."""
    known = re.compile("|".join(one.pattern for one in VARIABLES if one.since <= api_version))
    environment = {name: value for name, value in full.items() if known.fullmatch(name)}
    total = 0
    for name, value in environment.items():
        total += len(name) + 2 + _checked_size(name, value)
    if total > TOTAL_LIMIT:
        raise InputError(
            f"the environment of the OS scripts would have {total} bytes, at most {TOTAL_LIMIT}"
            " are possible; shorten the parameters",
            "osparams",
        )
    return environment


def _checked_size(name: str, value: str) -> int:
    if "\0" in value or "\n" in value or "\r" in value:
        raise InputError("contains a NUL or newline character", name)
    try:
        size = len(value.encode())
    except UnicodeEncodeError as err:
        raise InputError("is not text", name) from err
    if size > VALUE_LIMIT:
        raise InputError(f"has {size} bytes, at most {VALUE_LIMIT} are possible", name)
    return size
