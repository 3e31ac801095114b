"""Import and export of the cluster itself."""

from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_address
from typing import Any

import msgspec
from msgspec.structs import replace

from ganeti.base.errors import InputError
from ganeti.base.identifiers import host_name
from ganeti.model import wire
from ganeti.model.cluster_params import CLUSTER_PARAMS
from ganeti.model.cluster_values import ADD, DEFAULT
from ganeti.model.compression import TOOLS
from ganeti.model.data_collectors import DEFAULT_INTERVAL_US, INTERVALS_US, NAMES, collecting
from ganeti.model.disk_params import check_disk_params
from ganeti.model.disk_templates import DISK_TEMPLATES, TEMPLATES
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.iallocator import RequestType, default_allocators
from ganeti.model.objects import Cluster, NodeUuid
from ganeti.model.param import Param, check_params
from ganeti.model.param_checks import check_backend_params, check_node_params
from ganeti.model.params import (
    BACKEND_DEFAULTS,
    BACKEND_PARAMS,
    NIC_DEFAULTS,
    NIC_PARAMS,
    NODE_DEFAULTS,
    NODE_PARAMS,
    Params,
    layered,
)
from ganeti.upstream import hypervisors, policies
from ganeti.upstream.choices import Reading
from ganeti.upstream.forms import Document
from ganeti.upstream.report import Judge
from ganeti.upstream.stored import STORED, read_stored, read_tags, written_params, written_stored

UPSTREAM_NAMES = {
    name: name if param.upstream is None else param.upstream
    for name, param in CLUSTER_PARAMS.items()
}
"""Our name of each parameter -> upstream's, or ''."""
OS_LISTS = ("hidden_os", "blacklisted_os")
_TRANSLATED = {
    *OS_LISTS,
    *("enabled_hypervisors", "enabled_disk_templates", "compression_tools", "hvparams", "os_hvp"),
    *("beparams", "nicparams", "ndparams", "diskparams", "ipolicy"),
    *("enabled_data_collectors", "data_collector_interval"),
}
"""Parameters whose values upstream writes in another form."""
PLAIN_PARAMS = {
    ours: theirs for ours, theirs in UPSTREAM_NAMES.items() if theirs and ours not in _TRANSLATED
}
"""Our name -> upstream's, if the value is the same."""
_COMPRESSIONS = ("gzip", "gzip-fast", "gzip-slow")
"""Upstream's default compression tools."""
_ABSENT = {"prealloc_wipe_disks": False}
"""The meaning of a missing field, if our default differs."""
_READ = {
    *filter(None, UPSTREAM_NAMES.values()),
    *STORED,
    *("cluster_name", "master_node", "master_ip", "enabled_user_shutdown"),
}
_DERIVED = {"primary_ip_family", "tcpudp_port_pool", "highest_used_port"}
"""Fields that follow from other data here."""
_WITHOUT_MEANING = {
    "candidate_certs": "certificates are new",
    "disk_state_static": "nodes report it themselves",
    "gluster_storage_dir": "Gluster disks are not supported",
    "hv_state_static": "nodes report it themselves",
    "max_tracked_jobs": "jobs need no process each",
    "modify_etc_hosts": "/etc/hosts is never changed",
    "modify_ssh_setup": "ssh is never set up",
    "rsahostkeypub": "ssh is never set up",
    "dsahostkeypub": "ssh is never set up",
    "ssh_key_bits": "ssh is never set up",
    "ssh_key_type": "ssh is never set up",
}
_NEW: Document = {
    "candidate_certs": {},
    "disk_state_static": {},
    "gluster_storage_dir": "",
    "hv_state_static": {},
    "install_image": "",
    "instance_communication_network": "",
    "max_tracked_jobs": 25,
    "modify_etc_hosts": False,
    "modify_ssh_setup": False,
    "osparams_private_cluster": {},
    "rsahostkeypub": "",
    "ssh_key_bits": 2048,
    "ssh_key_type": "rsa",
    "zeroing_image": "",
}
"""Fields of upstream without a counterpart."""
_DEFAULTS = {
    field.name: field.default for field in msgspec.structs.fields(Cluster) if not field.required
}
IPV4, IPV6 = 2, 10
"""Address families in upstream's form."""


def read_cluster(reading: Reading, given: Document) -> Cluster:
    """Return the cluster of a document in the form of 3.0."""
    base = Cluster(
        **read_stored(reading, "cluster", given),
        name=reading.name("cluster", given.get("cluster_name"), host_name),
        master_node=NodeUuid(str(given.get("master_node"))),
        master_ip=_address(reading, given),
        tags=read_tags(reading, "cluster", given),
    )
    shutdown_counts = bool(given.get("enabled_user_shutdown"))
    fields: dict[str, Any] = {
        "enabled_hypervisors": _hypervisors(reading, given),
        "enabled_disk_templates": _templates(reading, given),
        "compression_tools": _compressions(reading, given),
        "hvparams": hypervisors.read_of_cluster(
            reading, given.get("hvparams"), shutdown_counts=shutdown_counts
        ),
        "os_hvp": hypervisors.read_of_os(
            reading, given.get("os_hvp"), shutdown_counts=shutdown_counts
        ),
        "ipolicy": policies.read_policy(reading, "cluster", given.get("ipolicy"), of_group=False),
        **_layers(reading, given),
        **_collectors(reading, given.get("data_collectors")),
    }
    for ours, theirs in PLAIN_PARAMS.items():
        value = given.get(theirs)
        desired = _ABSENT.get(ours) if value is None else value
        if desired is not None:
            fields |= _param(reading, base, ours, theirs, desired)
    for name in OS_LISTS:
        fields |= _param(reading, base, name, name, [(ADD, one) for one in given.get(name) or ()])
    for name in sorted(given.keys() & _WITHOUT_MEANING.keys()):
        reading.keep("cluster", name, _WITHOUT_MEANING[name])
    reading.rest("cluster", given, _READ | _DERIVED | _WITHOUT_MEANING.keys())
    return replace(base, **fields)


def _param(reading: Reading, base: Cluster, ours: str, theirs: str, given: Any) -> dict[str, Any]:
    param = CLUSTER_PARAMS[ours]
    try:
        value = wire.convert(given, param.given, what=theirs)
        if param.check:
            param.check(value, theirs)
        return {ours: param.change(getattr(base, ours), value, theirs)}
    except InputError as err:
        reading.unknown("cluster", theirs, err.message)
        return {}


def _address(reading: Reading, given: Document) -> str:
    text, bits = given.get("master_ip"), given.get("master_netmask")
    try:
        address = ip_address(str(text))
    except ValueError:
        reading.refuse("cluster", "master_ip", f"{text!r:.60} is not an IP address")
        return ""
    if isinstance(bits, int) and bits > address.max_prefixlen:
        reading.refuse("cluster", "master_netmask", f"{bits} is longer than the address {address}")
    return str(address)


def _hypervisors(reading: Reading, given: Document) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for name in given.get("enabled_hypervisors") or ():
        new = reading.choices.hypervisors.get(name, name)
        if new not in HYPERVISOR_PARAMS:
            reading.unknown("cluster", "enabled_hypervisors", f"{name} is not supported")
            continue
        if new != name:
            reading.change("cluster", "enabled_hypervisors", f"{name} is {new} now")
        found[new] = None
    if not found:
        reading.refuse(
            "cluster",
            "enabled_hypervisors",
            f"none of them is supported; supported: {', '.join(HYPERVISOR_PARAMS)}",
            "--hypervisor=OLD=kvm chooses the hypervisor of its instances",
        )
    return tuple(found)


def _templates(reading: Reading, given: Document) -> tuple[str, ...]:
    named = given.get("enabled_disk_templates")
    if not named:
        named = [*("drbd", "plain") * bool(given.get("volume_group_name"))]
        named += ["file"] * bool(given.get("file_storage_dir"))
        named += ["sharedfile"] * bool(given.get("shared_file_storage_dir"))
        named.append("diskless")
        reading.change(
            "cluster", "enabled_disk_templates", f"are missing; enabled now: {', '.join(named)}"
        )
    known = [name for name in named if name in DISK_TEMPLATES]
    for name in named:
        if name not in DISK_TEMPLATES:
            reading.unknown("cluster", "enabled_disk_templates", f"{name} is not supported")
    if not known:
        reading.refuse("cluster", "enabled_disk_templates", "none of them is supported")
    return tuple(dict.fromkeys(known))


def _compressions(reading: Reading, given: Document) -> tuple[str, ...]:
    named = given.get("compression_tools") or _COMPRESSIONS
    for name in named:
        if name not in TOOLS:
            reading.unknown("cluster", "compression_tools", f"{name} is not supported")
    return tuple(sorted({*named} & {*TOOLS})) or _COMPRESSIONS


def _layers(reading: Reading, given: Document) -> dict[str, Any]:
    """Return parameters below all others, without those that equal our defaults."""

    def of(
        field: str, own: Any, defaults: Mapping[str, Any], check: Callable[[Params], Params]
    ) -> Params:
        found = reading.params("cluster", field, own, check)
        return {name: value for name, value in found.items() if value != defaults[name]}

    backend = (given.get("beparams") or {}).get(DEFAULT)
    nic = (given.get("nicparams") or {}).get(DEFAULT)
    beparams = of(
        "beparams", backend, BACKEND_DEFAULTS, lambda one: check_backend_params(one, "beparams")
    )
    return {
        "beparams": {DEFAULT: beparams},
        "nicparams": {DEFAULT: of("nicparams", nic, NIC_DEFAULTS, check_nic)},
        "ndparams": of("ndparams", given.get("ndparams"), NODE_DEFAULTS, check_node),
        "diskparams": read_disk_params(reading, "cluster", given.get("diskparams"), bare=True),
    }


def check_nic(given: Params) -> Params:
    """Return parameters of an interface in stored form; InputError."""
    return check_params(NIC_PARAMS, given, "nicparams", "NIC")


def check_node(given: Params) -> Params:
    """Return parameters of nodes in stored form; InputError."""
    speed = given.get("cpu_speed")
    return check_node_params(
        {**given, "cpu_speed": float(speed)} if isinstance(speed, int) else given
    )


def read_disk_params(
    reading: Reading, what: str, given: Any, *, bare: bool = False
) -> dict[str, Params]:
    """Return template -> parameters; `bare` omits those that equal our defaults."""
    found = {}
    for template, params in (given or {}).items():
        if template not in TEMPLATES:
            reading.unknown(what, "diskparams", f"the disk template {template} is not supported")
            continue
        if template not in DISK_TEMPLATES:
            reading.keep(what, "diskparams", f"the disk template {template} is not supported")
            continue
        own = reading.params(what, "diskparams", params, partial(_check_disk_params, template))
        if bare:
            known = TEMPLATES[template].params
            own = {name: value for name, value in own.items() if value != known.get(name)}
        if own:
            found[template] = own
    return found


def _check_disk_params(template: str, given: Params) -> Params:
    return check_disk_params(template, given, "")


def _collectors(reading: Reading, given: Any) -> dict[str, Any]:
    enabled: dict[str, bool] = {}
    intervals: dict[str, int] = {}
    for name, one in (given or {}).items():
        if name not in NAMES:
            continue  # of an unsupported hypervisor
        if one.get("active") is False:
            enabled[name] = False
        interval = int(one.get("interval") or DEFAULT_INTERVAL_US)
        if not INTERVALS_US[0] <= interval <= INTERVALS_US[1]:
            interval = min(max(interval, INTERVALS_US[0]), INTERVALS_US[1])
            reading.change("cluster", f"data_collectors.{name}", f"collects every {interval} µs")
        if interval != DEFAULT_INTERVAL_US:
            intervals[name] = interval
    return {"enabled_data_collectors": enabled, "data_collector_interval": intervals}


def written_cluster(judge: Judge, cluster: Cluster) -> Document:
    """Return the cluster in the form of 3.0, without its ports."""
    for name, theirs in UPSTREAM_NAMES.items():
        if not theirs and getattr(cluster, name) != _DEFAULTS[name]:
            judge.keep("cluster", name, "upstream Ganeti has no such parameter")
    collects = collecting(cluster.enabled_data_collectors, cluster.data_collector_interval)
    return {
        **_NEW,
        **written_stored(cluster),
        **{theirs: wire.plain(getattr(cluster, ours)) for ours, theirs in PLAIN_PARAMS.items()},
        **{name: list(getattr(cluster, name)) for name in OS_LISTS},
        "default_iallocator": _allocator(judge, cluster.default_iallocator),
        "cluster_name": cluster.name,
        "master_node": cluster.master_node,
        "master_ip": cluster.master_ip,
        "primary_ip_family": IPV6 if ":" in cluster.master_ip else IPV4,
        "enabled_hypervisors": list(cluster.enabled_hypervisors),
        "enabled_disk_templates": list(cluster.enabled_disk_templates),
        "compression_tools": list(cluster.compression_tools),
        "hvparams": hypervisors.written_of_cluster(judge, cluster.hvparams),
        "os_hvp": {
            os: {
                name: hypervisors.written(judge, f"OS {os}", name, params)
                for name, params in of_os.items()
            }
            for os, of_os in cluster.os_hvp.items()
        },
        "beparams": {
            DEFAULT: _whole(judge, "beparams", BACKEND_PARAMS, cluster.beparams.get(DEFAULT, {}))
        },
        "nicparams": {DEFAULT: layered(NIC_DEFAULTS, cluster.nicparams.get(DEFAULT, {}))},
        "ndparams": _whole(judge, "ndparams", NODE_PARAMS, cluster.ndparams),
        "diskparams": written_disk_params(judge, "cluster", cluster.diskparams, whole=True),
        "ipolicy": policies.written_policy(cluster.ipolicy, of_group=False),
        "data_collectors": {
            name: {"active": one.active, "interval": float(one.interval_us)}
            for name, one in collects.items()
        },
    }


def _whole(judge: Judge, field: str, known: Mapping[str, Param], own: Params) -> Params:
    """Return the lowest layer of parameters, with a value for each that upstream has."""
    base = {name: param.default for name, param in known.items() if param.is_upstream}
    return layered(base, written_params(judge, "cluster", field, known, own))


OUR_DISK_PARAMS = {
    "plain": ("stripe_size", "thin_overcommit", "thin_pool", "vg"),
    "file": ("format",),
    "sharedfile": ("format",),
    "drbd": ("data_flushes", "meta_flushes", "meta_size", "vg"),
}
"""Template -> parameters that upstream does not have."""


def written_disk_params(
    judge: Judge, what: str, given: Mapping[str, Params], *, whole: bool = False
) -> dict[str, Params]:
    """Return parameters of templates, with a value for each of upstream's names if it is the `whole` layer."""
    found = {}
    for name in TEMPLATES if whole else given:
        ours = OUR_DISK_PARAMS.get(name, ())
        own = given.get(name, {})
        for one in own.keys() & set(ours):
            judge.keep(what, f"diskparams.{name}.{one}", "upstream Ganeti has no such parameter")
        filled = layered(TEMPLATES[name].params if whole else {}, own)
        found[name] = {key: value for key, value in filled.items() if key not in ours}
        if whole and name == "drbd" and not found[name].get("metavg"):
            found[name]["metavg"] = ""
    return found


def _allocator(judge: Judge, text: str) -> str:
    names = default_allocators(text, RequestType.ALLOCATE)
    first = names[0] if names else ""
    if first != text:
        judge.change(
            "cluster",
            "default_iallocator",
            f"is {first}, not {text}: upstream has one allocator for all requests",
        )
    return first
