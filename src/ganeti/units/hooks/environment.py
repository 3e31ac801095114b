"""The variables of hooks, from objects of the configuration (docs/design/hooks.md); pure.

Values are passed unchanged: the author of a hook quotes them. They contain no secrets (G23).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ganeti.config.fill import (
    DEFAULT,
    filled_beparams,
    filled_hvparams,
    filled_nicparams,
    group_of,
    network_spec,
)
from ganeti.config.snapshot import Snapshot
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.objects import (
    Disk,
    Instance,
    Network,
    Nic,
    Node,
    NodeGroup,
    NodeUuid,
)
from ganeti.model.params import NIC_DEFAULTS, Params, layered


def text(value: object) -> str:
    """Return a value in upstream's form for hooks: `True`, `False`, numbers; '' for None."""
    return "" if value is None else str(value)


def instance_variables(
    snapshot: Snapshot, instance: Instance, requested: Instance | None = None
) -> dict[str, str]:
    """Return all variables about an instance; sizes and memory are in MiB.

    Memory, processors and interfaces are those of `requested`, the instance after the operation. As in upstream
    Ganeti, the `INSTANCE_BE_` variables are those of the present instance.
    """
    cluster = snapshot.cluster
    new = requested or instance
    beparams = filled_beparams(snapshot, new)
    named = {
        "OP_TARGET": instance.name,
        "INSTANCE_NAME": instance.name,
        "INSTANCE_PRIMARY": node_names(snapshot, [instance.primary_node]),
        "INSTANCE_SECONDARIES": node_names(snapshot, instance.secondary_nodes),
        "INSTANCE_OS_TYPE": instance.os,
        "INSTANCE_STATUS": str(instance.admin_state),
        "INSTANCE_MINMEM": text(beparams["minmem"]),
        "INSTANCE_MAXMEM": text(beparams["maxmem"]),
        "INSTANCE_MEMORY": text(beparams["maxmem"]),
        "INSTANCE_VCPUS": text(beparams["vcpus"]),
        "INSTANCE_DISK_TEMPLATE": instance.disk_template,
        "INSTANCE_HYPERVISOR": instance.hypervisor,
        "INSTANCE_TAGS": " ".join(instance.tags),
        "INSTANCE_NIC_COUNT": str(len(new.nics)),
        "INSTANCE_DISK_COUNT": str(len(instance.disks)),
        "INSTANCE_DISK_SIZES": ",".join(str(disk.size) for disk in instance.disks),
    }
    group = group_of(snapshot, instance.primary_node)
    for index, nic in enumerate(new.nics):
        prefix = f"INSTANCE_NIC{index}_"
        named |= _nic_variables(prefix, filled_nicparams(cluster, nic, group), nic)
        network = snapshot.networks.get(nic.network) if nic.network else None
        if network is not None:
            named |= network_spec(network).environment(prefix)
    for index, disk in enumerate(instance.disks):
        named |= _disk_variables(f"INSTANCE_DISK{index}_", instance, disk)
    beparams, hvparams = filled_beparams(snapshot, instance), filled_hvparams(cluster, instance)
    return named | _params("INSTANCE_BE_", beparams) | _params("INSTANCE_HV_", hvparams)


def _nic_variables(prefix: str, filled: Mapping[str, Any], nic: Nic) -> dict[str, str]:
    link = text(filled["link"])
    return {
        f"{prefix}UUID": nic.uuid,
        **({f"{prefix}NAME": nic.name} if nic.name else {}),
        f"{prefix}MAC": nic.mac,
        f"{prefix}IP": text(nic.ip),
        f"{prefix}MODE": text(filled["mode"]),
        f"{prefix}LINK": link,
        f"{prefix}VLAN": text(filled["vlan"]),
        **({f"{prefix}BRIDGE": link} if filled["mode"] in _WITH_BRIDGE else {}),
    }


_WITH_BRIDGE = ("bridged", "openvswitch")


def _disk_variables(prefix: str, instance: Instance, disk: Disk) -> dict[str, str]:
    found = {
        "UUID": disk.uuid,
        "SIZE": str(disk.size),
        "MODE": disk.mode,
        "DEV_TYPE": disk.template,
        **({"NAME": disk.name} if disk.name else {}),
        **disk_location(instance, disk),
    }
    return {prefix + name: value for name, value in found.items()}


def disk_location(instance: Instance, disk: Disk) -> dict[str, str]:
    """Return where a disk is, by upstream's names."""
    is_mirror = bool(disk.parts)
    return _mirror_location(instance, disk) if is_mirror else _location(disk, disk.logical_id)


def _location(disk: Disk, logical_id: Sequence[object]) -> dict[str, str]:
    """Return a disk's location by upstream's names: a driver, provider or volume group, and a name in it."""
    match logical_id:
        case [first, second]:
            holder = DISK_TEMPLATES[disk.template].disk_id.param.upper() or "DRIVER"
            return {holder: text(first), "ID": text(second)}
    return {}


def _mirror_location(instance: Instance, disk: Disk) -> dict[str, str]:
    """Return the nodes (UUIDs), port, minors and volumes of a mirrored disk, by upstream's names."""
    primary = instance.primary_node
    first, second = [primary, *(uuid for uuid in disk.parts if uuid != primary)][:2]
    found = {"PNODE": text(first), "SNODE": text(second), "PORT": text(disk.logical_id[0])}
    for name, node in (("PMINOR", first), ("SMINOR", second)):
        found[name] = text(disk.part(NodeUuid(node))[0])
    for kind, child in zip(("DATA", "META"), disk.children, strict=False):
        volume = _location(child, child.part(NodeUuid(first)))
        found |= {f"{kind}_{name}": value for name, value in volume.items()}
    return found


def _params(prefix: str, params: Mapping[str, Any]) -> dict[str, str]:
    return {prefix + name: text(value) for name, value in params.items()}


def node_names(snapshot: Snapshot, nodes: Iterable[NodeUuid]) -> str:
    """Return names of nodes, separated by spaces; removed nodes are omitted."""
    return " ".join(snapshot.nodes[uuid].name for uuid in nodes if uuid in snapshot.nodes)


def node_variables(node: Node) -> dict[str, str]:
    """A node that is added, changed or removed."""
    return {
        "OP_TARGET": node.name,
        "NODE_NAME": node.name,
        "NODE_PIP": node.primary_ip,
        "NODE_SIP": node.secondary_ip,
        "MASTER_CANDIDATE": text(node.master_candidate),
        "OFFLINE": text(node.offline),
        "DRAINED": text(node.drained),
        "MASTER_CAPABLE": text(node.master_capable),
        "VM_CAPABLE": text(node.vm_capable),
    }


def group_variables(group: NodeGroup) -> dict[str, str]:
    """A node group."""
    return {"OP_TARGET": group.name, "GROUP_NAME": group.name}


def members(snapshot: Snapshot, group: NodeGroup) -> list[NodeUuid]:
    """The nodes of a group."""
    return [node.uuid for node in snapshot.nodes_by_name() if node.group == group.uuid]


def network_variables(network: Network) -> dict[str, str]:
    """A network."""
    return {"OP_TARGET": network.name, **network_spec(network).environment()}


def network_of_group(
    snapshot: Snapshot, group: NodeGroup, network: Network, requested: Params | None = None
) -> dict[str, str]:
    """Return the parameters of the connection between a group and a network."""
    params = layered(
        NIC_DEFAULTS,
        snapshot.cluster.nicparams.get(DEFAULT, {}),
        group.networks.get(network.uuid, {}),
        requested or {},
    )
    return {
        "GROUP_NAME": group.name,
        "GROUP_NETWORK_MODE": text(params["mode"]),
        "GROUP_NETWORK_LINK": text(params["link"]),
        "GROUP_NETWORK_VLAN": text(params["vlan"]),
    }


def cluster_variables(snapshot: Snapshot) -> dict[str, str]:
    """The cluster."""
    return {"OP_TARGET": snapshot.cluster.name}
