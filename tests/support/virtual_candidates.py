"""Candidates with the real store and the real changes of roles, in one loop without threads.

Each has `Roles` on a `EmbeddedStore` on SQLite; what a master runs is a set of keys.
"""

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from ganeti.api.luxi_server import Caller, Dispatcher
from ganeti.base.errors import CommitUnknown, NotMaster, StoreError
from ganeti.daemons.roles import RoleCallbacks, Roles
from ganeti.model.objects import NodeUuid
from ganeti.protocols.luxi import Answer, Request
from ganeti.store.embedded import EmbeddedStore
from ganeti.store.interface import Lease, MemberChange, Put, Receipt, Row, Transaction
from ganeti.store.local_log import Options
from ganeti.store.worker import Worker
from tests.support.replicas import Replicas

T = TypeVar("T")

KIND = "instance"
BLOCK = 1000
"""Job ids that a master begins with."""
TICK_S = 0.05
SYNCING, NOT_SYNCING = "PRAGMA synchronous = FULL", "PRAGMA synchronous = OFF"


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
                if (
                    sql == SYNCING
                ):  # nodes die by closing their files, so a sync would only take time
                    sql = NOT_SYNCING
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
        store: EmbeddedStore,
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
        await self._or_lost(self._store.raise_job_id_ceiling(self._lease, ceiling + BLOCK))
        self.is_open = True
        return self

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.is_open = False

    async def add(self, key: str) -> Receipt:
        """Return once it is acknowledged."""
        if not self.is_open:
            raise NotMaster("not any more")
        put = Transaction((Put(KIND, key, b""),))
        receipt = await self._or_lost(self._store.commit(self._lease, put))
        self.keys.add(key)
        return receipt

    async def _or_lost(self, writing: Awaitable[T]) -> T:
        try:
            return await writing
        except (NotMaster, CommitUnknown) as err:
            self._lost(err.message)
            raise

    async def change(self, change: MemberChange) -> None:
        """Return once it counts."""
        if not self.is_open:
            raise NotMaster("not any more")
        await self._store.change_members(self._lease, change)

    def answer_at_once(self, request: Request, caller: Caller) -> Answer | None:
        raise NotImplementedError

    async def answer(self, request: Request, caller: Caller) -> Answer:
        raise NotImplementedError

    def is_abandonable(self, method: str) -> bool:
        raise NotImplementedError


@dataclass
class World:
    """What the candidates of a history share."""

    dice: random.Random
    replicas: Replicas
    candidates: list["Candidate"] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)


class Candidate:
    """One node; it may be killed and started again."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.node = NodeUuid(name)
        self.disk = Disk()
        self.is_candidate = True
        self.roles: Roles | None = None
        self.serving: Dispatcher | None = None

    @property
    def store(self) -> EmbeddedStore:
        return self._world.replicas.stores[self.node]

    async def start(self) -> None:
        self.disk.error = None
        options = Options(connect=self.disk.connect)
        await self._world.replicas.open(self.node, options, is_fenced=False)
        callbacks = RoleCallbacks(
            self._prepare, self._start_master, self._serve_master, self._serve_follower, self._end
        )
        self.roles = Roles(self.node, self.store, self.store, callbacks)
        self.roles.watch()
        await self.roles.resume()

    async def kill(self) -> None:
        """No message leaves it any more, and nothing is written; then everything ends."""
        replicas = self._world.replicas
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
            with contextlib.suppress(NotMaster, StoreError):
                await self.roles.take_over()

    async def force(self) -> None:
        """As `gnt-cluster master-failover --no-voting` does it."""
        if self.roles is not None and self.is_candidate:
            with contextlib.suppress(NotMaster, StoreError):
                await self.roles.force()

    async def demote(self) -> None:
        """As `gnt-node modify -C no` does it: the flag first, then the node's state."""
        if await self._change(is_candidate=False):
            self.is_candidate = False
            await asyncio.sleep(self._world.dice.choice((0, 0.1, 5)))
            await self.kill()
            self._world.replicas.lose_database(self.node)

    async def promote(self) -> None:
        """As `gnt-node modify -C yes` does it: first everything that a candidate has, then the flag."""
        if self.roles is None:
            await self.start()
        self.is_candidate = await self._change(is_candidate=True) or self.is_candidate

    async def retire(self) -> None:
        """As `gnt-node modify -O yes` does it with a node that has died: it votes no more."""
        await self.kill()
        if await self._change(is_candidate=False, is_voter=False):
            self.is_candidate = False

    async def _change(self, *, is_candidate: bool, is_voter: bool = True) -> bool:
        """Have the master change what this node is; whether it surely has."""
        for one in self._world.candidates:
            keys = one.keys()
            if keys is not None and one is not self:
                try:
                    await keys.change(MemberChange(self.node, is_voter, is_candidate))
                except (NotMaster, StoreError):
                    return False
                return True
        return False

    def keys(self) -> Keys | None:
        """What clients of this node talk to, if it calls itself the master."""
        return self.serving if isinstance(self.serving, Keys) else None

    async def _prepare(self) -> None:
        await asyncio.sleep(0)

    def _start_master(self, lease: Lease, lost: Callable[[str], None]) -> Keys:
        return Keys(self.store, lease, lost, self._world.dice.choice((0, 0.01, 0.3, 3)))

    def _serve_master(self, dispatcher: Dispatcher) -> None:
        self.serving = dispatcher

    async def _serve_follower(self) -> None:
        self.serving = None

    def _end(self, why: str) -> None:
        if self.disk.error is None:
            self._world.violations.append(f"the store of {self.node} is lost: {why}")


@contextlib.contextmanager
def stores_on_the_loop(dice: random.Random) -> Iterator[None]:
    """Stores that are made in the block have no threads, and disks of their own slowness."""

    class Slow(WorkerOnLoop):
        takes_s = staticmethod(lambda: dice.choice((0.0, 0.001, 0.01, 0.05)))

    with (
        patch("ganeti.store.local_log.Worker", Slow),
        patch("ganeti.store.group_commit.Worker", Slow),
    ):
        yield
