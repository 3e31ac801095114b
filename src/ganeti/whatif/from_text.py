"""A source from an htools data file, the text form of `hspace -t` and the other placement commands."""

from collections.abc import Mapping
from ipaddress import IPv4Address

from ganeti.base.errors import InputError
from ganeti.layouts.registry import PLANNERS
from ganeti.model.disk_templates import DISK_TEMPLATES, TEMPLATES
from ganeti.model.names import AdminState, AllocPolicy
from ganeti.model.objects import (
    Cluster,
    Disk,
    GroupUuid,
    Instance,
    InstanceUuid,
    Node,
    NodeGroup,
    NodeUuid,
)
from ganeti.model.params import Params
from ganeti.placement import description
from ganeti.placement.load.text import parse, repeated
from ganeti.whatif.source import (
    DerivedNames,
    NodeSize,
    Source,
    derived_uuid,
    stand_in_certificate,
    whole,
    with_disks,
)

CLUSTER_NAME = "cluster.example.com"
_ADMIN_STATES = {"ADMIN_offline": AdminState.OFFLINE, "ADMIN_down": AdminState.DOWN}
_FIRST_ADDRESS = int(IPv4Address("198.18.0.1"))  # for benchmarks (RFC 2544): no real host has it
_NOTES = (
    "an htools data file has no recovery policies: no instance is protected unless the scenario sets one",
    "an htools data file has the disks of an instance as one size: each instance has one disk",
)


def text_source(text: str) -> Source:
    """Return the cluster of an htools data file; InputError names the wrong line or value."""
    found = parse(text)
    for what, described in (
        ("node", [one.name for one in found.nodes]),
        ("instance", [one.name for one in found.instances]),
    ):
        if twins := repeated(described):
            raise InputError(f"{what} {twins[0]} is described twice; rename one of them", "text")
    nodes = {one.name: NodeUuid(derived_uuid("node", one.name)) for one in found.nodes}
    groups = {one.uuid: GroupUuid(derived_uuid("group", one.uuid)) for one in found.groups}
    cluster = _cluster(found, nodes)
    names = DerivedNames()
    objects = (
        cluster,
        *(_group(one, groups[one.uuid], found.policy) for one in found.groups),
        *(_node(number, one, nodes, groups) for number, one in enumerate(found.nodes)),
        *(_instance(cluster, one, nodes, names) for one in found.instances),
    )
    sizes = {nodes[one.name]: _size(one) for one in found.nodes if one.total_memory}
    return Source("htools", CLUSTER_NAME, objects, sizes, _NOTES)


def _cluster(found: description.Cluster, nodes: Mapping[str, NodeUuid]) -> Cluster:
    if not found.nodes:
        raise InputError("the source has no nodes")
    masters = [one.name for one in found.nodes if one.is_master]
    masters += [one.name for one in found.nodes if not one.offline]
    used = {one.template for one in found.instances}
    allowed = set(found.policy["disk-templates"])
    return Cluster(
        uuid=derived_uuid("cluster"),
        name=CLUSTER_NAME,
        master_node=nodes[(masters or [found.nodes[0].name])[0]],
        enabled_disk_templates=tuple(
            name for name in TEMPLATES if name in PLANNERS and name in (used | allowed)
        ),
        vg_name="xenvg",
        file_storage_dir="/srv/ganeti/file-storage",
        shared_file_storage_dir="/srv/ganeti/shared-file-storage",
        ipolicy=_policy(found.policy),
        tags=tuple(found.tags),
    )


def _policy(policy: description.Policy) -> Params:
    return {
        **policy,
        "disk-templates": [one for one in policy["disk-templates"] if one in DISK_TEMPLATES],
    }


def _group(one: description.Group, uuid: GroupUuid, policy: description.Policy) -> NodeGroup:
    return NodeGroup(
        uuid=uuid,
        name=one.name,
        alloc_policy=AllocPolicy(one.alloc_policy),
        ipolicy={} if one.policy == policy else _policy(one.policy),
        tags=one.tags,
    )


def _node(
    number: int,
    one: description.Node,
    nodes: Mapping[str, NodeUuid],
    groups: Mapping[str, GroupUuid],
) -> Node:
    if one.group not in groups:
        raise InputError(f"is in group {one.group!r:.60}, which has no line", f"node {one.name}")
    address = str(IPv4Address(_FIRST_ADDRESS + number))
    return Node(
        uuid=nodes[one.name],
        name=one.name,
        primary_ip=address,
        secondary_ip=address,
        group=groups[one.group],
        certificate=stand_in_certificate(one.name),
        master_candidate=not one.offline,
        offline=one.offline,
        ndparams={"exclusive_storage": True} if one.exclusive_storage else {},
        tags=one.tags,
    )


def _size(one: description.Node) -> NodeSize:
    what = f"node {one.name}"
    return NodeSize(
        memory=whole(one.total_memory, what, "memory"),
        own_memory=whole(one.node_memory, what, "own memory"),
        disk=whole(one.total_disk, what, "disk"),
        cpus=whole(one.total_cpus, what, "processors"),
        own_cpus=whole(one.node_cpus, what, "own processors"),
    )


def _instance(
    cluster: Cluster, one: description.Instance, nodes: Mapping[str, NodeUuid], names: DerivedNames
) -> Instance:
    what = f"instance {one.name}"
    wanted = [one.primary, *([one.secondary] if one.secondary else [])]
    if unknown := [name for name in wanted if name not in nodes]:
        raise InputError(f"is on node {unknown[0]!r:.60}, which has no line", what)
    facts = description.facts(one.template)
    if len(wanted) != facts.nodes_needed:
        raise InputError(
            f"has {len(wanted)} nodes; disk template {one.template} needs {facts.nodes_needed}",
            what,
        )
    memory = whole(one.memory, what, "memory", 1)
    params: Params = {
        "maxmem": memory,
        "minmem": memory,
        "vcpus": whole(one.vcpus, what, "processors", 1),
        "spindle_use": whole(one.spindle_use, what, "spindles", 1),
        "auto_balance": one.auto_balance,
    }
    made = Instance(
        uuid=InstanceUuid(derived_uuid("instance", one.name)),
        name=one.name,
        primary_node=nodes[wanted[0]],
        secondary_nodes=tuple(nodes[name] for name in wanted[1:]),
        os="simulated",
        admin_state=_ADMIN_STATES.get(one.status, AdminState.UP),
        disk_template=one.template,
        beparams=params,
        tags=one.tags,
    )
    return with_disks(cluster, made, _disk_sizes(cluster, one, what), names)


def _disk_sizes(cluster: Cluster, one: description.Instance, what: str) -> list[int]:
    """Return the size of the data: a data file has the space on each node, with a mirror's metadata."""
    size = whole(one.disk, what, "disk")
    planner = PLANNERS.get(one.template)
    if planner is None or not size:
        return []
    empty = Disk(uuid="", size=size, template=one.template)
    return [max(1, size - (planner.space_mib(empty, cluster) - size))]
