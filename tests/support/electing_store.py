"""A back end that elects by itself, in memory: what the port must fit besides one that asks for votes."""

import asyncio
from collections.abc import AsyncGenerator

from ganeti.base.errors import NotMaster, StoreError
from ganeti.simulation.faulty_store import FaultyStore, MemoryDisk
from ganeti.store.interface import (
    ByteSink,
    Campaign,
    CampaignKind,
    Lease,
    LogEntry,
    Master,
    MemberChange,
    Membership,
    NotYet,
    Position,
    Receipt,
    Role,
    Row,
    StoreStatistics,
    Transaction,
)

ELECTED_AFTER_S = 0.05
PATIENCE_S = 1.0


class Engine:
    """What all candidates share: the state, and whose turn it is."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.stores: list[ElectingStore] = []
        """First who is elected next."""

    @property
    def master(self) -> "ElectingStore | None":
        return next((store for store in self.stores if store.is_master), None)


class ElectingStore:
    """A `StateBackend` that campaigns from its opening on."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.inner = FaultyStore(engine.disk)
        engine.stores.append(self)
        self._electing = asyncio.create_task(self._elect(), name="election")

    @property
    def is_master(self) -> bool:
        return isinstance(self.inner.statistics().role, Master)

    async def _elect(self) -> None:
        """Take the mastership whenever nobody has it and nobody else is before us."""
        while True:
            await asyncio.sleep(ELECTED_AFTER_S)
            if self._engine.master is None and self._engine.stores[0] is self:
                try:
                    await self.inner.campaign(Campaign())
                except (NotMaster, StoreError):
                    continue

    def role_changes(self) -> AsyncGenerator[Role, None]:
        return self.inner.role_changes()

    async def campaign(self, how: Campaign) -> None:
        if self not in self._engine.stores:
            raise NotMaster("the store is closed")
        if how.kind is CampaignKind.FORCE:
            raise NotMaster("there is no force without a quorum: recover the members of the engine")
        master = self._engine.master
        if how.kind is CampaignKind.HAND_OVER and master is not None and master is not self:
            self._engine.stores.remove(self)
            self._engine.stores.insert(0, self)
            await master.step_down("the mastership was handed over")
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE_S
        while not self.is_master:
            if loop.time() > end:
                raise NotYet("another node was elected")
            await asyncio.sleep(ELECTED_AFTER_S)

    async def step_down(self, why: str) -> None:
        self._engine.stores.remove(self)
        self._engine.stores.append(self)
        await self.inner.step_down(why)

    def load(self) -> AsyncGenerator[Position | Row, None]:
        return self.inner.load()

    async def log_after(self, position: Position) -> list[LogEntry]:
        return await self.inner.log_after(position)

    async def commit(self, lease: Lease, txn: Transaction) -> Receipt:
        return await self.inner.commit(lease, txn)

    def post(self, lease: Lease, txn: Transaction) -> asyncio.Future[Position] | None:
        return self.inner.post(lease, txn)

    def submit(self, lease: Lease, txn: Transaction) -> None:
        self.inner.submit(lease, txn)

    async def raise_job_id_ceiling(self, lease: Lease, ceiling: int) -> None:
        await self.inner.raise_job_id_ceiling(lease, ceiling)

    async def members(self) -> Membership:
        return await self.inner.members()

    async def change_members(self, lease: Lease, change: MemberChange) -> Receipt:
        return await self.inner.change_members(lease, change)

    async def backup(self, sink: ByteSink) -> Position:
        return await self.inner.backup(sink)

    @property
    def is_degraded(self) -> bool:
        return self.inner.is_degraded

    def statistics(self) -> StoreStatistics:
        return self.inner.statistics()

    async def close(self) -> None:
        if self in self._engine.stores:
            self._engine.stores.remove(self)
        self._electing.cancel()
        await asyncio.wait((self._electing,))
        await self.inner.close()
