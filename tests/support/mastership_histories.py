"""Random histories of candidates with the real store and the real changes of roles, in virtual time.

Each candidate has `Roles` on a `ReplicatedStore` on SQLite; what a master runs is a set of keys. Clients
write through whoever serves, and remember what was acknowledged. Lines are cut or fall silent, disks are
full or break, nodes die, become candidates and cease to be, and masters change, by one or two wishes.
"""

import asyncio
import contextlib
import itertools
import random
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ganeti.api.luxi_server import Caller, Dispatcher
from ganeti.base.errors import CommitUnknown, NotMaster, Refused, StoreError
from ganeti.daemons.roles import Duties, Roles
from ganeti.model.objects import NodeUuid
from ganeti.protocols.luxi import Answer, Request
from ganeti.store.election import last_accepted
from ganeti.store.interface import Lease, Master, MemberChange, Put, Row, Transaction
from ganeti.store.replicated import ReplicatedStore
from ganeti.store.sqlite import Options
from ganeti.store.worker import Worker
from tests.support.replicas import Replicas
from tests.support.virtual_time import run_virtual

KIND = "instance"
SIZES = (3, 3, 4, 5)
CLIENTS, FAULTS, BLOCK = 3, 8, 1000
KINDS = (
    "cut",
    "cut",
    "hush",
    "kill",
    "move",
    "move",
    "lose",
    "race",
    "full",
    "break",
    "demote",
    "wipe",
)
TICK_S = 0.05


class Violation(AssertionError):
    """A promise that was broken."""


class WorkerOnLoop(Worker):
    """Carries out on the loop what the store's threads would, a little later and in order."""

    takes_s: Callable[[], float] = staticmethod(lambda: 0.0)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._busy_until = 0.0

    def post(self, task: Callable[[], None]) -> None:
        if self._closed:
            raise StoreError(f"{self._name} is closed")
        loop = asyncio.get_running_loop()
        self._busy_until = max(loop.time(), self._busy_until + 1e-6) + self.takes_s()
        loop.call_at(self._busy_until, task)

    async def close(self) -> None:
        self._closed = True
        left_s = self._busy_until - asyncio.get_running_loop().time()
        if left_s >= 0:
            await asyncio.sleep(left_s + TICK_S)


class Disk:
    """What the disk of one node does with what is written."""

    def __init__(self) -> None:
        self.error: int | None = None
        """The error of SQLite that every writing statement has from now on."""

    def connect(self, path: Path) -> sqlite3.Connection:
        disk = self

        class Connection(sqlite3.Connection):
            is_writing = False

            def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
                self.is_writing |= sql == "BEGIN IMMEDIATE"
                if disk.error is not None and self.is_writing and sql != "ROLLBACK":
                    error = sqlite3.OperationalError("injected")
                    error.sqlite_errorcode = disk.error
                    raise error
                return super().execute(sql, *args)

        return sqlite3.connect(path, isolation_level=None, factory=Connection)


class Keys:
    """What a master runs: all keys in memory, and how they are added."""

    def __init__(
        self,
        store: ReplicatedStore,
        lease: Lease,
        lost: Callable[[str], None],
        starts_in_s: float,
    ) -> None:
        self._store, self._lease, self._lost = store, lease, lost
        self._starts_in_s = starts_in_s
        self.keys: set[str] = set()
        self.is_open = False

    async def start(self) -> Dispatcher:
        async with aclosing(self._store.load()) as snapshot:
            async for item in snapshot:
                if isinstance(item, Row) and item.kind == KIND:
                    self.keys.add(item.key)
        await asyncio.sleep(self._starts_in_s)
        ceiling = (await self._store.members()).job_id_ceiling
        await self._or_lost(self._store.raise_ceiling(self._lease, ceiling + BLOCK))
        self.is_open = True
        return self

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.is_open = False

    async def add(self, key: str) -> None:
        """Return once it is acknowledged."""
        if not self.is_open:
            raise NotMaster("not any more")
        put = Transaction((Put(KIND, key, b""),))
        await self._or_lost(self._store.commit(self._lease, put))
        self.keys.add(key)

    async def _or_lost(self, writing: Awaitable[object]) -> None:
        try:
            await writing
        except (NotMaster, CommitUnknown) as err:
            self._lost(err.message)
            raise

    async def change(self, change: MemberChange) -> None:
        """Return once it counts."""
        if not self.is_open:
            raise NotMaster("not any more")
        await self._store.change_members(self._lease, change)

    async def answer(self, request: Request, caller: Caller) -> Answer:
        raise NotImplementedError

    def is_abandonable(self, method: str) -> bool:
        raise NotImplementedError


class Candidate:
    """One node; it may be killed and started again."""

    def __init__(self, history: "History", name: str) -> None:
        self._history = history
        self.node = NodeUuid(name)
        self.disk = Disk()
        self.is_candidate = True
        self.roles: Roles | None = None
        self.serving: Dispatcher | None = None
        self.lost = ""
        """Why its daemon has ended by itself."""

    @property
    def store(self) -> ReplicatedStore:
        return self._history.replicas.stores[self.node]

    async def start(self) -> None:
        self.disk.error, self.lost = None, ""
        await self._history.replicas.open(self.node, Options(connect=self.disk.connect))
        duties = Duties(self._last_master, self._prepare, self._take_office, self._serve, self._end)
        self.roles = Roles(self.node, self.store, duties)
        self.roles.watch()
        await self.roles.resume()

    async def kill(self) -> None:
        """No message leaves it any more, and nothing is written; then everything ends."""
        replicas = self._history.replicas
        replicas.cut_off(self.node)
        self.disk.error = sqlite3.SQLITE_IOERR
        if self.roles is not None:
            await self.roles.close()
        self.roles, self.serving = None, None
        store = replicas.stores.pop(self.node, None)
        if store is not None:
            await store.close()
        replicas.cut.discard(self.node)

    async def take_over(self) -> None:
        if self.roles is not None and self.is_candidate:
            with contextlib.suppress(NotMaster, StoreError, Refused):
                await self.roles.take_over()

    async def demote(self) -> None:
        """As `gnt-node modify -C no` does it: the flag first, then the node's state."""
        if await self._change(is_candidate=False):
            self.is_candidate = False
            await asyncio.sleep(self._history.dice.choice((0, 0.1, 5)))
            await self.kill()
            self.forget()

    def forget(self) -> None:
        """Its database is gone, and not its register."""
        for suffix in ("", "-wal", "-shm"):
            self._history.replicas.path(self.node, suffix).unlink(missing_ok=True)

    async def promote(self) -> None:
        """As `gnt-node modify -C yes` does it: first everything that a candidate has, then the flag."""
        if self.roles is None:
            await self.start()
        self.is_candidate = await self._change(is_candidate=True) or self.is_candidate

    async def _change(self, *, is_candidate: bool) -> bool:
        """Have the master change what this node is; whether it surely has."""
        for one in self._history.candidates:
            keys = one.keys()
            if keys is not None and one is not self:
                try:
                    await keys.change(MemberChange(self.node, True, is_candidate))
                except (NotMaster, StoreError, Refused):
                    return False
                return True
        return False

    def keys(self) -> Keys | None:
        """What clients of this node talk to, if it calls itself the master."""
        return self.serving if isinstance(self.serving, Keys) else None

    async def _last_master(self) -> NodeUuid | None:
        await asyncio.sleep(0)
        register = self._history.replicas.registers[self.node].read()
        return register.accepted.master if register and register.accepted else None

    async def _prepare(self) -> None:
        await asyncio.sleep(0)

    def _take_office(self, lease: Lease, lost: Callable[[str], None]) -> Keys:
        return Keys(self.store, lease, lost, self._history.dice.choice((0, 0.01, 0.3, 3)))

    async def _serve(self, dispatcher: Dispatcher | None) -> None:
        self.serving = dispatcher

    def _end(self, why: str) -> None:
        self.lost = why
        if self.disk.error is None:
            self._history.violations.append(f"the store of {self.node} is lost: {why}")


class History:
    """One history; the seed decides all of it."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.dice = random.Random(seed)
        names = tuple(f"n{number}" for number in range(1, self.dice.choice(SIZES) + 1))
        self.replicas = Replicas(directory, names)
        self.candidates = [Candidate(self, name) for name in names]
        self.acknowledged: set[str] = set()
        self.violations: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """How many keys were acknowledged; Violation."""
        async with self._begun():
            clients = [asyncio.create_task(self._client(number)) for number in range(CLIENTS)]
            for _ in range(FAULTS):
                await asyncio.sleep(self.dice.uniform(0, 4))
                count = self.dice.choice((1, 1, 2))
                struck = self.dice.sample(self.candidates, count)
                await asyncio.gather(*(self._fault(one, alone=count == 1) for one in struck))
            for client in clients:
                client.cancel()
            await asyncio.wait(clients)
            await self._settle()
        return len(self.acknowledged)

    @asynccontextmanager
    async def _begun(self) -> AsyncIterator[None]:
        for one in self.candidates:
            await one.start()
        first = self.candidates[0]
        assert first.roles is not None
        await first.roles.take_over()
        role = first.store.statistics().role
        assert isinstance(role, Master)
        for one in self.candidates[1:]:
            change = MemberChange(one.node, is_voter=True, is_candidate=True)
            await first.store.change_members(role.lease, change)
        try:
            yield
        finally:
            for one in self.candidates:
                await one.kill()
            await self.replicas.close()

    async def _client(self, number: int) -> None:
        for count in itertools.count():
            await asyncio.sleep(self.dice.uniform(0, 2 * TICK_S))
            keys = self.dice.choice(self.candidates).keys()
            if keys is None:
                continue
            key = f"{number}-{count}"
            with contextlib.suppress(NotMaster, StoreError):
                await keys.add(key)
                self.acknowledged.add(key)

    async def _fault(self, one: Candidate, *, alone: bool) -> None:
        other = self.candidates[(self.candidates.index(one) + 1) % len(self.candidates)]
        kind = self.dice.choice(KINDS)
        if kind in ("cut", "hush"):
            (self.replicas.cut_off if kind == "cut" else self.replicas.hush)(one.node)
            if self.dice.random() < 0.6:
                await other.take_over()
            else:
                await asyncio.sleep(self.dice.uniform(0.2, 20))
            self.replicas.mend(one.node)
        elif kind == "full":
            one.disk.error = sqlite3.SQLITE_FULL
            self.replicas.full.add(one.node)
            await asyncio.sleep(self.dice.uniform(0, 15))
            one.disk.error = None
            self.replicas.full.discard(one.node)
        elif kind == "break":
            one.disk.error = sqlite3.SQLITE_IOERR
            await asyncio.sleep(self.dice.uniform(0, 15))
            await one.kill()
            await one.start()
        elif kind == "wipe":
            if alone:
                await self._wipe(one, other)
        elif kind == "demote":
            await one.demote()
            await asyncio.sleep(self.dice.uniform(0, 15))
            await one.promote()
        elif kind == "kill":
            await one.kill()
            await asyncio.sleep(self.dice.uniform(0, 15))
            await one.start()
        elif kind == "move":
            await one.take_over()
        elif kind == "race":
            # A second administrator, while the first one's master begins.
            first = asyncio.create_task(one.take_over())
            await asyncio.sleep(self.dice.uniform(0, 2))
            await asyncio.gather(first, other.take_over())
        elif one.roles is not None:
            await one.store.step_down("its office cannot go on")

    def _has_partner(self, one: Candidate) -> bool:
        """Whether another node surely has all that was acknowledged, and works."""
        found = [register.read() for register in self.replicas.registers.values()]
        accepted = last_accepted([register for register in found if register])
        partners = accepted.sync_set - {one.node} if accepted else frozenset[NodeUuid]()
        return any(other.node in partners and other.roles for other in self.candidates)

    async def _wipe(self, one: Candidate, other: Candidate) -> None:
        """A candidate loses its database; no other fault strikes until it has one again."""
        await one.kill()
        if not self._has_partner(one):
            await one.start()
            return
        had = max(store.statistics().position for store in self.replicas.stores.values())
        one.forget()
        await one.start()
        if self.dice.random() < 0.5:
            await other.take_over()
        await asyncio.sleep(15)
        if not self._serving():
            await other.take_over()
        await self._until(
            lambda: one.store.statistics().position >= had, 60, f"{one.node} has everything again"
        )

    async def _settle(self) -> None:
        """Nothing is broken any more: one master, one history, and all that was acknowledged."""
        self.replicas.mend()
        await self._until(lambda: len(self._serving()) <= 1, 15, "at most one master")
        await asyncio.sleep(10)
        if not self._serving():
            await next(one for one in self.candidates if one.is_candidate).take_over()
        await self._until(lambda: len(self._serving()) == 1, 30, "one master")
        (master,) = self._serving()
        for one in self.candidates:
            await one.promote()
        await self._until(
            lambda: len({one.store.statistics().digest for one in self.candidates}) == 1,
            60,
            "one history",
        )
        if not isinstance(master.store.statistics().role, Master):
            raise Violation(f"{master.node} serves as a master that it is not")
        keys = master.keys()
        assert keys is not None
        if self.violations:
            raise Violation("; ".join(self.violations))
        if lost := self.acknowledged - keys.keys:
            raise Violation(f"acknowledged and lost: {sorted(lost)[:5]}")

    def _serving(self) -> list[Candidate]:
        return [one for one in self.candidates if one.keys() is not None]

    async def _until(self, is_so: Callable[[], bool], limit_s: float, what: str) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        while not is_so():
            if loop.time() > end:
                tails = {one.node: one.store.statistics().position for one in self.candidates}
                roles = {one.node: one.store.statistics().role for one in self.candidates}
                raise Violation(f"not within {limit_s:g} s: {what}; {tails}; {roles}")
            await asyncio.sleep(TICK_S)


def run_history(seed: int) -> int:
    """How many keys were acknowledged; raises where a promise is broken."""
    with (
        tempfile.TemporaryDirectory(prefix="gnt-history-") as directory,
        stores_on_the_loop(random.Random(seed)),
    ):
        return run_virtual(History(seed, Path(directory)).run(), debug=False)


@contextlib.contextmanager
def stores_on_the_loop(dice: random.Random) -> Iterator[None]:
    """Stores that are made in the block have no threads, and disks of their own slowness."""

    class Slow(WorkerOnLoop):
        takes_s = staticmethod(lambda: dice.choice((0.0, 0.001, 0.01, 0.05)))

    with (
        patch("ganeti.store.sqlite.Worker", Slow),
        patch("ganeti.store.group_commit.Worker", Slow),
    ):
        yield
