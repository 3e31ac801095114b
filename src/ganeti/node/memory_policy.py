"""Keeps memory of a node free by taking some from its guests (`memory_goal`), and gives it back.

The goal and the guests' minimums are ssconf values, so the node needs no master for it. The decisions are in
`memory_shares`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping

from ganeti.base.errors import GanetiError
from ganeti.base.paths import Paths
from ganeti.hypervisor.abilities import SharesMemory
from ganeti.hypervisor.interface import Hypervisor
from ganeti.node.instance_locks import InstanceLocks
from ganeti.node.memory_shares import Share, decide
from ganeti.ssconf import SimpleStore

LOOK_EVERY_S = 10.0

log = logging.getLogger(__name__)


class MemoryPolicy:
    """Looks at the node's free memory for as long as `run` runs."""

    def __init__(
        self,
        paths: Paths,
        hypervisors: Mapping[str, Hypervisor],
        locks: InstanceLocks,
        *,
        node_name: Callable[[], str],
        free_mib: Callable[[], int],
    ) -> None:
        self._paths, self._hypervisors, self._locks = paths, hypervisors, locks
        self._node_name, self._free_mib = node_name, free_mib
        self._last_failure = ""

    async def run(self) -> None:
        """Take memory and give it back until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            failure = ""
            try:
                await self.step()
            except (OSError, ValueError, GanetiError) as err:
                failure = str(err)
            if failure and failure != self._last_failure:
                log.warning("keeping memory free: %s", failure)
            self._last_failure = failure

    async def step(self) -> None:
        """Look once, and change guests."""
        goal, minimums = self._settings()
        for able in self._able():
            amounts = {one.uuid: one for one in await able.amounts(everyone=goal > 0)}
            shares = [
                Share(
                    uuid=one.uuid,
                    memory=one.memory,
                    least=minimums.get(one.uuid, one.memory),
                    before=one.before,
                    used=one.used,
                )
                for one in amounts.values()
            ]
            for uuid, memory in decide(self._free_mib(), goal, shares).items():
                await self._change(able, amounts[uuid].name, uuid, memory, goal)

    async def _change(
        self, able: SharesMemory, name: str, uuid: str, memory: int, goal: int
    ) -> None:
        if name in self._locks.statistics():
            return  # a call changes the guest now
        async with self._locks.of(name):
            log.info("memory of %s: %d MiB, for the goal of %d MiB", name, memory, goal)
            try:
                await able.set_share(uuid, memory, goal)
            except GanetiError as err:
                log.warning("changing the memory of %s: %s", name, err)

    def _settings(self) -> tuple[int, dict[str, int]]:
        """Return the node's goal, and the minimum of each guest; none before the node has a set."""
        store = SimpleStore(self._paths)
        try:
            goals, minimums = store.pairs("memory_goals"), store.pairs("memory_minimums")
        except GanetiError:
            return 0, {}
        return (
            int(goals.get(self._node_name(), 0)),
            {uuid: int(mib) for uuid, mib in minimums.items()},
        )

    def _able(self) -> Iterator[SharesMemory]:
        for hypervisor in self._hypervisors.values():
            if (able := hypervisor.options.shares) is not None:
                yield able
