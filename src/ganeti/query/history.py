"""The history of figures: each node keeps its own part, and the parts are joined by time.

A guest that has moved has a part on each of its former nodes. So a long range asks all nodes of its group, and a short
one, as of a chart that is updated every few seconds, only the nodes that the instance has now.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ganeti.base.clock import Clock
from ganeti.base.errors import InputError, RpcError, RpcOffline
from ganeti.config.resolve import resolve_instance, resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.model.figures import FIGURES, STEPS, Range, Ring, Values, ring_of
from ganeti.model.objects import Instance, Node
from ganeti.query.live import PARALLEL_CALLS, NodeCaller
from ganeti.rpc.procedures.figures import HISTORY, HistoryArgs, HistoryPart

DEFAULT_S = 3600
RECENT_S = 600
"""Ranges that begin longer ago ask former nodes, too."""
DEADLINE_S = 5.0
"""The time that a request waits for one node."""
KINDS = ("instance", "node")


class HistorySource:
    """Asks the nodes that may have a part of a history."""

    def __init__(self, rpc: NodeCaller, clock: Clock) -> None:
        self._rpc, self._clock = rpc, clock
        self._slots = asyncio.Semaphore(PARALLEL_CALLS)

    async def history(
        self, snapshot: Snapshot, kind: str, name: str, wanted: Range
    ) -> dict[str, Any]:
        """Return the steps of a range; PrereqError for an unknown object, InputError.

        The default is the last hour, in the finest resolution that goes back to its beginning.
        """
        now, step = self._clock.time(), wanted.step
        end = now if wanted.end is None else min(wanted.end, now)
        start = end - DEFAULT_S if wanted.start is None else wanted.start
        if step is not None and step not in STEPS:
            raise InputError(f"must be one of {', '.join(map(str, STEPS))}", "step")
        ring = ring_of(start, now, step)
        start = max(start, now - ring.lasts_s)
        uuid, nodes = _of(snapshot, kind, name, is_recent=now - start <= RECENT_S)
        args = HistoryArgs(uuid=uuid, start=start, end=end, step=ring.step)
        parts = await asyncio.gather(*(self._part(node, args) for node in nodes))
        silent = [node.name for node, part in zip(nodes, parts, strict=True) if part is None]
        known = [_checked(part, args, ring) for part in parts if part is not None]
        return {"step": ring.step, "silent": silent, **joined(known)}

    async def _part(self, node: Node, args: HistoryArgs) -> HistoryPart | None:
        """Return what a node has; None if it does not answer."""
        try:
            async with self._slots, asyncio.timeout(DEADLINE_S):
                part: HistoryPart = await self._rpc.call(node, HISTORY, args)
        except RpcOffline:
            return HistoryPart()
        except (RpcError, TimeoutError):
            return None
        return part


def _of(snapshot: Snapshot, kind: str, name: str, *, is_recent: bool) -> tuple[str, list[Node]]:
    """Return the UUID for the nodes, and the nodes to ask, the primary node first."""
    if kind not in KINDS:
        raise InputError("must be instance or node", "kind")
    if kind == "node":
        return "", _online([resolve_node(snapshot, name)])
    instance = resolve_instance(snapshot, name)
    nodes = [snapshot.nodes[uuid] for uuid in instance.all_nodes]
    if not is_recent:
        nodes += _others(snapshot, instance)
    return instance.uuid, _online(nodes)


def _others(snapshot: Snapshot, instance: Instance) -> Iterator[Node]:
    """Return the other nodes of the instance's group."""
    group = snapshot.nodes[instance.primary_node].group
    for uuid, node in snapshot.nodes.items():
        if node.group == group and uuid not in instance.all_nodes:
            yield node


def _online(nodes: Iterable[Node]) -> list[Node]:
    return [node for node in nodes if not node.offline and node.vm_capable]


def _checked(part: HistoryPart, args: HistoryArgs, ring: Ring) -> dict[int, Values]:
    """Return the rows that can be true, of at most one turn of the ring (A32)."""
    pairs = zip(part.times[: ring.slots], part.rows[: ring.slots], strict=False)
    return {
        time: row
        for time, row in pairs
        if time % ring.step == 0 and args.start <= time <= args.end and len(row) == len(FIGURES)
    }


def joined(parts: Sequence[dict[int, Values]]) -> dict[str, Any]:
    """Return times and a list of values for each figure; of several nodes the first one that knows a step counts."""
    together: dict[int, Values] = {}
    for part in reversed(parts):
        together |= part
    times = sorted(together)
    rows = [together[time] for time in times]
    return {
        "times": times,
        "figures": {
            one.name: [_rounded(row[index], one.digits) for row in rows]
            for index, one in enumerate(FIGURES)
        },
    }


def _rounded(value: float | None, digits: int) -> float | int | None:
    if value is None:
        return None
    return round(value, digits) if digits else round(value)
