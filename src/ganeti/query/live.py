"""The present reports of nodes, for the fields that need them.

Concurrent queries share one round of calls: a round serves all queries within `MAX_AGE_S` of its start, if no later
configuration exists and no call has changed anything on a node since. So a query never shows an instance as it was
before the job that has just changed it. At most one round a need runs at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ganeti.base.clock import Clock
from ganeti.base.errors import RpcError, RpcOffline
from ganeti.config.fill import instance_spec
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import storage_units
from ganeti.model.objects import Instance, Node
from ganeti.query.context import LiveData
from ganeti.query.fields.field import NO_DATA, OFFLINE, Missing, Need
from ganeti.rpc.procedures.backups import BACKUP_LIST
from ganeti.rpc.procedures.exports import EXPORT_LIST
from ganeti.rpc.procedures.external import EXT_PROVIDERS
from ganeti.rpc.procedures.figures import FIGURES
from ganeti.rpc.procedures.form import Nothing, Procedure
from ganeti.rpc.procedures.host import NODE_INFO, HypervisorsArgs, NodeInfoArgs
from ganeti.rpc.procedures.instances import INSTANCE_CONSOLE, INSTANCES_INFO, InstanceArgs
from ganeti.rpc.procedures.programs import OS_DIAGNOSE

T = TypeVar("T")
_Ask = Callable[[Snapshot], Awaitable[dict[str, Any]]]

MAX_AGE_S = 1.0
DEADLINE_S = 3.0
"""The time that a query waits for one node."""
SILENT_DEADLINE_S = 1.0
"""The same for a node that did not answer the last time."""
PARALLEL_CALLS = 30


class NodeCaller(Protocol):
    """The part of the RPC client that queries use."""

    async def call(self, node: Node, procedure: Procedure[Any, Any], args: Any) -> Any:
        """Return the result; RpcError."""
        ...


@dataclass(frozen=True)
class _Round:
    position: int
    changes: int
    begun: float
    task: asyncio.Task[dict[str, Any]]


class LiveSource:
    """Queries nodes, and keeps the answers for a moment."""

    def __init__(
        self, rpc: NodeCaller, clock: Clock, changes: Callable[[], int] = lambda: 0
    ) -> None:
        """`changes` counts the calls that have changed something on a node."""
        self._rpc = rpc
        self._clock = clock
        self._changes = changes
        self._rounds: dict[Need, _Round] = {}
        self._silent: set[str] = set()
        self._slots = asyncio.Semaphore(PARALLEL_CALLS)
        self._rounds_of: Mapping[Need, tuple[str, _Ask]] = {
            Need.NODES: ("nodes", self._ask_nodes),
            Need.INSTANCES: ("instances", self._ask_instances),
            Need.EXPORTS: ("exports", self._ask_exports),
            Need.BACKUPS: ("backups", self._ask_backups),
            Need.OPERATING_SYSTEMS: ("systems", self._asking_all(OS_DIAGNOSE)),
            Need.PROVIDERS: ("providers", self._asking_all(EXT_PROVIDERS)),
            Need.FIGURES: ("figures", self._asking_all(FIGURES)),
        }
        """The data that is queried in rounds -> its place in LiveData, and the query."""

    async def gather(
        self, snapshot: Snapshot, needs: Collection[Need], instances: Sequence[Instance] = ()
    ) -> LiveData:
        """Return the needed reports; consoles only of `instances`. Nodes that do not answer have NO_DATA."""
        asked = {
            part: await self._shared(need, snapshot, ask)
            for need, (part, ask) in self._rounds_of.items()
            if need in needs
        }
        if Need.CONSOLES in needs:
            asked["consoles"] = await self._consoles(snapshot, instances)
        return LiveData(**asked)

    async def close(self) -> None:
        """End the calls that are still running."""
        tasks = [one.task for one in self._rounds.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _shared(self, need: Need, snapshot: Snapshot, ask: _Ask) -> Mapping[str, Any]:
        while True:
            last = self._rounds.get(need)
            if last is not None and self._serves(last, snapshot.position):
                return await asyncio.shield(last.task)
            if last is None or last.task.done():
                task = asyncio.create_task(_run(ask(snapshot)), name=f"query {need.value}")
                begun = self._clock.monotonic()
                self._rounds[need] = _Round(snapshot.position, self._changes(), begun, task)
            else:
                await asyncio.wait((last.task,))

    def _serves(self, one: _Round, position: int) -> bool:
        is_young = self._clock.monotonic() - one.begun <= MAX_AGE_S
        failed = one.task.done() and (one.task.cancelled() or one.task.exception() is not None)
        is_known = one.position >= position and one.changes == self._changes()
        return is_known and is_young and not failed

    async def _ask_nodes(self, snapshot: Snapshot) -> dict[str, Any]:
        cluster = snapshot.cluster
        args = NodeInfoArgs(
            hypervisors=list(cluster.enabled_hypervisors), storage=storage_units(cluster)
        )
        return await self._ask_all(snapshot, NODE_INFO, args)

    async def _ask_instances(self, snapshot: Snapshot) -> dict[str, Any]:
        args = HypervisorsArgs(hypervisors=list(snapshot.cluster.enabled_hypervisors))
        answers = await self._ask_all(snapshot, INSTANCES_INFO, args)
        return {
            uuid: found if isinstance(found, Missing) else {one.uuid: one for one in found}
            for uuid, found in answers.items()
        }

    async def _ask_exports(self, snapshot: Snapshot) -> dict[str, Any]:
        nodes = [one for one in snapshot.nodes.values() if not one.offline]
        answers = await asyncio.gather(*(self._ask(one, EXPORT_LIST, Nothing()) for one in nodes))
        return {
            node.uuid: found if isinstance(found, Missing) else found.names
            for node, found in zip(nodes, answers, strict=True)
        }

    async def _ask_backups(self, snapshot: Snapshot) -> dict[str, Any]:
        nodes = [one for one in snapshot.nodes.values() if not one.offline]
        answers = await asyncio.gather(*(self._ask(one, BACKUP_LIST, Nothing()) for one in nodes))
        return {
            node.uuid: found if isinstance(found, Missing) else found.points
            for node, found in zip(nodes, answers, strict=True)
        }

    def _asking_all(self, procedure: Procedure[Nothing, Any]) -> _Ask:
        return lambda snapshot: self._ask_all(snapshot, procedure, Nothing())

    async def _ask_all(
        self, snapshot: Snapshot, procedure: Procedure[Any, Any], args: Any
    ) -> dict[str, Any]:
        nodes = [one for one in snapshot.nodes.values() if not one.offline and one.vm_capable]
        answers = await asyncio.gather(*(self._ask(node, procedure, args) for node in nodes))
        return {node.uuid: answer for node, answer in zip(nodes, answers, strict=True)}

    async def _consoles(
        self, snapshot: Snapshot, instances: Sequence[Instance]
    ) -> Mapping[str, Any]:
        async def ask(instance: Instance) -> Any:
            node = snapshot.nodes.get(instance.primary_node)
            if node is None:
                return NO_DATA
            spec = instance_spec(snapshot, instance)
            args = InstanceArgs(instance=spec)
            return await self._ask(node, INSTANCE_CONSOLE, args)

        answers = await asyncio.gather(*(ask(instance) for instance in instances))
        return {one.uuid: answer for one, answer in zip(instances, answers, strict=True)}

    async def _ask(self, node: Node, procedure: Procedure[Any, Any], args: Any) -> Any:
        """Return a node's answer, or the reason why there is none."""
        if node.offline:
            return OFFLINE
        deadline_s = SILENT_DEADLINE_S if node.uuid in self._silent else DEADLINE_S
        try:
            async with self._slots, asyncio.timeout(deadline_s):
                answer = await self._rpc.call(node, procedure, args)
        except RpcOffline:
            return OFFLINE
        except (RpcError, TimeoutError):
            self._silent.add(node.uuid)
            return NO_DATA
        self._silent.discard(node.uuid)
        return answer


async def _run(work: Awaitable[T]) -> T:
    return await work
