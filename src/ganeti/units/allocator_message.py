"""The allocator's message from the configuration and the reports of nodes (seed 004, S164-S167, X14)."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

from ganeti.config.fill import filled_ipolicy, is_exclusive
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import storage_unit
from ganeti.model.objects import Cluster, NodeGroup
from ganeti.model.params import IPOLICY_DEFAULTS
from ganeti.protocols import iallocator
from ganeti.units.instance_texts import InstanceTexts
from ganeti.units.node_data import NodeReports
from ganeti.units.node_texts import NodeFacts
from ganeti.units.placements import Placement
from ganeti.units.services import Services

Message = dict[str, Any]
"""Its nodes and most of its instances are `msgspec.Raw`."""

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
    known = _Known(snapshot, reports, placements.pending())
    make = partial(_message, known, request, template, services, ignore_policy=ignore_policy)
    if len(snapshot.instances) <= INSTANCES_AT_ONCE:
        return make()
    return await asyncio.to_thread(make)


class _Known(NamedTuple):
    """The inputs of a message; they do not change."""

    snapshot: Snapshot
    reports: NodeReports
    pending: list[Placement]


def _message(
    known: _Known,
    request: Message,
    template: str,
    services: Services,
    *,
    ignore_policy: bool,
) -> Message:
    snapshot = known.snapshot
    texts = services.instance_texts.of(snapshot)
    instances: dict[str, object] = dict(texts.texts)
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
        services.node_texts.of(snapshot, _nodes(known, template, texts)),
        instances,
        request,
    )


def _nodes(known: _Known, template: str, texts: InstanceTexts) -> Iterator[NodeFacts]:
    """Yield every node; one without a report counts as offline."""
    snapshot, reports, _pending = known
    cluster, groups = snapshot.cluster, snapshot.groups
    unit = storage_unit(cluster, template)
    exclusive = {uuid: is_exclusive(cluster, group) for uuid, group in groups.items()}
    for uuid, node in snapshot.nodes.items():
        live = None
        if not node.offline:
            live = reports.live(node, unit, exclusive=exclusive[node.group])
        yield NodeFacts(node, texts.memory[uuid], texts.up_memory[uuid], live)


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
