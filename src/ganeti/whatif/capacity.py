"""The health of a configuration before and after a simulation: score, N+1, room for more instances."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from ganeti.config import fill
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import disk_usage
from ganeti.model.disk_templates import TEMPLATES
from ganeti.model.names import AdminState
from ganeti.model.objects import Cluster, Instance, Node, NodeGroup, NodeUuid
from ganeti.model.recovery import Recovery
from ganeti.model.stored import Stored
from ganeti.placement import description
from ganeti.placement.capacity import fill as fill_up
from ganeti.placement.capacity import open_nodes
from ganeti.placement.check import cluster_health, group_health
from ganeti.placement.explain import explain
from ganeti.placement.places import Excluded, Rules
from ganeti.placement.protection import hosts_of, losses
from ganeti.placement.redundancy import Violations, is_redundant
from ganeti.placement.score import score
from ganeti.placement.state import State
from ganeti.whatif.source import NodeSize

_STATUS = {
    AdminState.UP: "running",
    AdminState.DOWN: "ADMIN_down",
    AdminState.OFFLINE: "ADMIN_offline",
}
MOST_COUNTED, MOST_CHECKED = 1_000, 100
"""More instances are not counted: "at least"; the second number is that of a cluster with N+1 violations."""
_SCORE_DIGITS = 8


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a cluster at one moment; sizes in MiB, of the nodes in service."""

    nodes: int
    """In service."""
    instances: int
    memory: int
    memory_free: int
    disk: int
    disk_free: int
    score: float
    failing: int
    """Nodes whose memory does not suffice for the failovers to them."""
    unrecoverable: int
    """Nodes whose instances would not fit elsewhere if the node failed."""
    fits: int
    """How many more instances of the policy's standard size fit."""
    fits_more: bool
    """True if counting ended at its limit."""
    limited_by: str
    """The most frequent reason against one more."""
    unprotected: tuple[str, ...]
    """For each node whose protected instances would not fit elsewhere: which."""


def described(
    objects: Iterable[Stored],
    sizes: Mapping[NodeUuid, NodeSize],
    lost: Collection[str] = (),
) -> description.Cluster:
    """Return a configuration in the terms of placement; nodes named in `lost` count as offline."""
    found = list(objects)
    cluster = next(one for one in found if isinstance(one, Cluster))
    snapshot = Snapshot.of(0, cluster, others=[one for one in found if one is not cluster])
    instances = [one for one in found if isinstance(one, Instance)]
    names = {one.uuid: one.name for one in found if isinstance(one, Node)}
    memory = dict.fromkeys(names, 0.0)
    disk = dict.fromkeys(names, 0.0)
    spoken = []
    for one in instances:
        params = fill.filled_beparams(snapshot, one)
        used = float(disk_usage(cluster, one.disks))
        facts = TEMPLATES[one.disk_template]
        if one.admin_state is AdminState.UP:
            memory[one.primary_node] += params["maxmem"]
        for node in one.all_nodes if facts.uses_node_disk else ():
            disk[node] += used
        spoken.append(_instance(one, names, params, used, fill.recovery_of(snapshot, one)))
    groups = [one for one in found if isinstance(one, NodeGroup)]
    return description.Cluster(
        groups=[
            description.Group(
                name=one.name,
                uuid=one.uuid,
                alloc_policy=one.alloc_policy.value,
                tags=one.tags,
                networks=tuple(one.networks),
                policy=fill.filled_ipolicy(cluster, one),
            )
            for one in groups
        ],
        nodes=[
            _node(
                snapshot,
                one,
                sizes[one.uuid],
                (memory[one.uuid], disk[one.uuid]),
                "lost" if one.name in lost else "",
            )
            for one in found
            if isinstance(one, Node)
        ],
        instances=spoken,
        tags=cluster.tags,
        policy=fill.filled_ipolicy(cluster, None),
    )


def _node(
    snapshot: Snapshot, one: Node, size: NodeSize, use: tuple[float, float], lost: str
) -> description.Node:
    memory, disk = use
    why = lost or next((flag for flag in ("offline", "drained") if getattr(one, flag)), "")
    params = fill.filled_ndparams(snapshot, one)
    return description.Node(
        name=one.name,
        group=one.group,
        total_memory=size.memory,
        node_memory=size.own_memory,
        free_memory=max(0.0, size.memory - size.own_memory - memory),
        total_disk=size.disk,
        free_disk=max(0.0, size.disk - disk),
        total_cpus=size.cpus,
        node_cpus=size.own_cpus,
        offline=bool(why) or not one.vm_capable,
        why_offline=why or "not vm_capable",
        is_master=one.uuid == snapshot.cluster.master_node,
        total_spindles=params["spindle_count"],
        exclusive_storage=params["exclusive_storage"],
        tags=one.tags,
        cpu_speed=params["cpu_speed"],
    )


def _instance(
    one: Instance,
    names: Mapping[NodeUuid, str],
    params: Mapping[str, Any],
    used: float,
    recovery: Recovery,
) -> description.Instance:
    is_safe = recovery is Recovery.FAILOVER
    return description.Instance(
        name=one.name,
        memory=params["maxmem"],
        disk=used,
        vcpus=params["vcpus"],
        status=_STATUS[one.admin_state],
        auto_balance=params["auto_balance"],
        primary=names[one.primary_node],
        secondary=names[one.secondary_nodes[0]] if one.secondary_nodes else "",
        template=one.disk_template,
        tags=one.tags,
        spindle_use=params["spindle_use"],
        disks=tuple(float(disk.size) for disk in one.disks),
        nics=len(one.nics),
        networks=tuple(nic.network for nic in one.nics if nic.network),
        protection=params["recovery_priority"] if is_safe else None,
    )


def measured(cluster: description.Cluster) -> Measured:
    """Return the health of a cluster."""
    state = State(cluster, [])
    health = cluster_health([group_health(state, number) for number in range(len(state.groups))])
    std = cluster.policy["std"]
    template = next(iter(cluster.policy["disk-templates"]), "diskless")
    wanted = description.Instance(
        name="new",
        memory=std["memory-size"],
        disk=std["disk-size"],
        vcpus=std["cpu-count"],
        template=template,
        spindle_use=std.get("spindle-use", 1),
        disks=(std["disk-size"],),
    )
    excluded = Excluded(lone_nodes=True, offline=True)
    rules = Rules(excluded=excluded)
    limit = MOST_COUNTED
    if not is_redundant(state, excluded):
        # An allocation must not make it worse; each is then checked alone, which takes longer.
        rules = Rules(excluded=excluded, before=Violations(state.copy(), excluded))
        limit = MOST_CHECKED
    filled = fill_up(state, wanted, rules, limit, open_nodes(state))
    live = [one for one in cluster.nodes if not one.offline]
    return Measured(
        nodes=len(live),
        instances=len(cluster.instances),
        memory=int(sum(one.total_memory for one in live)),
        memory_free=int(sum(one.free_memory for one in live)),
        disk=int(sum(one.total_disk for one in live)),
        disk_free=int(sum(one.free_disk for one in live)),
        score=round(score(state), _SCORE_DIGITS),
        failing=health.failing,
        unrecoverable=health.unrecoverable,
        fits=len(filled.nodes),
        fits_more=len(filled.nodes) >= limit,
        limited_by=_LIMITS[filled.main_failure] if filled.failures else "",
        unprotected=tuple(str(loss) for loss in losses(cluster) if loss.unplaced),
    )


_LIMITS = {
    description.Failure.MEMORY: "memory",
    description.Failure.DISK: "disk",
    description.Failure.CPU: "processors",
    description.Failure.REDUNDANCY: "N+1: some instances could not fail over",
    description.Failure.TAGS: "exclusion tags",
    description.Failure.MIGRATION: "migration tags",
    description.Failure.DISK_COUNT: "number of disks",
    description.Failure.SPINDLES: "spindles",
    description.Failure.INTERNAL: "no possible nodes",
}


def against(cluster: description.Cluster, name: str) -> list[tuple[str, str]]:
    """Return for each node the reason why it cannot run an instance that is down; '' if it could."""
    one = next(instance for instance in cluster.instances if instance.name == name)
    hosts = hosts_of(one.template, one.secondary)
    others = [instance for instance in cluster.instances if instance.name != name]
    rest = msgspec.structs.replace(cluster, instances=others)
    if hosts is None:
        reasons = _reasons(rest, msgspec.structs.replace(one, status="running"))
    else:
        reasons = {node.name: _short(node, one) for node in cluster.nodes}
        reasons |= {
            node.name: "does not have its disks"
            for node in cluster.nodes
            if node.name not in (*hosts, one.primary)
        }
    return [
        (node.name, node.why_offline if node.offline else reasons.get(node.name, ""))
        for node in cluster.nodes
    ]


def _reasons(cluster: description.Cluster, wanted: description.Instance) -> dict[str, str]:
    """Return the hard reasons against nodes; that another node is better is not one."""
    rules = Rules(capacity=False, ignore_soft_errors=True)
    found = explain(State(cluster, []), wanted, rules)
    return {node: why for node, why in found if not why.startswith(_POSSIBLE)}


_POSSIBLE = ("as good as", "score ", "group ")
"""Beginnings of reasons why a possible node was not the best one."""


def _short(node: description.Node, one: description.Instance) -> str:
    missing = one.memory - node.free_memory
    return f"{missing:.0f} MiB of memory short" if missing > 0 else ""
