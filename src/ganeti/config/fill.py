"""Parameters with all their layers: cluster, group, node, object; later ones win. Pure."""

from collections.abc import Collection, Mapping
from typing import Any

from msgspec.structs import replace

from ganeti.config.view import View
from ganeti.model.disk_templates import DISK_TEMPLATES, RAW, TEMPLATES, disk_format
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS, hypervisor_defaults
from ganeti.model.instance_spec import (
    DiskPeer,
    DiskSpec,
    InstanceSpec,
    NetworkSpec,
    NicSpec,
    OsFacts,
)
from ganeti.model.objects import Cluster, Disk, Instance, Network, Nic, Node, NodeGroup, NodeUuid
from ganeti.model.params import (
    BACKEND_DEFAULTS,
    IPOLICY_DEFAULTS,
    NIC_DEFAULTS,
    NODE_DEFAULTS,
    Params,
    layered,
    top_value,
)
from ganeti.model.recovery import Recovery

DEFAULT = "default"
"""The name of a cluster's own layer of backend and NIC parameters."""


def cluster_hvparams(cluster: Cluster, hypervisor: str, os: str = "") -> Params:
    """Return a hypervisor's parameters of the cluster, for instances of one OS, perhaps NAME+VARIANT."""
    names = dict.fromkeys((os.partition("+")[0], os))
    per_os = [cluster.os_hvp.get(name, {}).get(hypervisor, {}) for name in names]
    return layered(hypervisor_defaults(hypervisor), cluster.hvparams.get(hypervisor, {}), *per_os)


def filled_hvparams(cluster: Cluster, instance: Instance) -> Params:
    """Return all hypervisor parameters of an instance; global ones come from the cluster alone (S83)."""
    own = without_globals(instance.hypervisor, instance.hvparams)
    return layered(cluster_hvparams(cluster, instance.hypervisor, instance.os), own)


def without_globals(hypervisor: str, hvparams: Mapping[str, Any]) -> Params:
    """Return the parameters that can be set for one instance (S83, S84)."""
    known = HYPERVISOR_PARAMS.get(hypervisor, {})
    return without(hvparams, {name for name, param in known.items() if param.is_global})


def without(params: Mapping[str, Any], cluster_only: Collection[str]) -> Params:
    """Return parameters of any kind without those that only a cluster has (S85)."""
    return {name: value for name, value in params.items() if name not in cluster_only}


def filled_beparams(view: View, instance: Instance) -> Params:
    """Return all backend parameters of an instance; memory in MiB. Its group is that of its primary node."""
    return layered_beparams(view.cluster, group_of(view, instance.primary_node), instance)


def layered_beparams(cluster: Cluster, group: NodeGroup | None, instance: Instance) -> Params:
    """Return the same; without `group` those that no group can set (`GROUP_BACKEND_PARAMS`) are right."""
    return layered(*_backend_layers(cluster, group, instance))


def _backend_layers(
    cluster: Cluster, group: NodeGroup | None, instance: Instance
) -> tuple[Mapping[str, Any], ...]:
    of_group = group.beparams if group else {}
    return BACKEND_DEFAULTS, cluster.beparams.get(DEFAULT, {}), of_group, instance.beparams


def recovery_of(view: View, instance: Instance) -> Recovery:
    """Return what automatic recovery does for an instance: at most a restart if its template rules out a failover."""
    layers = _backend_layers(view.cluster, group_of(view, instance.primary_node), instance)
    wanted = Recovery(top_value("recovery", *layers))
    if wanted is Recovery.FAILOVER and DISK_TEMPLATES[instance.disk_template].why_not_recovered:
        return Recovery.RESTART
    return wanted


def filled_nicparams(cluster: Cluster, nic: Nic, group: NodeGroup | None = None) -> Params:
    """Return mode, link and VLAN of a network interface; `group` matters for an interface in a network."""
    of_network = group.networks.get(nic.network, {}) if group and nic.network else {}
    own = of_network if nic.network else nic.nicparams
    return layered(default_nicparams(cluster), own)


def default_nicparams(cluster: Cluster) -> Params:
    """Return mode, link and VLAN of an interface that has none of its own."""
    return layered(NIC_DEFAULTS, cluster.nicparams.get(DEFAULT, {}))


def group_of(snapshot: View, node_uuid: NodeUuid) -> NodeGroup | None:
    """Return the group of a node; None if the configuration lacks one of them."""
    node = snapshot.nodes.get(node_uuid)
    return snapshot.groups.get(node.group) if node else None


def filled_diskparams(
    cluster: Cluster, group: NodeGroup | None, template: str, own: Mapping[str, Any] | None = None
) -> Params:
    """Return all parameters of a disk template: of the cluster, the group, and one disk (S75)."""
    of_group = group.diskparams.get(template, {}) if group else {}
    return layered(
        row.params if (row := TEMPLATES.get(template)) else {},
        cluster.diskparams.get(template, {}),
        of_group,
        own or {},
    )


def all_diskparams(cluster: Cluster, group: NodeGroup | None = None) -> dict[str, Params]:
    """Return the parameters of every known disk template."""
    return {name: filled_diskparams(cluster, group, name) for name in sorted(TEMPLATES)}


def filled_ndparams(snapshot: View, node: Node) -> Params:
    """Return all parameters of a node: of the cluster, its group, and its own."""
    group = snapshot.groups.get(node.group)
    own = node.ndparams
    return layered(NODE_DEFAULTS, snapshot.cluster.ndparams, group.ndparams if group else {}, own)


def is_exclusive(cluster: Cluster, group: NodeGroup | None) -> bool:
    """Return whether the nodes of a group give each disk physical devices of its own (exclusive storage)."""
    own = group.ndparams if group else {}
    return bool(layered(NODE_DEFAULTS, cluster.ndparams, own)["exclusive_storage"])


def filled_ipolicy(cluster: Cluster, group: NodeGroup | None) -> Params:
    """Return the policy of a group (None: the cluster's own); missing values come from the layer below."""
    return layered(IPOLICY_DEFAULTS, cluster.ipolicy, group.ipolicy if group else {})


def filled_osparams(cluster: Cluster, instance: Instance) -> dict[str, str]:
    """Return the OS parameters of an instance: of its OS, of OS and variant, its own."""
    return layered(cluster_osparams(cluster, instance.os), instance.osparams)


def cluster_osparams(cluster: Cluster, os: str) -> dict[str, str]:
    """Return the cluster's parameters for an OS, or for NAME+VARIANT."""
    base, _, variant = os.partition("+")
    per_variant = cluster.osparams.get(os, {}) if variant else {}
    return layered(cluster.osparams.get(base, {}), per_variant)


def instance_spec(snapshot: View, instance: Instance, node: NodeUuid | None = None) -> InstanceSpec:
    """Return the instance in the form that a node (default: the primary one) needs.

    Every parameter resolved.
    """
    cluster = snapshot.cluster
    beparams = filled_beparams(snapshot, instance)
    group = group_of(snapshot, node or instance.primary_node)
    return InstanceSpec(
        name=instance.name,
        uuid=instance.uuid,
        hypervisor=instance.hypervisor,
        os=instance.os,
        memory=beparams["maxmem"],
        vcpus=beparams["vcpus"],
        hvparams=filled_hvparams(cluster, instance),
        disk_template=instance.disk_template,
        disks=tuple(
            disk_spec(snapshot, instance, index, node) for index in range(len(instance.disks))
        ),
        nics=tuple(
            _nic_spec(snapshot, group, index, nic) for index, nic in enumerate(instance.nics)
        ),
        tags=instance.tags,
        network_port=instance.network_port,
        is_protected=_is_protected(snapshot, instance),
        as_of=snapshot.position,
    )


def _is_protected(view: View, instance: Instance) -> bool:
    """Return whether the node must treat it as protected; `instance` may have been read before its protection."""
    stored = view.instances.get(instance.uuid, instance)
    both = (instance,) if stored is instance else (stored, instance)
    return any(one.under_lease or recovery_of(view, one) is Recovery.FAILOVER for one in both)


def os_facts(snapshot: View, instance: Instance) -> OsFacts:
    """Return the facts about an instance that only the scripts of its OS get."""
    stored = snapshot.instances.get(instance.uuid, instance)
    return OsFacts(
        primary_node=instance.primary_node,
        secondary_nodes=tuple(node for node in instance.all_nodes if node != instance.primary_node),
        ctime=stored.ctime,
        mtime=stored.mtime,
        beparams=filled_beparams(snapshot, instance),
        disk_names=tuple(disk.name or "" for disk in instance.disks),
        nic_names=tuple(nic.name or "" for nic in instance.nics),
    )


def disk_spec(
    snapshot: View, instance: Instance, index: int, node: NodeUuid | None = None
) -> DiskSpec:
    """Return one disk of an instance, with its layers, in the form that a node needs."""
    return _layer_spec(
        snapshot, instance, index, node or instance.primary_node, instance.disks[index]
    )


def memory_spec(
    snapshot: View, instance: Instance, memory: Disk, node: NodeUuid | None = None
) -> DiskSpec:
    """Return the disk with the memory of a snapshot; it needs no zeros, because only what was written is read."""
    count = len(instance.disks)
    spec = _layer_spec(snapshot, instance, count, node or instance.primary_node, memory)
    return replace(spec, wipe=False)


def _layer_spec(
    snapshot: View, instance: Instance, index: int, node: NodeUuid, layer: Disk
) -> DiskSpec:
    return DiskSpec(
        uuid=layer.uuid,
        index=index,
        size=layer.size,
        template=layer.template,
        logical_id=_named_with_format(layer),
        part=layer.parts.get(node, ()),
        peers=tuple(
            DiskPeer(name=peer.name, address=peer.secondary_ip, part=part, offline=peer.offline)
            for uuid, part in layer.parts.items()
            if uuid != node and (peer := snapshot.nodes.get(uuid)) is not None
        ),
        address=own.secondary_ip if layer.parts and (own := snapshot.nodes.get(node)) else "",
        secret=layer.secret,
        grant=layer.grant,
        imported=layer.imported,
        name=layer.name or "",
        children=tuple(
            _layer_spec(snapshot, instance, index, node, child) for child in layer.children
        ),
        mode=layer.mode,
        params=_diskparams(snapshot, instance, layer),
        wipe=snapshot.cluster.prealloc_wipe_disks,
        exclusive=_has_own_devices(snapshot, node, layer),
    )


def _named_with_format(disk: Disk) -> tuple[str | int, ...]:
    """Return the name of a disk for a node: an image's also has its format.

    A node of a version without formats refuses such a name. It would take the image for the data of the disk otherwise.
    """
    form = disk_format(disk.template, disk.params)
    return disk.logical_id if form == RAW else (*disk.logical_id, form)


def _has_own_devices(snapshot: View, node: NodeUuid, layer: Disk) -> bool:
    row = TEMPLATES.get(layer.template)
    can = row is not None and row.can_be_exclusive
    return can and is_exclusive(snapshot.cluster, group_of(snapshot, node))


def _diskparams(snapshot: View, instance: Instance, disk: Disk) -> Params:
    group = group_of(snapshot, instance.primary_node)
    return filled_diskparams(snapshot.cluster, group, disk.template, placed_params(disk))


def placed_params(disk: Disk) -> Params:
    """Return a disk's own parameters, whatever the present defaults are.

    A disk that names no pool is in none; one that names no format is raw.
    """
    row = TEMPLATES.get(disk.template)
    if row is None:
        return disk.params
    pool = row.storage.pool if row.storage is not None else ""
    own = {pool: "", **disk.params} if pool else disk.params
    return {"format": RAW, **own} if "format" in row.params else own


def network_spec(network: Network) -> NetworkSpec:
    """Return a network in the form that nodes and scripts get."""
    return NetworkSpec(
        name=network.name,
        uuid=network.uuid,
        network=network.network,
        gateway=network.gateway,
        network6=network.network6,
        gateway6=network.gateway6,
        mac_prefix=network.mac_prefix,
        tags=network.tags,
    )


def _nic_spec(snapshot: View, group: NodeGroup | None, index: int, nic: Nic) -> NicSpec:
    filled = filled_nicparams(snapshot.cluster, nic, group)
    network = snapshot.networks.get(nic.network) if nic.network else None
    return NicSpec(
        uuid=nic.uuid,
        index=index,
        mac=nic.mac,
        ip=nic.ip,
        mode=filled["mode"],
        link=filled["link"],
        vlan=filled["vlan"],
        network=network_spec(network) if network else None,
    )
