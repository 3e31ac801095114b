"""The allocator's message from the configuration and the reports of nodes (seed 004, S164-S167, X14)."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from ganeti.base.errors import RpcError
from ganeti.base.kept_results import KeptResults
from ganeti.config.fill import filled_ipolicy, filled_ndparams, is_exclusive
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import storage_unit
from ganeti.model import wire
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.names import AdminState
from ganeti.model.objects import Cluster, Instance, Node, NodeGroup
from ganeti.model.params import IPOLICY_DEFAULTS
from ganeti.protocols import iallocator
from ganeti.rpc.procedures.host import NodeInfo
from ganeti.units.demand import Demand
from ganeti.units.node_choice import minus_reserved
from ganeti.units.node_data import NodeReports
from ganeti.units.placements import Placement
from ganeti.units.services import InstanceText, Services

Message = dict[str, Any]
"""Of its instances most are `msgspec.Raw`."""

INSTANCES_AT_ONCE = 500
"""Messages about more instances than this are made in a thread, so that the event loop is not blocked."""


class Asking(Protocol):
    """The part of a unit's context that a message needs."""

    @property
    def services(self) -> Services: ...
    @property
    def snapshot(self) -> Snapshot: ...


async def cluster_message(
    ctx: Asking,
    request: Message,
    *,
    template: str,
    ignore_policy: bool = False,
    fresh: bool = True,
) -> Message:
    """Return the whole message about a request; disk space is that of `template`'s storage.

    With `fresh` the nodes are queried now; otherwise their reports may be some seconds old. Resources that jobs took
    since then are subtracted.
    """
    services = ctx.services
    reports = await services.node_data.reports(ctx.services, ctx.snapshot, fresh=fresh)
    placements = services.placements
    snapshot = ctx.snapshot
    known = _Known(snapshot, reports, placements.since(reports.mark), placements.pending())
    make = partial(_message, known, request, template, ignore_policy=ignore_policy)
    if len(snapshot.instances) <= INSTANCES_AT_ONCE:
        return make(services.instance_messages)
    return await asyncio.to_thread(make, services.instance_messages)


class _Known(NamedTuple):
    """The inputs of a message; they do not change."""

    snapshot: Snapshot
    reports: NodeReports
    taken: list[Placement]
    """Changes that the node reports may not include yet."""
    pending: list[Placement]


def _message(
    known: _Known,
    request: Message,
    template: str,
    kept: KeptResults[Instance, InstanceText],
    *,
    ignore_policy: bool,
) -> Message:
    snapshot = known.snapshot
    by_name = {one.name: one for one in snapshot.instances.values()}
    texts = kept.of(by_name, lambda _name, one: _instance(snapshot, one), snapshot.cluster)
    instances: dict[str, object] = {name: one.text for name, one in texts.items()}
    for placement in known.pending:
        instances.setdefault(placement.name, placement.message)
    cluster = snapshot.cluster
    return iallocator.message(
        {
            "cluster_name": cluster.name,
            "cluster_tags": list(cluster.tags),
            "enabled_hypervisors": list(cluster.enabled_hypervisors),
            "ipolicy": filled_ipolicy(cluster, None),
        },
        {
            group.uuid: _group(cluster, group, ignore_policy=ignore_policy)
            for group in snapshot.groups.values()
        },
        _nodes(known, template, texts),
        instances,
        request,
    )


def _nodes(known: _Known, template: str, texts: Mapping[str, InstanceText]) -> dict[str, Message]:
    """Return every node; a node without a report counts as offline."""
    (snapshot, reports, taken, _pending), nodes = known, {}
    unit = storage_unit(snapshot.cluster, template)
    memory, of_running = Counter[str](), Counter[str]()
    for instance in snapshot.instances.values():
        text = texts[instance.name]
        memory[instance.primary_node] += text.memory
        of_running[instance.primary_node] += text.memory if text.is_up else 0
    for node in snapshot.nodes.values():
        answer = reports.answers.get(node.uuid)
        if node.offline or answer is None or isinstance(answer, RpcError):
            live: Message = {"offline": True}
        else:
            info = minus_reserved(answer, reports.snapshot, node, taken)
            exclusive = is_exclusive(snapshot.cluster, snapshot.groups[node.group])
            live = _live(info, unit, exclusive=exclusive)
        sums = {"i_pri_memory": memory[node.uuid], "i_pri_up_memory": of_running[node.uuid]}
        nodes[node.name] = {**_node(snapshot, node), **sums, **live}
    return nodes


def _group(cluster: Cluster, group: NodeGroup, *, ignore_policy: bool) -> Message:
    ipolicy = filled_ipolicy(cluster, group)
    if ignore_policy:
        ipolicy = {**ipolicy, "minmax": IPOLICY_DEFAULTS["minmax"]}
    return {
        "name": group.name,
        "alloc_policy": group.alloc_policy,
        "networks": list(group.networks),
        "ipolicy": ipolicy,
        "tags": list(group.tags),
    }


def _instance(snapshot: Snapshot, instance: Instance) -> InstanceText:
    is_up = instance.admin_state is AdminState.UP
    demand = Demand.of(snapshot.cluster, instance)
    message = {
        **demand.message(),
        "admin_state": instance.admin_state,
        "admin_state_source": instance.admin_state_source,
        "should_run": is_up,
        "nodes": [snapshot.nodes[uuid].name for uuid in instance.all_nodes],
    }
    return InstanceText(msgspec.Raw(wire.encode(message)), demand.memory, is_up)


def _node(snapshot: Snapshot, node: Node) -> dict[str, Any]:
    """Return one node's configuration in the allocator's form (S167, X14)."""
    ndparams = filled_ndparams(snapshot, node)
    return {
        "tags": list(node.tags),
        "primary_ip": node.primary_ip,
        "secondary_ip": node.secondary_ip,
        "offline": node.offline,
        "drained": node.drained,
        "master_candidate": node.master_candidate,
        "master_capable": node.master_capable,
        "vm_capable": node.vm_capable,
        "group": node.group,
        "ndparams": {
            key: ndparams[key] for key in ("spindle_count", "exclusive_storage", "oob_program")
        },
        "hv_state": {},
        "disk_state": {},
    }


def _live(info: NodeInfo, unit: StorageUnit | None, *, exclusive: bool) -> dict[str, Any]:
    """Return the live values of a node in the message; only nodes that answered have them."""
    space = next((space for space in info.storage if space.unit == unit), None)
    return {
        "total_memory": info.memory_total,
        "reserved_memory": info.memory_node,
        "free_memory": info.memory_free,
        "total_disk": space.total if space else 0,
        "free_disk": space.free if space else 0,
        "total_spindles": space.devices if space and exclusive else 0,
        "free_spindles": space.free_devices if space and exclusive else 0,
        "total_cpus": info.cpu_total,
        "reserved_cpus": info.cpu_node,
    }
