"""Random histories of candidates with the real store and the real changes of roles, in virtual time.

Clients write through whoever serves, and remember what was acknowledged. Nodes, single lines and single
directions are cut or fall silent, disks are full, break or are lost, nodes die, become candidates and cease
to be, and masters change, by one or two requests at a time. In some histories masters are forced: what was
acknowledged before, or was said to be degraded, may be lost then, and nothing else.
"""

import asyncio
import contextlib
import itertools
import random
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from ganeti.base.errors import NotMaster, StoreError
from ganeti.model.objects import NodeUuid
from ganeti.store.election import last_accepted
from ganeti.store.interface import Master, MemberChange, Receipt
from tests.support.replicas import Replicas
from tests.support.virtual_candidates import TICK_S, Candidate, World, stores_on_the_loop
from tests.support.virtual_time import run_virtual

SIZES = (3, 3, 4, 5)
CLIENTS, FAULTS = 3, 8
FORCED = 0.2
"""The part of the histories in which an administrator forces masters."""


class Violation(AssertionError):
    """A promise that was broken."""


class History:
    """One history; the seed decides all of it."""

    def __init__(self, seed: int, directory: Path) -> None:
        self._dice = dice = random.Random(seed)
        names = tuple(f"n{number}" for number in range(1, dice.choice(SIZES) + 1))
        self._replicas = Replicas(directory, names)
        self._world = World(dice, self._replicas)
        self._candidates = [Candidate(self._world, name) for name in names]
        self._world.candidates.extend(self._candidates)
        self._acknowledged: dict[str, Receipt] = {}
        self._uses_force = dice.random() < FORCED
        self._forced_epoch = 0

    async def run(self) -> int:
        """How many keys were acknowledged; Violation."""
        async with self._begun():
            clients = [asyncio.create_task(self._client(number)) for number in range(CLIENTS)]
            for _ in range(FAULTS):
                await asyncio.sleep(self._dice.uniform(0, 4))
                await self._strike()
            for client in clients:
                client.cancel()
            await asyncio.wait(clients)
            await self._settle()
        return len(self._acknowledged)

    @asynccontextmanager
    async def _begun(self) -> AsyncIterator[None]:
        for one in self._candidates:
            await one.start()
        first = self._candidates[0]
        assert first.roles is not None
        await first.roles.take_over()
        role = first.store.statistics().role
        assert isinstance(role, Master)
        for one in self._candidates[1:]:
            change = MemberChange(one.node, is_voter=True, is_candidate=True)
            await first.store.change_members(role.lease, change)
        try:
            yield
        finally:
            for one in self._candidates:
                await one.kill()
            await self._replicas.close()

    async def _client(self, number: int) -> None:
        for count in itertools.count():
            await asyncio.sleep(self._dice.uniform(0, 2 * TICK_S))
            keys = self._dice.choice(self._candidates).keys()
            if keys is None:
                continue
            key = f"{number}-{count}"
            with contextlib.suppress(NotMaster, StoreError):
                self._acknowledged[key] = await keys.add(key)

    async def _strike(self) -> None:
        """One fault, or two at once on different nodes; never a lost disk beside another fault."""
        struck = self._dice.sample(self._candidates, self._dice.choice((1, 1, 2)))
        faults = [self._cut, self._cut, self._hush, self._kill, self._move, self._move, self._lose,
                  self._race, self._fill, self._break, self._demote, self._retire,
                  self._cut_link, self._cut_link, self._cut_way]  # fmt: skip
        if self._uses_force:
            faults += [self._force] * 4
        elif len(struck) == 1:
            faults.append(self._wipe)
        await asyncio.gather(*(self._dice.choice(faults)(one) for one in struck))

    def _other(self, one: Candidate) -> Candidate:
        return self._candidates[(self._candidates.index(one) + 1) % len(self._candidates)]

    async def _some_time(self, longest_s: float = 15) -> None:
        await asyncio.sleep(self._dice.uniform(0, longest_s))

    async def _cut(self, one: Candidate) -> None:
        self._replicas.cut_off(one.node)
        await self._go_on_without(one)

    async def _hush(self, one: Candidate) -> None:
        self._replicas.hush(one.node)
        await self._go_on_without(one)

    async def _cut_link(self, one: Candidate) -> None:
        """Two nodes do not reach each other; all others reach both."""
        self._replicas.cut_link(one.node, self._other(one).node)
        await self._go_on_without(one)

    async def _cut_way(self, one: Candidate) -> None:
        """One node does not reach another, which reaches it."""
        ends = [one.node, self._other(one).node]
        self._dice.shuffle(ends)
        self._replicas.cut_direction(*ends)
        await self._go_on_without(one)

    async def _force(self, one: Candidate) -> None:
        """An administrator cannot wait; now and then some others are cut off from that node."""
        for other in self._candidates:
            if other is not one and self._dice.random() < 0.6:
                self._replicas.cut_link(one.node, other.node)
        await one.force()
        found = [register.read() for register in self._replicas.registers.values()]
        promised = max(register.promised.epoch for register in found if register)
        self._forced_epoch = max(self._forced_epoch, promised)
        await self._some_time()
        self._replicas.repair(one.node)

    async def _go_on_without(self, one: Candidate) -> None:
        if self._dice.random() < 0.6:
            await self._other(one).take_over()
        else:
            await self._some_time(20)
        self._replicas.repair(one.node)

    async def _kill(self, one: Candidate) -> None:
        await one.kill()
        await self._some_time()
        await one.start()

    async def _fill(self, one: Candidate) -> None:
        one.disk.error = sqlite3.SQLITE_FULL
        self._replicas.full.add(one.node)
        await self._some_time()
        one.disk.error = None
        self._replicas.full.discard(one.node)

    async def _break(self, one: Candidate) -> None:
        one.disk.error = sqlite3.SQLITE_IOERR
        await self._some_time()
        await one.kill()
        await one.start()

    async def _demote(self, one: Candidate) -> None:
        await one.demote()
        await self._some_time()
        await one.promote()

    async def _retire(self, one: Candidate) -> None:
        await one.retire()
        await self._some_time()
        await one.promote()

    async def _move(self, one: Candidate) -> None:
        await one.take_over()

    async def _race(self, one: Candidate) -> None:
        """A second administrator, while the first one's master begins."""
        first = asyncio.create_task(one.take_over())
        await self._some_time(2)
        await asyncio.gather(first, self._other(one).take_over())

    async def _lose(self, one: Candidate) -> None:
        if one.roles is not None:
            await one.store.step_down("its services cannot go on")

    async def _wipe(self, one: Candidate) -> None:
        """A candidate loses its database; no other fault strikes until it has one again."""
        await one.kill()
        if not self._has_partner(one):
            await one.start()
            return
        had = max(store.statistics().position for store in self._replicas.stores.values())
        self._replicas.lose_database(one.node)
        await one.start()
        if self._dice.random() < 0.5:
            await self._other(one).take_over()
        await asyncio.sleep(15)
        if not self._serving():
            await self._other(one).take_over()
        # An earlier demotion of it, of which nobody heard that it was written, may count.
        await one.promote()
        await self._until(
            lambda: one.store.statistics().position >= had, 60, f"{one.node} has everything again"
        )

    def _has_partner(self, one: Candidate) -> bool:
        """Whether another node surely has all that was acknowledged, and works."""
        found = [register.read() for register in self._replicas.registers.values()]
        accepted = last_accepted([register for register in found if register])
        partners = accepted.sync_set - {one.node} if accepted else frozenset[NodeUuid]()
        return any(other.node in partners and other.roles for other in self._candidates)

    async def _settle(self) -> None:
        """Nothing is broken any more: one master, one history, and all that was acknowledged."""
        self._replicas.repair()
        await self._until(lambda: len(self._serving()) <= 1, 15, "at most one master")
        await asyncio.sleep(10)
        for one in self._candidates:
            # After force some may have what never counted: they say so, and follow another one.
            if not self._serving() and one.is_candidate:
                await one.take_over()
        await self._until(lambda: len(self._serving()) == 1, 30, "one master")
        (master,) = self._serving()
        for one in self._candidates:
            await one.promote()
        await self._until(
            lambda: len({one.store.statistics().digest for one in self._candidates}) == 1,
            60,
            "one history",
        )
        if not isinstance(master.store.statistics().role, Master):
            raise Violation(f"{master.node} serves as a master that it is not")
        keys = master.keys()
        assert keys is not None
        if self._world.violations:
            raise Violation("; ".join(self._world.violations))
        if lost := self._promised() - keys.keys:
            raise Violation(f"acknowledged and lost: {sorted(lost)[:5]}")

    def _promised(self) -> set[str]:
        """Keys that must not be lost: all, or those of the last force on that were not degraded."""
        return {
            key
            for key, receipt in self._acknowledged.items()
            if receipt.position.epoch >= self._forced_epoch
            and not (receipt.degraded and self._forced_epoch)
        }

    def _serving(self) -> list[Candidate]:
        return [one for one in self._candidates if one.keys() is not None]

    async def _until(self, is_so: Callable[[], bool], limit_s: float, what: str) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        while not is_so():
            if loop.time() > end:
                tails = {one.node: one.store.statistics().position for one in self._candidates}
                roles = {one.node: one.store.statistics().role for one in self._candidates}
                raise Violation(f"not within {limit_s:g} s: {what}; {tails}; {roles}")
            await asyncio.sleep(TICK_S)


def run_history(seed: int) -> int:
    """How many keys were acknowledged; raises where a promise is broken."""
    with (
        tempfile.TemporaryDirectory(prefix="gnt-history-") as directory,
        stores_on_the_loop(random.Random(seed)),
    ):
        return run_virtual(History(seed, Path(directory)).run(), debug=False)
