"""Hypervisor parameters, each declared once: type, default, check, where it may be set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ganeti.base.errors import InputError
from ganeti.model.params import Params

PORT_MAX = 65535


@dataclass(frozen=True)
class HypervisorParam:
    """One parameter. The type of `default` is the type of every value."""

    name: str
    default: bool | int | str
    doc: str
    is_global: bool = False
    """Cannot be set for one instance (S83)."""
    is_path: bool = False
    """Names a file of the host."""
    touches_host: bool = False
    """Can reach the host beyond the guest; refused from remote users unless a policy allows it."""
    choices: tuple[str, ...] = ()
    check: Callable[[Any], str | None] | None = None
    """Says what is wrong with a value, or None."""


def _absolute_or_empty(value: str) -> str | None:
    if value and (not value.startswith("/") or ".." in value.split("/") or "\n" in value):
        return "must be an absolute path without '..', or empty"
    return None


def _one_line(value: str) -> str | None:
    return None if value.isprintable() else "must be one line of printable text"


def _port(value: int) -> str | None:
    return None if 1 <= value <= PORT_MAX else f"must be from 1 to {PORT_MAX}"


def _positive(value: int) -> str | None:
    return None if value > 0 else "must be greater than zero"


_KVM = (
    HypervisorParam("acpi", True, "offer ACPI to the guest, so that it can be asked to shut down"),
    HypervisorParam(
        "kernel_path",
        "",
        "kernel to boot directly; empty boots from the disk",
        is_path=True,
        touches_host=True,
        check=_absolute_or_empty,
    ),
    HypervisorParam(
        "initrd_path",
        "",
        "initial ramdisk for kernel_path",
        is_path=True,
        touches_host=True,
        check=_absolute_or_empty,
    ),
    HypervisorParam(
        "kernel_args", "ro", "further words of the kernel's command line", check=_one_line
    ),
    HypervisorParam("root_path", "/dev/vda1", "root device named to the kernel", check=_one_line),
    HypervisorParam(
        "serial_console", True, "give the guest a serial console, which gnt-instance console opens"
    ),
    HypervisorParam(
        "boot_order", "disk", "what to boot from without kernel_path", choices=("disk", "network")
    ),
    HypervisorParam(
        "disk_type",
        "paravirtual",
        "how the guest sees its disks",
        choices=("paravirtual", "scsi", "ide"),
    ),
    HypervisorParam(
        "disk_cache",
        "default",
        "host cache of disks; shared templates always use none",
        choices=("default", "none", "writeback", "writethrough"),
    ),
    HypervisorParam(
        "nic_type",
        "paravirtual",
        "how the guest sees its network",
        choices=("paravirtual", "e1000", "rtl8139"),
    ),
    HypervisorParam(
        "machine_version", "", "QEMU machine type; empty is QEMU's default of 'pc'", check=_one_line
    ),
    HypervisorParam(
        "kvm_path",
        "",
        "the QEMU program; empty looks in PATH",
        is_global=True,
        is_path=True,
        touches_host=True,
        check=_absolute_or_empty,
    ),
    HypervisorParam(
        "accelerator",
        "auto",
        "auto uses KVM where it works and software emulation elsewhere",
        choices=("auto", "kvm", "tcg"),
    ),
    HypervisorParam(
        "migration_port",
        8102,
        "TCP port on which a node receives a guest; another free one if taken",
        is_global=True,
        check=_port,
    ),
    HypervisorParam(
        "migration_bandwidth", 32, "MiB per second at most while migrating", check=_positive
    ),
    HypervisorParam(
        "migration_downtime", 30, "milliseconds a guest may stand still at the end", check=_positive
    ),
    HypervisorParam(
        "migration_mode",
        "live",
        "whether guests go on while they are moved",
        choices=("live", "non-live"),
    ),
)

_FAKE = (
    HypervisorParam("migration_mode", "live", "accepted and ignored", choices=("live", "non-live")),
)

HYPERVISOR_PARAMS: Mapping[str, Mapping[str, HypervisorParam]] = {
    "kvm": {param.name: param for param in _KVM},
    "fake": {param.name: param for param in _FAKE},
}


def hypervisor_defaults(hypervisor: str) -> Params:
    """The values that a hypervisor's parameters have where nobody says otherwise."""
    return {param.name: param.default for param in HYPERVISOR_PARAMS[hypervisor].values()}


def check_hypervisor_params(
    hypervisor: str, params: Mapping[str, Any], *, of_instance: bool, field: str
) -> Params:
    """`params` with values in their types (text such as `true` and `12` is understood); else InputError."""
    known = HYPERVISOR_PARAMS.get(hypervisor)
    if known is None:
        raise InputError(
            f"there is no hypervisor {hypervisor!r:.40}; known: {', '.join(HYPERVISOR_PARAMS)}",
            field,
        )
    return {
        name: _checked(
            hypervisor, known.get(name), name, value, of_instance=of_instance, field=field
        )
        for name, value in params.items()
    }


def _checked(
    hypervisor: str,
    param: HypervisorParam | None,
    name: str,
    value: Any,
    *,
    of_instance: bool,
    field: str,
) -> bool | int | str:
    where = f"{field}.{name}" if field else name
    if param is None:
        raise InputError(f"{hypervisor} has no such parameter", where)
    if of_instance and param.is_global:
        raise InputError("can only be set for the whole cluster", where)
    typed: bool | int | str = typed_value(value, param.default, where)
    if param.choices and typed not in param.choices:
        raise InputError(f"must be one of {', '.join(param.choices)}", where)
    if param.check and (wrong := param.check(typed)):
        raise InputError(wrong, where)
    return typed


def typed_value(value: Any, like: float | str, field: str) -> Any:
    """`value` in the type of `like`; text from a command line is understood."""
    kind: type[Any] = type(like)
    if type(value) is kind:
        return value
    if isinstance(value, str):
        if kind is bool and value.lower() in ("true", "yes", "on", "1"):
            return True
        if kind is bool and value.lower() in ("false", "no", "off", "0"):
            return False
        if kind is int and value.lstrip("-").isdecimal() and value.isascii():
            return int(value)
    wanted = {bool: "true or false", int: "a whole number", str: "text", float: "a number"}[kind]
    raise InputError(f"{value!r:.60} is not {wanted}", field)
