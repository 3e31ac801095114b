"""What may be said about the cluster as a whole: pure checks, and dictionaries after a change."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from ganeti import uidpool
from ganeti.base.errors import InputError
from ganeti.base.identifiers import interface_name, is_absolute_path, os_name
from ganeti.config import os_states
from ganeti.model.data_collectors import check_enabled, check_intervals
from ganeti.model.disk_params import check_disk_params
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.hypervisor_params import (
    HYPERVISOR_PARAMS,
    check_hypervisor_params,
    typed_value,
)
from ganeti.model.iallocator import parse_defaults
from ganeti.model.objects import Cluster
from ganeti.model.opcodes.base import OpCode
from ganeti.model.opcodes.cluster import OpClusterSetParams
from ganeti.model.param_checks import (
    NIC_MODES,
    changed,
    check_backend_params,
    check_node_params,
    check_os_params,
    check_vlan,
)
from ganeti.model.params import BACKEND_DEFAULTS, IPOLICY_DEFAULTS, NIC_DEFAULTS, Params, layered

DEFAULT = "default"
JOBS_LIMIT = 50_000
POOL_LIMIT = 10_000

_OPTION_NAME = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_MAC_PREFIX = re.compile(r"[0-9a-f]{2}:[0-9a-f]{2}:[0-9a-f]{2}", re.ASCII)


_SETTABLE = frozenset(
    (
        *("enabled_hypervisors", "enabled_disk_templates", "hvparams", "os_hvp", "osparams"),
        *("beparams", "nicparams", "diskparams", "ndparams", "ipolicy", "candidate_pool_size"),
        *("max_running_jobs", "default_iallocator", "mac_prefix", "master_netdev"),
        "default_iallocator_params",
        *("master_netmask", "file_storage_dir", "shared_file_storage_dir", "force"),
        *("uid_pool", "add_uids", "remove_uids", "remote_hvparams"),
        *("enabled_data_collectors", "data_collector_interval"),
        *os_states.FIELDS,
        *OpCode.__struct_fields__,
    )
)


def check_cluster_wish(op: OpClusterSetParams) -> None:
    """Refuse values that no cluster can have; InputError names the field."""
    for field in op.__struct_fields__:
        if field not in _SETTABLE and getattr(op, field) not in (None, [], {}):
            raise InputError("this version cannot do that", field)
    _check_chosen(op.enabled_hypervisors, HYPERVISOR_PARAMS, "enabled_hypervisors")
    _check_chosen(op.enabled_disk_templates, DISK_TEMPLATES, "enabled_disk_templates")
    _check_range(op.candidate_pool_size, POOL_LIMIT, "candidate_pool_size")
    _check_range(op.max_running_jobs, JOBS_LIMIT, "max_running_jobs")
    _check_remote(op.remote_hvparams)
    if op.default_iallocator:
        parse_defaults(op.default_iallocator)
    check_allocator_options(op.default_iallocator_params or {})
    check_enabled(op.enabled_data_collectors or {})
    check_intervals(op.data_collector_interval or {})
    if op.master_netdev:
        interface_name(op.master_netdev, "master_netdev")
    if op.mac_prefix is not None:
        prefix = op.mac_prefix
        if not _MAC_PREFIX.fullmatch(prefix) or int(prefix[:2], 16) & 1:
            raise InputError(
                f"{prefix!r:.40} is not three bytes of a unicast MAC address, as aa:00:00",
                "mac_prefix",
            )
    for field in ("file_storage_dir", "shared_file_storage_dir"):
        if directory := getattr(op, field):
            _check_directory(directory, field)


def check_allocator_options(params: Params) -> None:
    """Refuse options that no command line of an allocator can have."""
    for name, value in params.items():
        where = f"default_iallocator_params.{name:.40}"
        if not _OPTION_NAME.fullmatch(name):
            raise InputError("is not the name of an option, without dashes", where)
        if value is not None and (
            not isinstance(value, str | int | float) or not str(value).isprintable()
        ):
            raise InputError("must be a word, a number or true", where)


def _check_chosen(chosen: Sequence[str] | None, known: Collection[str], field: str) -> None:
    if chosen is None:
        return
    if not chosen or len(set(chosen)) < len(chosen):
        raise InputError("name at least one, and none twice", field)
    for name in chosen:
        if name not in known:
            raise InputError(f"{name!r:.60} is not known; known: {', '.join(known)}", field)


def _check_remote(names: Sequence[str] | None) -> None:
    of_host = {
        name
        for params in HYPERVISOR_PARAMS.values()
        for name, param in params.items()
        if param.touches_host
    }
    for name in names or ():
        if name not in of_host:
            raise InputError(
                f"{name!r:.60} is no parameter that touches the host; those are:"
                f" {', '.join(sorted(of_host))}",
                "remote_hvparams",
            )


def _check_range(value: int | None, most: int, field: str) -> None:
    if value is not None and not 1 <= value <= most:
        raise InputError(f"must be from 1 to {most}", field)


def _check_directory(path: str, field: str) -> None:
    if not is_absolute_path(path) or not path.strip("/") or "#" in path:
        raise InputError(f"{path!r:.200} is not an absolute path without '..' and '#'", field)


def changed_cluster(cluster: Cluster, op: OpClusterSetParams) -> dict[str, Any]:
    """The fields of the cluster that change, with their new values."""
    plain = {
        name: getattr(op, name)
        for name in (
            "candidate_pool_size",
            "max_running_jobs",
            "default_iallocator",
            "mac_prefix",
            "master_netdev",
            "master_netmask",
            "file_storage_dir",
            "shared_file_storage_dir",
        )
        if getattr(op, name) is not None
    }
    for name in ("enabled_hypervisors", "enabled_disk_templates"):
        if (chosen := getattr(op, name)) is not None:
            plain[name] = tuple(chosen)
    if op.remote_hvparams is not None:
        plain["remote_hvparams"] = tuple(sorted(set(op.remote_hvparams)))
    for name in os_states.FIELDS:
        if changes := getattr(op, name):
            plain[name] = os_states.changed_os_list(getattr(cluster, name), changes, name)
    makers: dict[str, Callable[[Cluster, Any], Any]] = {
        "hvparams": _hvparams,
        "os_hvp": _os_hvp,
        "osparams": _osparams,
        "beparams": _beparams,
        "nicparams": _nicparams,
        "diskparams": _diskparams,
        "ndparams": lambda old, given: changed(old.ndparams, check_node_params(given)),
        "default_iallocator_params": lambda old, given: changed(
            old.default_iallocator_params, given
        ),
        "enabled_data_collectors": lambda old, given: changed(old.enabled_data_collectors, given),
        "data_collector_interval": lambda old, given: changed(old.data_collector_interval, given),
        "ipolicy": lambda old, given: changed_policy(old.ipolicy, given),
    }
    for name, make in makers.items():
        if (given := getattr(op, name)) is not None:
            plain[name] = make(cluster, given)
    if op.master_netmask is not None and cluster.master_ip:
        _check_range(
            op.master_netmask, ip_address(cluster.master_ip).max_prefixlen, "master_netmask"
        )
    plain |= _uid_pool(cluster, op)
    return {name: value for name, value in plain.items() if value != getattr(cluster, name)}


def _uid_pool(cluster: Cluster, op: OpClusterSetParams) -> dict[str, Any]:
    """The pool overwritten, then with ids added, then with ids removed (S106)."""
    pool: list[uidpool.UidRange] = list(cluster.uid_pool)
    if op.uid_pool is not None:
        pool = uidpool.CheckUidPool(op.uid_pool)
    if op.add_uids:
        pool = uidpool.AddToUidPool(pool, op.add_uids)
    if op.remove_uids:
        pool = uidpool.RemoveFromUidPool(pool, op.remove_uids)
    return {"uid_pool": tuple(pool)}


def _hvparams(cluster: Cluster, given: Mapping[str, Params]) -> dict[str, Params]:
    return _per_hypervisor(cluster.hvparams, given, "hvparams")


def _per_hypervisor(
    old: Mapping[str, Params], given: Mapping[str, Params], field: str
) -> dict[str, Params]:
    new = dict(old)
    for hypervisor, params in given.items():
        values = {name: value for name, value in params.items() if value is not None}
        where = f"{field}.{hypervisor}"
        checked = check_hypervisor_params(hypervisor, values, of_instance=False, field=where)
        known = HYPERVISOR_PARAMS[hypervisor]
        for name in params:
            if name not in known:
                raise InputError(f"{hypervisor} has no such parameter", f"{where}.{name}")
        new[hypervisor] = changed(new.get(hypervisor, {}), {**params, **checked})
    return {hypervisor: params for hypervisor, params in new.items() if params}


def _os_hvp(
    cluster: Cluster, given: Mapping[str, Mapping[str, Params]]
) -> dict[str, dict[str, Params]]:
    new = dict(cluster.os_hvp)
    for os, params in given.items():
        name = os_name(os, "os_hvp")
        new[name] = _per_hypervisor(new.get(name, {}), params, f"os_hvp.{name}")
    return {os: params for os, params in new.items() if params}


def _osparams(cluster: Cluster, given: Mapping[str, Params]) -> dict[str, dict[str, str]]:
    new = dict(cluster.osparams)
    for os, params in given.items():
        name = os_name(os, "osparams")
        texts = {key: str(value) for key, value in params.items() if value is not None}
        check_os_params(texts, f"osparams.{name}")
        new[name] = changed(new.get(name, {}), {**params, **texts})
    return {os: params for os, params in new.items() if params}


def _beparams(cluster: Cluster, given: Params) -> dict[str, Params]:
    values = {name: value for name, value in given.items() if value is not None}
    checked = check_backend_params(values, "beparams")
    gone = dict.fromkeys(name for name, value in given.items() if value is None)
    for name in gone:
        if name not in BACKEND_DEFAULTS:
            raise InputError("no such backend parameter", f"beparams.{name}")
    new = changed(cluster.beparams.get(DEFAULT, {}), {**gone, **checked})
    filled = layered(BACKEND_DEFAULTS, new)
    if filled["minmem"] > filled["maxmem"]:
        raise InputError(
            f"{filled['minmem']} MiB is more than maxmem, {filled['maxmem']} MiB",
            "beparams.minmem",
        )
    return {**cluster.beparams, DEFAULT: new}


def _nicparams(cluster: Cluster, given: Params) -> dict[str, Params]:
    checked: Params = {}
    for name, value in given.items():
        where = f"nicparams.{name}"
        if name not in NIC_DEFAULTS:
            raise InputError(f"no such NIC parameter; known: {', '.join(NIC_DEFAULTS)}", where)
        checked[name] = None if value is None else typed_value(value, NIC_DEFAULTS[name], where)
    if (mode := checked.get("mode")) is not None:
        if mode not in NIC_MODES:
            raise InputError("must be bridged, routed or openvswitch", "nicparams.mode")
        checked["mode"] = NIC_MODES[mode]
    if (link := checked.get("link")) is not None:
        interface_name(link, "nicparams.link")
    if (vlan := checked.get("vlan")) is not None:
        checked["vlan"] = check_vlan(vlan, "nicparams.vlan")
    return {**cluster.nicparams, DEFAULT: changed(cluster.nicparams.get(DEFAULT, {}), checked)}


def _diskparams(cluster: Cluster, given: Mapping[str, Params]) -> dict[str, Params]:
    new = dict(cluster.diskparams)
    for template, params in given.items():
        checked = check_disk_params(template, params, f"diskparams.{template}")
        new[template] = changed(new.get(template, {}), checked)
    return {template: params for template, params in new.items() if params}


def changed_policy(old: Params, given: Params) -> Params:
    """An instance policy after a change; InputError if it contradicts itself."""
    for name in given:
        if name not in IPOLICY_DEFAULTS:
            known = ", ".join(IPOLICY_DEFAULTS)
            raise InputError(f"no such part of a policy; known: {known}", f"ipolicy.{name}")
    new = changed(old, given)
    filled = layered(IPOLICY_DEFAULTS, new)
    for name in ("vcpu-ratio", "spindle-ratio"):
        ratio = filled[name]
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or ratio < 1:
            raise InputError("must be a number of at least 1", f"ipolicy.{name}")
    templates = filled["disk-templates"]
    if not isinstance(templates, list) or not templates or set(templates) - set(DISK_TEMPLATES):
        raise InputError(f"must be a list of {', '.join(DISK_TEMPLATES)}", "ipolicy.disk-templates")
    _check_bounds(filled["minmax"], filled["std"])
    return new


def _check_bounds(minmax: Any, std: Any) -> None:
    names = list(IPOLICY_DEFAULTS["std"])
    _check_spec(std, names, "ipolicy.std")
    if not isinstance(minmax, list) or not minmax:
        raise InputError("must be a list of pairs of min and max", "ipolicy.minmax")
    for index, pair in enumerate(minmax):
        where = f"ipolicy.minmax[{index}]"
        if not isinstance(pair, dict) or set(pair) != {"min", "max"}:
            raise InputError("must have min and max, and nothing else", where)
        for end in ("min", "max"):
            _check_spec(pair[end], names, f"{where}.{end}")
        for name in names:
            if pair["min"][name] > pair["max"][name]:
                raise InputError("is greater than the maximum", f"{where}.min.{name}")
    if not any(
        all(pair["min"][name] <= std[name] <= pair["max"][name] for name in names)
        for pair in minmax
    ):
        raise InputError("is outside all bounds", "ipolicy.std")


def _check_spec(spec: Any, names: Sequence[str], field: str) -> None:
    if not isinstance(spec, dict) or set(spec) != set(names):
        raise InputError(f"must have exactly {', '.join(names)}", field)
    for name, value in spec.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError("must be a whole number, not negative", f"{field}.{name}")
