"""What the writer of a mirrored disk asks of the master, and what it does with the answers (D3-D5).

Once the peer is lost, the kernel lets writes wait (`resource-and-stonith`) while the grant counts the peer's copy as
current, and from the report that this copy may be counted. Otherwise writes continue with one copy.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from ganeti.base.errors import GanetiError, StorageError
from ganeti.model.objects import Grant
from ganeti.model.recovery import DiskRequest, DiskRequestKind
from ganeti.node.grants import GrantRecords
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.disks import COPY_JOINS, DISK_GRANTED, GrantArgs
from ganeti.rpc.procedures.form import Nothing
from ganeti.storage.drbd import commands, status
from ganeti.storage.drbd.driver import Kernel
from ganeti.storage.drbd.status import Resource

log = logging.getLogger(__name__)


class MirroredDisks:
    """The mirrored disks of this node whose copies are counted by grants; an imported one counts once it was closed.

    A call is quick. It returns the requests that the last look has found, and begins another look.
    """

    def __init__(self, records: GrantRecords, kernel: Kernel | None = None) -> None:
        self._records, self._kernel = records, kernel or Kernel()
        self._lock = asyncio.Lock()
        self._found: tuple[DiskRequest, ...] = ()
        self._looking: asyncio.Task[None] | None = None

    def __call__(self, disks: Mapping[str, int]) -> tuple[DiskRequest, ...]:
        found = tuple(one for one in self._found if one.disk in disks)
        if disks and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look(disks), name="look at mirrored disks")
        return found

    async def close(self) -> None:
        """Stop looking."""
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking

    def handlers(self) -> Handlers:
        return {DISK_GRANTED.name: self.granted, COPY_JOINS.name: self.joins}

    async def granted(self, args: GrantArgs, _call: Call) -> Nothing:
        """Record a later grant of this node, then let writes wait for its copies, or continue."""
        async with self._lock:
            if await self._records.renew(args.disk, args.grant):
                self._found = tuple(one for one in self._found if one.disk != args.disk)
                await self._follow(args.disk, args.grant)
        return Nothing()

    async def joins(self, args: GrantArgs, _call: Call) -> Nothing:
        """Record that this node's copy is synchronised under a grant of the peer; StorageError unless it is."""
        async with self._lock:
            one = (await self._resources()).get(args.disk)
            if one is None or one.role == status.PRIMARY or not one.is_mirrored:
                state = one.words if one is not None else "not open"
                raise StorageError(f"the copy of disk {args.disk} is not synchronised ({state})")
            await self._records.join(args.disk, args.grant)
        return Nothing()

    async def _follow(self, disk: str, grant: Grant) -> None:
        one = (await self._resources()).get(disk)
        if one is None or one.minor is None or one.role != status.PRIMARY:
            return
        waits = bool(grant.current - {self._records.node})
        if one.attached:  # the policy belongs to the disk below
            await self._do(disk, commands.fencing(one.minor, waits=waits))
        if one.waits and not waits:
            await self._do(disk, commands.resume(one.minor))

    async def _resources(self) -> dict[str, Resource]:
        if not await asyncio.to_thread(self._kernel.proc.exists):
            return {}
        return await self._kernel.resources()

    async def _do(self, disk: str, words: commands.Words) -> None:
        await self._kernel.do(words, what=f"disk {disk}")

    async def _look(self, disks: Mapping[str, int]) -> None:
        try:
            async with self._lock:
                resources = await self._resources()
                found = [
                    await self._request(disk, resources.get(disk), generation)
                    for disk, generation in disks.items()
                ]
                self._found = tuple(one for one in found if one is not None)
        except (OSError, GanetiError) as err:
            log.warning("looking at mirrored disks: %s", err)

    async def _request(
        self, disk: str, one: Resource | None, generation: int
    ) -> DiskRequest | None:
        """Return the request about a disk; `generation` is that of the state."""
        if one is None or one.minor is None or one.role != status.PRIMARY:
            return None
        record = await self._records.get(disk)
        if record is None or record.generation < generation:
            # The master tells the grant, whatever is asked.
            return DiskRequest(disk, DiskRequestKind.JOIN, record.generation if record else 0)
        is_own = self._records.node in record.current
        others = record.current - {self._records.node}
        if one.is_mirrored and not one.waits:
            is_all = is_own and bool(others)
            return None if is_all else await self._join(disk, one.minor, record.generation)
        kind = _request_kind(one, is_own=is_own, has_others=bool(others))
        return DiskRequest(disk, kind, record.generation) if kind else None

    async def _join(self, disk: str, minor: int, generation: int) -> DiskRequest | None:
        """Report that both copies are the same, if writes certainly wait for the peer's from before the report on (D3)."""
        if not await self._kernel.awaits_disk(minor):
            log.warning("disk %s: a copy counts only with protocol C", disk)
            return None
        await self._do(disk, commands.fencing(minor, waits=True))
        now = (await self._resources()).get(disk)
        is_sure = now is not None and now.is_mirrored and not now.waits
        return DiskRequest(disk, DiskRequestKind.JOIN, generation) if is_sure else None


def _request_kind(one: Resource, *, is_own: bool, has_others: bool) -> DiskRequestKind | None:
    """Return what the writer asks while the copies differ; `is_own`, `has_others`: which of them are current."""
    if one.disk != status.UP_TO_DATE:
        # Without all data here, the peer must not be dropped: writes wait until it is back.
        reads_there = one.settled and one.peer_disk == status.UP_TO_DATE
        if is_own and has_others and reads_there and not one.waits:
            return DiskRequestKind.LEAVE
    elif is_own and not one.has_peer and (has_others or one.waits):
        return DiskRequestKind.DROP
    return DiskRequestKind.SPLIT if one.connection == status.STAND_ALONE else None
