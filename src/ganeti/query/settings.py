"""The values of an object that a request can change: present value, its origin, bounds, and when it applies. Pure.

Clients build forms from these, and the body of the request that changes them: `path` says where a value stands in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ganeti.base.errors import InputError
from ganeti.config.fill import (
    cluster_osparams,
    filled_ipolicy,
    filled_nicparams,
    group_of,
)
from ganeti.config.resolve import (
    resolve_group,
    resolve_instance,
    resolve_network,
    resolve_node,
)
from ganeti.config.snapshot import Snapshot
from ganeti.model.applies import Applies, of_backend, of_hypervisor, of_nic
from ganeti.model.cluster_params import CLUSTER_PARAMS
from ganeti.model.disk_templates import TEMPLATES
from ganeti.model.fields import fields_of
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS, hypervisor_defaults
from ganeti.model.names import AllocPolicy
from ganeti.model.objects import Instance, Network, Nic, Node, NodeGroup
from ganeti.model.opcodes.group import OpGroupSetParams
from ganeti.model.opcodes.network import OpNetworkSetParams
from ganeti.model.opcodes.node import OpNodeSetParams
from ganeti.model.param import Bounds, OneOf, Param
from ganeti.model.params import (
    BACKEND_DEFAULTS,
    BACKEND_PARAMS,
    GROUP_BACKEND_PARAMS,
    IPOLICY_DEFAULTS,
    NIC_DEFAULTS,
    NIC_PARAMS,
    NODE_DEFAULTS,
    NODE_PARAMS,
    Params,
    layered,
)

DEFAULT = "default"
OWN = "own"
_FORMS = {bool: "flag", int: "integer", float: "number", str: "text"}
_POLICY_OF = {"maxmem": "memory-size", "vcpus": "cpu-count", "spindle_use": "spindle-use"}
"""Backend parameters -> the sizes of a policy that bound them."""
_SPEC_DOCS = {
    "memory-size": "memory in MiB", "cpu-count": "virtual processors", "disk-count": "number of disks",
    "disk-size": "size of a disk in MiB", "nic-count": "number of network interfaces", "spindle-use": "spindles",
}  # fmt: skip


class Layer(msgspec.Struct, frozen=True):
    """The values of one layer, by name; the layer is `default`, `cluster`, `os`, `group` or `own`."""

    name: str
    values: Mapping[str, Any]


class Setting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One value that a request can change."""

    path: tuple[str | int, ...]
    """Its location in the body of the request."""
    title: str
    """The heading of its section."""
    name: str
    doc: str = ""
    form: str = "text"
    """`flag`, `integer`, `size` (MiB), `number` or `text`."""
    value: Any
    """The effective value."""
    source: str = OWN
    """The layer that the value comes from."""
    inherited: Any = None
    """The value that would be effective without the object's own."""
    inherited_from: str = ""
    """The layer of that value; empty: there is none."""
    reset: Any = msgspec.UNSET
    """The value in a request that removes the object's own; absent: it cannot be removed."""
    choices: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    policy: tuple[float, float] | None = None
    """The bounds of the instance policy."""
    applies: str = Applies.NOW.value
    """`now`; `hotplug`: at once if the running guest is changed, else at its next start; `start`: at its next start."""


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the body that is sent as a whole: a request that changes a value in it begins with `value`."""

    path: tuple[str | int, ...]
    value: Any


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All values of one object that a request can change."""

    kind: str
    name: str
    serial_no: int
    """It rises with each change of the object."""
    tags: tuple[str, ...]
    settings: tuple[Setting, ...]
    bases: tuple[Base, ...] = ()
    open: tuple[str, ...] = ()
    """Parts of the body that accept further names, such as `osparams`."""


def settings_of(snapshot: Snapshot, kind: str, name: str) -> Settings:
    """Return the settings of an object, in the order in which forms show them; InputError, PrereqError.

    `kind` is cluster (its name is empty), group, instance, network or node.
    """
    if kind == "cluster":
        return _of_cluster(snapshot)
    if kind == "group":
        return _of_group(snapshot, resolve_group(snapshot, name))
    if kind == "instance":
        return _of_instance(snapshot, resolve_instance(snapshot, name))
    if kind == "network":
        return _of_network(resolve_network(snapshot, name))
    if kind == "node":
        return _of_node(snapshot, resolve_node(snapshot, name))
    raise InputError(f"{kind!r:.40} must be cluster, group, instance, network or node", "kind")


def _of_instance(snapshot: Snapshot, one: Instance) -> Settings:
    cluster, group = snapshot.cluster, group_of(snapshot, one.primary_node)
    pairs = filled_ipolicy(cluster, group)["minmax"]
    bounds = {
        name: (min(p["min"][size] for p in pairs), max(p["max"][size] for p in pairs))
        for name, size in _POLICY_OF.items()
    }
    backend = [
        Layer(DEFAULT, BACKEND_DEFAULTS),
        Layer("cluster", cluster.beparams.get(DEFAULT, {})),
        Layer("group", group.beparams if group else {}),
        Layer(OWN, one.beparams),
    ]
    known = HYPERVISOR_PARAMS.get(one.hypervisor, {})
    hypervisor = [
        Layer(DEFAULT, hypervisor_defaults(one.hypervisor)),
        Layer("cluster", cluster.hvparams.get(one.hypervisor, {})),
        *(
            Layer("os", cluster.os_hvp.get(os, {}).get(one.hypervisor, {}))
            for os in dict.fromkeys((one.os.partition("+")[0], one.os))
        ),
        Layer(OWN, one.hvparams),
    ]
    title = "Hypervisor parameters"
    return _settings("instance", one, (
        *_params("Backend parameters", ("custom_beparams",), BACKEND_PARAMS, backend, bounds=bounds),
        *_os_settings(snapshot, one),
        *(
            setting
            for index, nic in enumerate(one.nics)
            for setting in _nic_settings(snapshot, group, index, nic)
        ),
        *_params(title, ("custom_hvparams",), {name: param for name, param in known.items() if not param.is_global}, hypervisor),
    ), open=("osparams",))  # fmt: skip


def _os_settings(snapshot: Snapshot, one: Instance) -> Iterator[Setting]:
    title = "Operating system"
    yield Setting(path=("os_name",), title=title, name="os", value=one.os,
                  doc="OS definition, for the next installation")  # fmt: skip
    layers = [
        Layer("cluster", cluster_osparams(snapshot.cluster, one.os)),
        Layer(OWN, one.osparams),
    ]
    names = sorted({name for layer in layers for name in layer.values})
    for name in names:
        yield _setting(title, ("osparams", name), name, layers, doc="for the next installation")


def _nic_settings(
    snapshot: Snapshot, group: NodeGroup | None, index: int, nic: Nic
) -> Iterator[Setting]:
    title = f"Network interface {index}"
    network = snapshot.networks.get(nic.network) if nic.network else None
    own: Params = {
        "ip": nic.ip or "", "mac": nic.mac, "network": network.name if network else "",
        "name": nic.name or "",
    }  # fmt: skip
    docs = {
        "ip": "address of the guest; 'pool' reserves a free one of its network",
        "mac": "'generate' makes a new one", "network": "network that it is in; empty: none",
        "name": "name for commands",
    }  # fmt: skip
    for name, value in own.items():
        can = msgspec.UNSET if name == "mac" else None
        yield Setting(path=("nics", index, name), title=title, name=name, doc=docs[name], value=value,
                      reset=can, applies=of_nic(name).value)  # fmt: skip
    if network is not None:
        return  # Its connection to the group decides.
    cluster = snapshot.cluster
    layers = [
        Layer(DEFAULT, NIC_DEFAULTS),
        Layer("cluster", cluster.nicparams.get(DEFAULT, {})),
        Layer(OWN, nic.nicparams),
    ]
    effective = filled_nicparams(cluster, nic, group)
    for name, param in NIC_PARAMS.items():
        found = _setting(
            title, ("nics", index, name), name, layers, param=param, applies=of_nic(name)
        )
        yield msgspec.structs.replace(found, value=effective[name])


def _of_node(snapshot: Snapshot, one: Node) -> Settings:
    group = snapshot.groups.get(one.group)
    layers = [
        Layer(DEFAULT, NODE_DEFAULTS),
        Layer("cluster", snapshot.cluster.ndparams),
        Layer("group", group.ndparams if group else {}),
        Layer(OWN, one.ndparams),
    ]
    docs = {name: field.help for name, (field, _) in fields_of(OpNodeSetParams).items()}
    flags = ("master_candidate", "drained", "offline", "master_capable", "vm_capable")
    params = {name: one for name, one in NODE_PARAMS.items() if name != "exclusive_storage"}
    return _settings("node", one, (
        *(
            Setting(path=(name,), title="Role", name=name, doc=docs[name], form="flag", value=getattr(one, name))
            for name in flags
        ),
        Setting(path=("secondary_ip",), title="Addresses", name="secondary_ip", doc=docs["secondary_ip"],
                value=one.secondary_ip),
        *_params("Node parameters", ("ndparams",), params, layers),
    ))  # fmt: skip


def _of_group(snapshot: Snapshot, one: NodeGroup) -> Settings:
    cluster = snapshot.cluster
    docs = {name: field.help for name, (field, _) in fields_of(OpGroupSetParams).items()}
    node = [
        Layer(DEFAULT, NODE_DEFAULTS),
        Layer("cluster", cluster.ndparams),
        Layer(OWN, one.ndparams),
    ]
    backend = [
        Layer(DEFAULT, BACKEND_DEFAULTS),
        Layer("cluster", cluster.beparams.get(DEFAULT, {})),
        Layer(OWN, one.beparams),
    ]
    policy = [
        Layer(DEFAULT, IPOLICY_DEFAULTS),
        Layer("cluster", cluster.ipolicy),
        Layer(OWN, one.ipolicy),
    ]
    return _settings("group", one, (
        Setting(path=("alloc_policy",), title="Allocation", name="alloc_policy", doc=docs["alloc_policy"],
                value=one.alloc_policy.value, choices=tuple(each.value for each in AllocPolicy)),
        *_policy("custom_ipolicy", policy),
        *_params("Node parameters", ("custom_ndparams",), NODE_PARAMS, node),
        *_params("Backend parameters", ("custom_beparams",), GROUP_BACKEND_PARAMS, backend),
        *_disk_settings("custom_diskparams", cluster.enabled_disk_templates,
                        [Layer("cluster", cluster.diskparams), Layer(OWN, one.diskparams)]),
    ), bases=_policy_bases("custom_ipolicy", policy))  # fmt: skip


def _of_network(one: Network) -> Settings:
    docs = {name: field.help for name, (field, _) in fields_of(OpNetworkSetParams).items()}
    return _settings("network", one, tuple(
        Setting(path=(name,), title="Network", name=name, doc=docs[name], value=getattr(one, name) or "", reset="none")
        for name in ("gateway", "network6", "gateway6", "mac_prefix")
    ))  # fmt: skip


def _of_cluster(snapshot: Snapshot) -> Settings:
    one = snapshot.cluster
    node = [Layer(DEFAULT, NODE_DEFAULTS), Layer(OWN, one.ndparams)]
    backend = [Layer(DEFAULT, BACKEND_DEFAULTS), Layer(OWN, one.beparams.get(DEFAULT, {}))]
    nic = [Layer(DEFAULT, NIC_DEFAULTS), Layer(OWN, one.nicparams.get(DEFAULT, {}))]
    policy = [Layer(DEFAULT, IPOLICY_DEFAULTS), Layer(OWN, one.ipolicy)]
    simple = {
        name: param for name, param in CLUSTER_PARAMS.items() if param.given in (bool, int, str)
    }
    return _settings("cluster", one, (
        *(
            Setting(path=(name,), title="Cluster", name=name, doc=param.field.help, form=_FORMS[param.given],
                    value=getattr(one, name))
            for name, param in simple.items()
        ),
        *_policy("ipolicy", policy),
        *_params("Backend parameters", ("beparams",), BACKEND_PARAMS, backend),
        *_params("Network interfaces", ("nicparams",), NIC_PARAMS, nic),
        *_params("Node parameters", ("ndparams",), NODE_PARAMS, node),
        *(
            setting
            for name in one.enabled_hypervisors
            for setting in _params(
                f"Hypervisor parameters of {name}", ("hvparams", name), HYPERVISOR_PARAMS[name],
                [Layer(DEFAULT, hypervisor_defaults(name)), Layer(OWN, one.hvparams.get(name, {}))],
            )
        ),
        *_disk_settings("diskparams", one.enabled_disk_templates, [Layer(OWN, one.diskparams)]),
    ), bases=_policy_bases("ipolicy", policy))  # fmt: skip


def _settings(
    kind: str,
    one: Any,
    settings: tuple[Setting, ...],
    *,
    bases: tuple[Base, ...] = (),
    open: tuple[str, ...] = (),  # noqa: A002 - the name of the field
) -> Settings:
    return Settings(kind=kind, name=one.name, serial_no=one.serial_no, tags=one.tags,
                    settings=settings, bases=bases, open=open)  # fmt: skip


_APPLIES = {"custom_beparams": of_backend, "beparams": of_backend}
_HYPERVISORS = ("custom_hvparams", "hvparams")
_NICS = "nicparams"


def _applies(path: Sequence[str | int], name: str) -> Applies:
    part = path[0]
    if part in _HYPERVISORS:
        return of_hypervisor(name)
    if part == _NICS:
        return of_nic(name)
    return _APPLIES[part](name) if part in _APPLIES else Applies.NOW


def _params(
    title: str,
    path: tuple[str | int, ...],
    params: Mapping[str, Param],
    layers: Sequence[Layer],
    *,
    bounds: Mapping[str, tuple[float, float]] | None = None,
) -> Iterator[Setting]:
    for name, param in sorted(params.items()):
        found = _setting(
            title, (*path, name), name, layers, param=param, applies=_applies(path, name)
        )
        yield msgspec.structs.replace(found, policy=(bounds or {}).get(name))


def _setting(
    title: str,
    path: tuple[str | int, ...],
    name: str,
    layers: Sequence[Layer],
    *,
    param: Param | None = None,
    applies: Applies = Applies.NOW,
    doc: str = "",
    default: Any = "",
) -> Setting:
    """Return the setting of a name in layers, of which the last one is the object's own."""
    source, value = _from(layers, name, default)
    inherited_from, inherited = _from(layers[:-1], name, default)
    kind = type(param.default) if param else type(value)
    bounds = param.check if param and isinstance(param.check, Bounds) else None
    few = param.check.numbers if param and isinstance(param.check, OneOf) else ()
    return Setting(
        path=path, title=title, name=name, doc=param.doc if param else doc,
        form="size" if param and param.is_size else _FORMS.get(kind, "text"),
        value=value, source=source, inherited=inherited, inherited_from=inherited_from, reset=None,
        choices=(param.choices or few) if param else (),
        minimum=bounds.low if bounds else None, maximum=bounds.high if bounds else None,
        applies=applies.value,
    )  # fmt: skip


def _from(layers: Sequence[Layer], name: str, default: Any) -> tuple[str, Any]:
    """Return the last layer that has the name, and its value there."""
    for layer in reversed(layers):
        if name in layer.values:
            return layer.name, layer.values[name]
    return "", default


def _disk_settings(
    part: str, templates: Sequence[str], layers: Sequence[Layer]
) -> Iterator[Setting]:
    for template in templates:
        defaults = TEMPLATES[template].params if template in TEMPLATES else {}
        own = [
            Layer(DEFAULT, defaults),
            *(Layer(layer.name, layer.values.get(template, {})) for layer in layers),
        ]
        for name, value in sorted(defaults.items()):
            yield _setting(
                f"Disk parameters of {template}", (part, template, name), name, own, default=value
            )


def _policy_bases(part: str, layers: Sequence[Layer]) -> tuple[Base, ...]:
    """Return the bounds of a policy, which a request replaces as a whole."""
    return (
        Base(path=(part, "minmax"), value=layered(*(layer.values for layer in layers))["minmax"]),
    )


def _policy(part: str, layers: Sequence[Layer]) -> Iterator[Setting]:
    """Return the ratios of a policy, the standard instance, and the bounds."""
    title = "Instance policy"
    for name, doc in (
        ("vcpu-ratio", "virtual processors of running instances for each processor of a node"),
        ("spindle-ratio", "spindles that instances use for each spindle of a node"),
    ):
        found = _setting(title, (part, name), name, layers, doc=doc)
        yield msgspec.structs.replace(found, minimum=1, form="number")
    filled = layered(*(layer.values for layer in layers))
    source, _ = _from(layers, "std", {})
    for name, doc in _SPEC_DOCS.items():
        yield Setting(path=(part, "std", name), title=title, name=f"standard {name}", doc=doc, form="integer",
                      value=layered(IPOLICY_DEFAULTS["std"], filled["std"])[name], source=source, minimum=0)  # fmt: skip
    source, pairs = _from(layers, "minmax", [])
    for index, pair in enumerate(pairs):
        number = f" {index + 1}" if len(pairs) > 1 else ""
        for end in ("min", "max"):
            for name, doc in _SPEC_DOCS.items():
                yield Setting(path=(part, "minmax", index, end, name), title=f"Bounds{number} of instances",
                              name=f"{end} {name}", doc=doc, form="integer", value=pair[end][name], source=source,
                              minimum=0)  # fmt: skip
