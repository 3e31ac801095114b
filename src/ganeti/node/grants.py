"""Keeps what this node knows of the grants of protected disks, and refuses calls under older ones (D1, D2, D8).

The record is synced before a disk is opened. When the guest has ended, its generation is over: a start call of that
generation that arrives later is refused. A node that comes back gets the present generations first (D9).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ganeti.base.errors import SplitBrain, StorageError
from ganeti.base.files import write_atomically
from ganeti.model import wire
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.model.objects import Grant, NodeUuid
from ganeti.recovery.grants import (
    CopyRecord,
    GrantRefused,
    Returned,
    barred,
    closed,
    judge_return,
    opened,
)
from ganeti.rpc.calls import Call, Handler, Handlers
from ganeti.rpc.procedures.disks import (
    BLOCKDEV_ASSEMBLE,
    BLOCKDEV_DISCARD,
    BLOCKDEV_OPEN_ALONE,
    BLOCKDEV_REMOVE,
    DISK_GRANTS,
    GrantsArgs,
)
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.instances import INSTANCE_SHUTDOWN, INSTANCE_START
from ganeti.rpc.procedures.migration import (
    MIGRATION_ACCEPT,
    MIGRATION_FINISH_SOURCE,
    MIGRATION_FINISH_TARGET,
    MigrationEnd,
)
from ganeti.rpc.procedures.programs import OS_CREATE, OS_RENAME
from ganeti.rpc.procedures.snapshots import RESTORE_GUEST


class GrantRecords:
    """The records of this node's copies, in one synced file; disks without a grant have none."""

    def __init__(self, path: Path, node: Callable[[], NodeUuid]) -> None:
        self._path, self._node = path, node
        self._lock = asyncio.Lock()

    @property
    def node(self) -> NodeUuid:
        """This node."""
        return self._node()

    async def open(self, disks: Iterable[DiskSpec]) -> None:
        """Record that this node writes the disks; StorageError if their grants are older, or another node's (D2, D8)."""
        await self._update(disks, lambda record, grant: opened(record, grant, self._node()))

    async def accept(self, disks: Iterable[DiskSpec]) -> None:
        """Refuse the guest of a migration under an older grant; it does not write before it is resumed."""

        def same(record: CopyRecord | None, grant: Grant) -> CopyRecord | None:
            if record is not None and record.generation > grant.generation:
                raise GrantRefused(
                    f"generation {grant.generation} is over: this node knows {record.generation}"
                )
            return record

        await self._update(disks, same)

    async def close(self, disks: Iterable[DiskSpec]) -> None:
        """Record that this node writes the disks no more: the generation of its grant is over."""
        await self._update(disks, lambda record, grant: closed(record, grant, self._node()))

    async def get(self, disk: str) -> CopyRecord | None:
        """Return the record of this node's copy of a disk; None if it has none."""
        async with self._lock:
            return (await self._load()).get(disk)

    async def renew(self, disk: str, grant: Grant) -> bool:
        """Record a later grant of the disk that this node writes; False if it is not later, or another node's."""
        async with self._lock:
            old = await self._load()
            record = old.get(disk)
            if grant.writer != self._node() or (
                record is not None and record.generation >= grant.generation
            ):
                return False
            renewed = CopyRecord(grant.generation, grant.current, is_written=True)
            await self._replace(old, {**old, disk: renewed})
            return True

    async def join(self, disk: str, grant: Grant) -> None:
        """Record that this node's copy was synchronised under a grant; SplitBrain if it was written itself (D9)."""
        async with self._lock:
            old = await self._load()
            if judge_return(grant, self._node(), old.get(disk)) is Returned.SPLIT:
                raise SplitBrain(
                    f"the copy of disk {disk} was written apart from the other one, after generation"
                    f" {grant.generation - 1}: both are kept (split brain)"
                )
            joined = CopyRecord(grant.generation, grant.current)
            await self._replace(old, {**old, disk: joined})

    async def learn(self, grants: Mapping[str, Grant]) -> None:
        """Record all present grants of the cluster, and forget disks that do not exist."""
        async with self._lock:
            old = await self._load()
            new = {disk: record for disk, record in old.items() if disk in grants}
            for disk, grant in grants.items():
                if grant.writer != self._node():
                    new[disk] = barred(old.get(disk), grant)
            await self._replace(old, new)

    async def discard(self, disk: DiskSpec) -> None:
        """Record that the data of this node's copy is being replaced: nothing that it was written counts."""
        grant = disk.grant
        if grant is None:
            return
        async with self._lock:
            old = await self._load()
            await self._replace(
                old, {**old, disk.uuid: CopyRecord(grant.generation, grant.current)}
            )

    async def forget(self, disk: str) -> None:
        """Forget a removed disk."""
        async with self._lock:
            old = await self._load()
            await self._replace(old, {one: record for one, record in old.items() if one != disk})

    async def _update(
        self,
        disks: Iterable[DiskSpec],
        change: Callable[[CopyRecord | None, Grant], CopyRecord | None],
    ) -> None:
        granted = [(disk, disk.grant) for disk in disks if disk.grant is not None]
        if not granted:
            return
        async with self._lock:
            old = await self._load()
            new = dict(old)
            for disk, grant in granted:
                try:
                    record = change(old.get(disk.uuid), grant)
                except GrantRefused as err:
                    raise StorageError(
                        f"disk {disk.index} ({disk.uuid}) is not opened: {err}"
                    ) from err
                if record is not None:
                    new[disk.uuid] = record
            await self._replace(old, new)

    async def _replace(self, old: dict[str, CopyRecord], new: dict[str, CopyRecord]) -> None:
        if new != old:
            await self._store(new)

    async def _load(self) -> dict[str, CopyRecord]:
        try:
            content = await asyncio.to_thread(self._path.read_bytes)
        except FileNotFoundError:
            return {}
        except OSError as err:
            raise StorageError(f"cannot read {self._path}: {err}") from err
        return wire.decode(content, dict[str, CopyRecord], what=str(self._path))

    async def _store(self, records: dict[str, CopyRecord]) -> None:
        try:
            await asyncio.to_thread(write_atomically, self._path, wire.encode(records))
        except OSError as err:
            raise StorageError(f"cannot write {self._path}: {err}") from err


def guarded(handlers: Handlers, records: GrantRecords) -> Handlers:
    """Return the same handlers, and those of grants; what opens or closes a protected disk records that."""
    return {
        **{name: _guarded(name, handler, records) for name, handler in handlers.items()},
        DISK_GRANTS.name: _Grants(records).learn,
    }


@dataclass(frozen=True)
class _Grants:
    records: GrantRecords

    async def learn(self, args: GrantsArgs, _call: Call) -> Nothing:
        await self.records.learn(args.grants)
        return Nothing()


def _guarded(name: str, handler: Handler, records: GrantRecords) -> Handler:
    if name not in _GUARDED:
        return handler

    async def answer(args: Any, call: Call) -> Any:
        await _before(name, args, records)
        result = await handler(args, call)
        await _after(name, args, records)
        return result

    return answer


_OPENING = {INSTANCE_START.name, RESTORE_GUEST.name, OS_CREATE.name, OS_RENAME.name}
_FINISHING = {MIGRATION_FINISH_SOURCE.name: True, MIGRATION_FINISH_TARGET.name: False}
_GUARDED = {
    *_OPENING,
    *_FINISHING,
    BLOCKDEV_ASSEMBLE.name,
    BLOCKDEV_DISCARD.name,
    BLOCKDEV_OPEN_ALONE.name,
    BLOCKDEV_REMOVE.name,
    INSTANCE_SHUTDOWN.name,
    MIGRATION_ACCEPT.name,
}


def _resumes(name: str, args: Any) -> bool:
    """Return whether a call ends a migration in such a way that this node has the guest."""
    is_source = _FINISHING.get(name)
    return (
        is_source is not None
        and not MigrationEnd.of(is_source=is_source, success=args.success).removes
    )


def opens(name: str, args: Any) -> Sequence[DiskSpec]:
    """Return the disks that a call opens for writing, as the guest does or for a job."""
    if name in _OPENING or _resumes(name, args):
        return tuple(args.instance.disks)
    is_alone = name == BLOCKDEV_OPEN_ALONE.name
    if is_alone or (name == BLOCKDEV_ASSEMBLE.name and args.role is DiskRole.PRIMARY):
        return (args.disk,)
    return ()


async def _before(name: str, args: Any, records: GrantRecords) -> None:
    await records.open(opens(name, args))
    if name == MIGRATION_ACCEPT.name:
        await records.accept(args.instance.disks)


async def _after(name: str, args: Any, records: GrantRecords) -> None:
    if name == INSTANCE_SHUTDOWN.name or (name in _FINISHING and not _resumes(name, args)):
        await records.close(args.instance.disks)
    elif name == BLOCKDEV_DISCARD.name:
        await records.discard(args.disk)
    elif name == BLOCKDEV_REMOVE.name:
        await records.forget(args.disk.uuid)
