"""A back end of the state in the memory of this process: how little a back end without servers needs."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from pathlib import Path

from ganeti.base.paths import Paths
from ganeti.simulation.faulty_store import FaultyStore, MemoryDisk
from ganeti.store.backend import PresentState, Restoration, StateRestorer
from ganeti.store.backends import BackEnd
from ganeti.store.fence import RegisterFence
from ganeti.store.interface import Identity, Membership, Put, Row, Transaction
from ganeti.store.ports import OpenedState, Ports
from ganeti.store.register import RegisterFile
from ganeti.store.restoring import register_restored
from ganeti.store.settings import StateSettings


class MemoryRestorer:
    """The `StateRestorer` of one disk."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        yield

    async def present_state(self) -> PresentState:
        return PresentState(self._disk.position, self._disk.epoch)

    async def rows(self) -> AsyncGenerator[Row, None]:
        for (kind, key), value in sorted(self._disk.rows.items()):
            yield Row(kind, key, value)

    async def replace(self, plan: Restoration, rows: Iterable[Row]) -> str:
        disk, epoch = self._disk, plan.position.epoch
        disk.rows.clear()
        disk.write(epoch, Transaction(tuple(Put(row.kind, row.key, row.value) for row in rows)))
        disk.epoch = epoch
        ceiling, voters = plan.job_id_ceiling, plan.voters
        register_restored(disk.register, disk.identity, epoch, ceiling, voters)
        return ""


class MemoryBackEnd(BackEnd):
    """The state of each node is on a disk of its own."""

    def __init__(self) -> None:
        self.disks: dict[Path, MemoryDisk] = {}

    def disk(self, paths: Paths, identity: Identity) -> MemoryDisk:
        """Return the disk of a node."""
        register = RegisterFile(paths.register)
        return self.disks.setdefault(paths.root, MemoryDisk(identity, register=register))

    async def open(self, paths: Paths, identity: Identity, ports: Ports) -> OpenedState:
        store = FaultyStore(self.disk(paths, identity))

        async def counted() -> Membership:
            return await store.members()

        fence = RegisterFence(
            identity,
            ports.voters,
            counted,
            holds=lambda epoch: store.statistics().position.epoch <= epoch,
        )
        return OpenedState(store, fence, {})

    def restorer(self, paths: Paths, identity: Identity, settings: StateSettings) -> StateRestorer:
        del settings
        return MemoryRestorer(self.disk(paths, identity))


BACK_END = MemoryBackEnd()
