"""Disks that are mirrored over the network by DRBD 8.4: template `drbd`, over a volume for data and one for metadata.

The resource in the kernel has the UUID of the disk as its name, so a minor identifies its disk; a resource that
upstream opened keeps upstream's name until it is closed. A node is promoted only if its data is known to be the
newest, or it reads missing data from its peer (G13): after a handshake; without one if the peer is marked offline, or
if the master has compared both copies (`open_alone`). Diverged copies are unchanged until an administrator chooses
one (`discard`).
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace

from ganeti.base.errors import HostError, StorageError
from ganeti.base.paths import Paths
from ganeti.base.process import Completed, Run, run
from ganeti.model.disk_templates import (
    DRBD,
    DRBD_HELPERS_OFF,
    DiskTemplate,
    original_resource,
)
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.rpc.procedures.disks import MirroredDevice, SyncStatus
from ganeti.storage.drbd import commands, metadata, netlink, status
from ganeti.storage.drbd.status import Resource, Settings
from ganeti.storage.interface import BlockDevice

HANDSHAKE_S = 30.0
"""DRBD tries to connect every 10 s."""
LOOK_EVERY_S = 0.2
VERSION = "8.4"


@dataclass(frozen=True)
class Kernel:
    """The driver's access to DRBD."""

    run: Run = run
    connect: Callable[[netlink.Connection], None] = netlink.connect
    proc: Path = Path("/proc/drbd")
    helper: Path = Path("/sys/module/drbd/parameters/usermode_helper")

    async def do(self, words: commands.Words, *, what: str, check: bool = True) -> Completed:
        """Run one command; StorageError. Output that may hold a secret is never shown."""
        try:
            return await self.run(words, check=check)
        except HostError as err:
            raise StorageError(f"{what}: {err.message}") from err

    async def resources(self) -> dict[str, Resource]:
        """Return all resources of this node by their names."""
        done = await self.do(commands.events(), what="the state of DRBD cannot be read")
        return status.parse_events(done.stdout.decode(errors="replace"))

    async def settings(self, resource: str) -> Settings:
        """Return the settings of a resource."""
        try:
            done = await self.run(commands.show(resource))
        except HostError:  # its text would contain the output so far
            raise StorageError(f"the settings of resource {resource} cannot be read") from None
        return status.parse_show(done.stdout.decode(errors="replace"))

    async def awaits_disk(self, minor: int) -> bool:
        """Return whether a write is complete only when it is on the peer's disk: protocol C."""
        text = await asyncio.to_thread(metadata.read_text, self.proc)
        return status.parse_protocol(text, minor) == "C"

    def module(self) -> tuple[str, str]:
        """Return its version and its helper; two empty texts if it is not loaded; blocks."""
        if not self.proc.exists():
            return "", ""
        first = metadata.read_text(self.proc).partition("\n")[0]
        helper = metadata.read_text(self.helper).strip()
        return first.removeprefix("version: ").partition(" ")[0], helper

    def check_module(self) -> None:
        """Refuse another version, and helpers that would interfere; blocks."""
        first = metadata.read_text(self.proc).partition("\n")[0]
        if f"version: {VERSION}" not in first:
            raise StorageError(f"DRBD {VERSION} is required, this node has: {first[:80]}")
        helper = metadata.read_text(self.helper).strip()
        if helper not in DRBD_HELPERS_OFF:
            raise StorageError(
                f"DRBD would run {helper!r:.60} at events; disable that:"
                f" echo /bin/true >{self.helper}, and for the next boot the option usermode_helper=/bin/true"
            )


@dataclass(frozen=True)
class _Layers:
    data: BlockDevice
    meta: BlockDevice
    meta_spec: DiskSpec
    data_spec: DiskSpec


@dataclass
class _Seen:
    """Return the present state in the kernel."""

    resource: Resource | None
    settings: Settings = field(default_factory=Settings)


class DrbdDisk(BlockDevice):
    """One end of a mirrored disk."""

    template: ClassVar[DiskTemplate] = DRBD

    def __init__(
        self,
        disk: DiskSpec,
        layer: Callable[[DiskSpec], BlockDevice],
        *,
        kernel: Kernel | None = None,
    ) -> None:
        self._disk, self._kernel = disk, kernel or Kernel()
        self._name = disk.uuid  # of the resource, when last seen
        match disk.own_id, disk.logical_id, disk.children, disk.peers:
            case (int(minor),), (int(port), *_), (data, meta), (peer,):
                self._minor, self._port, self._peer = minor, port, peer
            case _:
                raise StorageError(
                    f"disk {disk.index} ({disk.uuid}): it must have a minor, a port, a peer, and volumes for"
                    " data and metadata"
                )
        meta = replace(meta, wipe=False)  # DRBD writes all that it reads there
        self._below = _Layers(layer(data), layer(meta), meta, data)
        self.mirror = self

    @classmethod
    def of(
        cls, paths: Paths, disk: DiskSpec, layer: Callable[[DiskSpec], BlockDevice]
    ) -> "DrbdDisk":
        del paths
        return cls(disk, layer)

    @property
    def path(self) -> str:
        return commands.device(self._minor)

    # --- making and removing ---

    async def create(self, size_mib: int) -> None:
        """Make the volume for data last: with it, and the mark on the metadata, the disk is complete."""
        await asyncio.to_thread(self._kernel.check_module)
        self._check_minor(await self._kernel.resources())
        below = self._below
        had = [await below.data.size_mib() is not None, await below.meta.size_mib() is not None]
        try:
            await below.meta.create(below.meta_spec.size)
            await below.meta.open(DiskRole.PRIMARY)
            if not (had[0] and await self._is_marked()):
                await self._initialise()
            await below.data.create(max(size_mib, below.data_spec.size))
        except BaseException:
            for layer, was_there in zip((below.data, below.meta), had, strict=True):
                if not was_there:
                    with contextlib.suppress(StorageError):
                        await layer.remove()
            raise

    async def remove(self) -> None:
        seen = await self._look(optional=True)
        if seen.resource is not None:
            await self._down()
        await self._below.data.remove()
        await self._below.meta.remove()

    async def _initialise(self) -> None:
        """Make metadata of a copy without data."""
        meta = self._below.meta.path
        await asyncio.to_thread(metadata.clear, meta)
        await self._do(commands.create_md(self._minor, meta))
        await asyncio.to_thread(metadata.set_mark, meta, self._disk.uuid)

    async def _is_marked(self) -> bool:
        return await asyncio.to_thread(metadata.is_marked, self._below.meta.path, self._disk.uuid)

    async def _superblock(self) -> status.Superblock | None:
        return await asyncio.to_thread(metadata.read_superblock, self._below.meta.path)

    # --- opening and closing ---

    async def open(self, role: DiskRole) -> None:
        seen = await self._set_up()
        if role is DiskRole.SECONDARY:
            await self._demote(seen)
        await self._connect(seen)
        if role is DiskRole.SECONDARY:
            return
        is_open = role is DiskRole.PRIMARY and (await self._resource()).role == status.PRIMARY
        now = await self._resource() if is_open else await self._settled()
        if role is DiskRole.BOTH:
            await self._allow_two(now)
        if self._waits:
            await self._wait_for_peer(now)
        await self._promote(now, role)
        if role is DiskRole.PRIMARY and now.peer_role != status.PRIMARY:
            await self._forbid_two()

    async def open_alone(self, generation: str, *, force: bool) -> None:
        seen = await self._set_up()
        await self._connect(seen)
        now = await self._resource()
        if now.role == status.PRIMARY:
            return
        if now.settled:
            await self._promote(now, DiskRole.PRIMARY)
            return
        found = await self._generations()
        if found[:1] != (generation,):
            raise StorageError(
                f"{self._what}: its data is of generation {''.join(found[:1]) or 'unknown'} and not {generation};"
                " it has changed since the copies were compared"
            )
        is_whole = now.disk == status.UP_TO_DATE
        if not (is_whole or force):
            raise StorageError(f"{self._what}: this copy is not up to date ({now.words})")
        await self._do(commands.primary(self._minor, force=not is_whole))

    async def discard(self) -> None:
        seen = await self._set_up()
        if seen.resource is not None and seen.resource.settled:
            return
        await self._demote(seen)
        await self._connect(seen, discard=True)

    async def _set_up(self) -> _Seen:
        """Open the volumes and attach them."""
        await asyncio.to_thread(self._kernel.check_module)
        await self._below.data.open(DiskRole.PRIMARY)
        await self._below.meta.open(DiskRole.PRIMARY)
        return await self._attach(await self._look())

    async def _attach(self, seen: _Seen) -> _Seen:
        data, meta = self._below.data.path, self._below.meta.path
        found, wanted = seen.settings, (data, meta)
        if seen.resource is None:
            await self._do(commands.new_resource(self._name))
        if seen.resource is None or seen.resource.minor is None:
            await self._do(commands.new_minor(self._name, self._minor))
        elif seen.resource.attached and (found.data, found.meta) == wanted:
            await self._do(commands.disk_options(self._minor, self._disk.params))
            return seen
        elif seen.resource.attached:
            await self._do(commands.detach(self._minor))
        if not (self._disk.imported or await self._is_marked()):
            await self._initialise()
        block = await self._superblock()
        if block is None:
            raise StorageError(
                f"{self._what}: the metadata on {meta} is damaged; run replace-disks"
            )
        # An interrupted job may have grown it before the configuration followed.
        size = max(self._below.data_spec.size, block.size_sectors // 2048)
        await self._do(commands.apply_al(self._minor, meta))
        is_written = seen.resource is not None and seen.resource.role == status.PRIMARY
        waits = is_written and self._waits
        await self._do(
            commands.attach(self._minor, data, meta, size, self._disk.params, waits=waits)
        )
        return await self._look()

    async def _connect(self, seen: _Seen, *, discard: bool = False) -> None:
        own, peer = self._ends()
        has = seen.settings
        connection = seen.resource.connection if seen.resource else status.STAND_ALONE
        # Upstream connects differently: it would not accept a peer that this driver opened.
        is_good = self._name == self._disk.uuid or connection == status.CONNECTED
        is_there = (has.own, has.peer) == (own, peer) and connection != status.STAND_ALONE
        if is_there and is_good and not discard:
            return
        if has.own is not None and has.peer is not None:
            await self._leave_peer(seen)
            await self._kernel.do(
                commands.disconnect(has.own, has.peer), what=self._what, check=False
            )
        wanted = netlink.Connection(
            resource=self._name,
            own=own,
            peer=peer,
            protocol=str(self._disk.params.get("protocol", "C")),
            secret=self._disk.secret,
            discard=discard,
            options=commands.connection_options(self._disk.params),
        )
        await asyncio.to_thread(self._kernel.connect, wanted)

    async def _leave_peer(self, seen: _Seen) -> None:
        """Let a primary disconnect; StorageError while its writes must wait for the peer (D4)."""
        now = seen.resource
        if now is None or now.role != status.PRIMARY:
            return
        if self._waits and now.connection == status.CONNECTED:
            raise StorageError(
                f"{self._what}: its writes wait for the copy on its present peer, which must be dropped first"
            )
        await self._do(commands.fencing(self._minor, waits=False))

    def _ends(self) -> tuple[commands.Endpoint, commands.Endpoint]:
        return (self._disk.address, self._port), (self._peer.address, self._port)

    async def _settled(self) -> Resource:
        """Return the state after the handshake with the peer, which is awaited unless it is marked offline."""
        loop = asyncio.get_running_loop()
        end = loop.time() + HANDSHAKE_S
        while True:
            now = await self._resource()
            # The loss of a peer is noticed only after some seconds.
            is_missed = not (self._peer.offline and now.peer_role == status.PRIMARY)
            if now.settled and (is_missed or loop.time() >= end):
                return now
            if now.connection == status.STAND_ALONE:
                raise StorageError(self._parted(now))
            if self._peer.offline and now.connection != status.CONNECTED:
                return now
            if loop.time() >= end:
                raise StorageError(
                    f"{self._what}: {self._peer.name} does not answer ({now.words}). The link may be cut, or each"
                    " copy may have writes that the other one lacks (split brain): gnt-instance disk-status shows the"
                    " state. If that node is dead, mark it first:"
                    f" gnt-node modify --offline=yes {self._peer.name}"
                )
            await asyncio.sleep(LOOK_EVERY_S)

    def _parted(self, now: Resource) -> str:
        return (
            f"{self._what}: it has dropped its connection to {self._peer.name} ({now.words}). Each copy probably has"
            " writes that the other one lacks (split brain); both are unchanged. gnt-instance disk-status shows the"
            " state; choose the copy to keep: gnt-instance repair-disks --keep=NODE"
        )

    async def _promote(self, now: Resource, role: DiskRole) -> None:
        if now.role == status.PRIMARY:
            return
        if now.peer_role == status.PRIMARY and role is not DiskRole.BOTH:
            raise StorageError(f"{self._what}: {self._peer.name} writes to it")
        is_new = await self._is_unwritten(now)
        has_all = now.disk == status.UP_TO_DATE
        reads_there = now.settled and now.peer_disk == status.UP_TO_DATE
        if not (is_new or has_all or reads_there):
            raise StorageError(
                f"{self._what}: no copy is known to have all writes ({now.words});"
                f" bring {self._peer.name} back. To continue without the writes that are missing here, name this node:"
                " gnt-instance repair-disks --keep=NODE"
            )
        await self._do(commands.primary(self._minor, force=is_new))

    @property
    def _waits(self) -> bool:
        """True if a write is complete only when another copy has it, too (D4)."""
        grant = self._disk.grant
        return grant is not None and bool(grant.current - {grant.writer})

    async def _wait_for_peer(self, now: Resource) -> None:
        """Let writes wait once the peer is lost, before the first one; StorageError if it is lost already."""
        if now.role != status.PRIMARY and not self._has_current_peer(now):
            raise StorageError(self._without_peer(now))
        await self._do(commands.fencing(self._minor, waits=True))
        again = await self._resource()
        if again.role != status.PRIMARY and not self._has_current_peer(again):
            raise StorageError(self._without_peer(again))

    def _has_current_peer(self, now: Resource) -> bool:
        """Return whether the peer gets every write, and has every one so far if this node's copy may lack some."""
        grant = self._disk.grant
        is_own = grant is None or grant.writer in grant.current
        return now.has_peer and (is_own or now.peer_disk == status.UP_TO_DATE)

    def _without_peer(self, now: Resource) -> str:
        return (
            f"{self._what}: the copy on {self._peer.name} has every write and must get each new one, but it is not"
            f" connected ({now.words}); try again: the start then goes on without that copy"
        )

    async def _is_unwritten(self, now: Resource) -> bool:
        """Return whether both copies were made and never used: with data in one, the connected copies would differ."""
        if not now.settled or (now.disk, now.peer_disk) != (status.INCONSISTENT,) * 2:
            return False
        return (await self._generations())[:1] == (status.JUST_CREATED,)

    async def _generations(self) -> tuple[str, ...]:
        done = await self._do(commands.generations(self._minor))
        return status.parse_generations(done.stdout.decode(errors="replace"))

    async def _demote(self, seen: _Seen) -> None:
        if seen.resource is not None and seen.resource.role == status.PRIMARY:
            await self._do(commands.secondary(self._minor))
            await self._do(commands.fencing(self._minor, waits=False))
            if seen.resource.waits:  # nothing is written any more
                await self._do(commands.resume(self._minor))
        await self._forbid_two()

    async def _allow_two(self, now: Resource) -> None:
        if now.connection == status.CONNECTED:
            await self._do(commands.two_primaries(*self._ends(), allowed=True))

    async def _forbid_two(self) -> None:
        """Allow or forbid dual primary, which lasts only as long as a migration."""
        settings = await self._kernel.settings(self._name)
        if settings.two_primaries and settings.own and settings.peer:
            await self._do(commands.two_primaries(settings.own, settings.peer, allowed=False))

    async def close(self) -> None:
        seen = await self._look(optional=True)
        if seen.resource is not None:
            await self._down()
        await self._below.meta.close()
        await self._below.data.close()

    async def _down(self) -> None:
        await self._do(commands.down(self._name))

    # --- looking ---

    @property
    def _what(self) -> str:
        return f"disk {self._disk.index} ({self.path})"

    async def _do(self, words: commands.Words) -> Completed:
        return await self._kernel.do(words, what=self._what)

    async def _look(self, *, optional: bool = False) -> _Seen:
        """Return the kernel's resource of this disk; with `optional` DRBD itself may be missing."""
        if optional and not await asyncio.to_thread(self._kernel.proc.exists):
            return _Seen(None)
        resources = await self._kernel.resources()
        seen = await self._own(resources)
        self._name = seen.resource.name if seen.resource else self._disk.uuid
        if not optional:
            self._check_minor(resources)
        return seen

    async def _own(self, resources: dict[str, Resource]) -> _Seen:
        """Return the resource of this disk; one with upstream's name must also have this disk's data volume."""
        found = resources.get(self._disk.uuid)
        if found is not None:
            return _Seen(found, await self._kernel.settings(found.name))
        found = resources.get(original_resource(self._minor)) if self._disk.imported else None
        if found is not None and found.minor == self._minor:
            settings = await self._kernel.settings(found.name)
            if settings.data in ("", self._below.data.path):
                return _Seen(found, settings)
        return _Seen(None)

    def _check_minor(self, resources: dict[str, Resource]) -> None:
        """Refuse if another resource of this node has the minor that the configuration gave to this disk (F25)."""
        for other in resources.values():
            if other.minor == self._minor and other.name != self._name:
                raise StorageError(
                    f"{self._what}: minor {self._minor} is that of resource {other.name}, which is not a disk of the"
                    f" cluster here; examine it, and end it: drbdsetup down {other.name}"
                )
        own = resources.get(self._name)
        if own is not None and own.minor not in (None, self._minor):
            raise StorageError(f"{self._what}: it is open as minor {own.minor}; close it first")

    async def _resource(self) -> Resource:
        found = (await self._kernel.resources()).get(self._name)
        if found is None:
            raise StorageError(f"{self._what}: it was closed meanwhile")
        return found

    async def grow(self, size_mib: int) -> None:
        await self._look()
        now = await self._resource()
        if now.size_kib >= size_mib * 1024:
            return
        alone = self._peer.offline and now.connection != status.CONNECTED
        await self._do(commands.resize(self._minor, size_mib, alone=alone))
        if (await self._resource()).size_kib < size_mib * 1024:
            raise StorageError(f"{self._what}: it did not grow to {size_mib} MiB")

    async def size_mib(self) -> int | None:
        sizes = [await self._below.data.size_mib(), await self._below.meta.size_mib()]
        if sizes[0] is None or sizes[1] is None:
            return None
        seen = await self._look(optional=True)
        if seen.resource is not None and seen.resource.attached:
            return seen.resource.size_kib // 1024
        return sizes[0]

    async def check_identity(self) -> None:
        await self._below.data.check_identity()
        await self._below.meta.check_identity()
        is_believed = self._disk.imported and await self._superblock() is not None
        if not (is_believed or await self._is_marked()):
            raise StorageError(f"{self._what}: the metadata belongs to another disk")
        await self._look()

    async def sync_status(self) -> SyncStatus | None:
        seen = await self._look(optional=True)
        if seen.resource is None or seen.resource.minor is None:
            return None
        now = seen.resource
        progress = None
        if now.synchronising:
            text = await asyncio.to_thread(metadata.read_text, self._kernel.proc)
            progress = status.parse_progress(text, self._minor)
        percent = progress.percent if progress else 0.0 if now.synchronising else None
        return SyncStatus(
            up_to_date=now.disk == status.UP_TO_DATE,
            connected=now.settled,
            percent=percent,
            seconds_left=progress.seconds_left if progress else None,
            rate=progress.rate if progress else None,
            state=now.words,
            generations=await self._generations() if now.attached else (),
            consistent=now.consistent,
            attached=now.attached,
            dropped=now.connection == status.STAND_ALONE,
            writing=now.role == status.PRIMARY,
            missed_kib=now.out_of_sync_kib,
        )

    async def at_rest(self) -> SyncStatus | None:
        """Read it from the metadata; unreadable metadata, or another disk's, counts as unknown."""
        try:
            if not (self._disk.imported or await self._is_marked()):
                return None
            block = await self._superblock()
        except StorageError:
            return None
        if block is None:
            return None
        return SyncStatus(
            up_to_date=block.up_to_date,
            connected=False,
            generations=block.generations,
            consistent=block.consistent,
        )

    async def outdate(self) -> None:
        seen = await self._look(optional=True)
        if seen.resource is not None and seen.resource.disk == status.UP_TO_DATE:
            await self._do(commands.outdate(self._minor))


async def mirrored_devices(kernel: Kernel | None = None) -> list[MirroredDevice]:
    """Return all devices of this node; none if DRBD is not loaded. StorageError."""
    found = kernel or Kernel()
    if not await asyncio.to_thread(found.proc.exists):
        return []
    return [
        MirroredDevice(name=one.name, number=one.minor, state=one.words)
        for one in (await found.resources()).values()
        if one.minor is not None
    ]
