"""The watcher in a simulation: the real round of `ganeti-watcher`, every five minutes while something is wrong."""

from collections.abc import Callable
from typing import Any

from ganeti.base.errors import GanetiError, NotMaster
from ganeti.model import wire
from ganeti.model.names import AdminState
from ganeti.model.opcode_table import AnyOpCode
from ganeti.simulation.cluster import SimulatedCluster
from ganeti.simulation.virtual_time import WALL_START
from ganeti.watcher.master import MasterRound, RoundOptions

EVERY_S = 300.0
CALM_S = 1800.0
"""Rounds end when nothing has been wrong for so long."""


class MasterClient:
    """The part of LUXI that the watcher uses, without a socket."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._memory = ""

    async def call(self, method: str, *args: Any) -> Any:
        """Return the answer of the present master; GanetiError."""
        master = self._cluster.master
        if master is None:
            raise NotMaster("the cluster has no master now")
        if method == "Query":
            return (await master.queries.query(args[0], args[1], args[2])).to_wire()
        if method == "QueryJobs":
            views = (master.queue.view(number) for number in args[0])
            return [
                None if view is None else [view.status.value, [op.result for op in view.ops]]
                for view in views
            ]
        if method == "SubmitJob":
            ops = [wire.convert(op, AnyOpCode) for op in args[0]]
            return await master.queue.submit(ops)
        if method == "SetWatcherMemory":
            self._memory = str(args[0])
        return self._memory if method == "QueryWatcherMemory" else [0, 0]


class Watcher:
    """Rounds of the watcher, until it is cancelled."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._wrong_at = -CALM_S

    async def run(self) -> None:
        """Begin a round every five minutes, unless all has been well for a while."""
        client = MasterClient(self._cluster)
        while True:
            await self._cluster.run_for(EVERY_S)
            now = self._cluster.now
            if self._is_wrong():
                self._wrong_at = now
            if now - self._wrong_at >= CALM_S:
                continue
            options = RoundOptions(verify_disks=self._has_mirrors())
            clock: Callable[[], float] = lambda: WALL_START + self._cluster.now  # noqa: E731
            try:
                await MasterRound(client, _ignored, options, clock).run()
            except GanetiError:
                continue  # the next round tries again

    def _is_wrong(self) -> bool:
        """Return whether a node is down, or an instance that should run does not."""
        if self._cluster.master is None:
            return True
        snapshot = self._cluster.snapshot
        online = [one for one in snapshot.nodes.values() if not one.offline]
        if any(self._cluster.nodes[one.name].is_off for one in online):
            return True
        running = {uuid for node in self._cluster.nodes.values() for uuid in node.guests}
        return any(
            one.admin_state is AdminState.UP and one.uuid not in running
            for one in snapshot.instances.values()
        )

    def _has_mirrors(self) -> bool:
        snapshot = self._cluster.snapshot
        return any(one.secondary_nodes for one in snapshot.instances.values())


def _ignored(_text: str) -> None:
    """Messages of the watcher are not part of a report."""
