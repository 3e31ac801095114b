"""Disks that are logical volumes: template `plain`.

A volume carries the UUID of its disk as a tag, so that another disk's volume is neither used, written nor removed.
While it has space that may hold another's data, a second tag names the first byte of that space.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import ClassVar

from ganeti.base.errors import StorageError
from ganeti.base.identifiers import is_uuid
from ganeti.base.paths import Paths
from ganeti.model.disk_templates import PLAIN, DiskTemplate
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.storage.differences import copy_differences
from ganeti.storage.interface import Adoption, BlockDevice, Snapshots
from ganeti.storage.lvm import commands
from ganeti.storage.lvm.commands import VolumeName, Words
from ganeti.storage.lvm.devices import DeviceMapper, VolumeDevices, opened
from ganeti.storage.lvm.exclusive import check_alone, devices_alone
from ganeti.storage.lvm.reports import DISK_TAG, SNAPSHOT_TAG, UNWIPED_TAG, WAS_TAG, Volume
from ganeti.storage.lvm.tools import Lvm
from ganeti.storage.sizes import check_size
from ganeti.storage.wipe import in_stoppable_thread, wipe

MIB = 1024 * 1024
BUSY_PAUSES_S = (0.2, 1.0, 3.0)
"""A device that was just closed may still be looked at by udev."""


def snapshot_bytes(size: int) -> int:
    """Return the space of a snapshot in which every block of a disk may change: LVM's table needs 16 bytes for 4 KiB."""
    return size + size // 128 + 8 * MIB


class LogicalVolume(BlockDevice, Snapshots, Adoption):
    """A volume of a group of this node."""

    template: ClassVar[DiskTemplate] = PLAIN

    def __init__(
        self,
        paths: Paths,
        disk: DiskSpec,
        *,
        lvm: Lvm | None = None,
        devices: VolumeDevices | None = None,
    ) -> None:
        del paths
        match disk.own_id:
            case (str(group), str(name)):
                self._name = VolumeName(group, name)
            case _:
                raise StorageError(
                    f"disk {disk.index} ({disk.uuid}): {disk.own_id!r:.200} is not (volume group, name),"
                    f" which template {self.template.name} needs"
                )
        if not is_uuid(disk.uuid):
            raise StorageError(f"disk {disk.index}: {disk.uuid!r:.80} is not a UUID")
        self._disk, self._tag = disk, f"{DISK_TAG}{disk.uuid}"
        self._lvm, self._devices = lvm or Lvm(), devices or DeviceMapper()
        self.snapshots = self.adoption = self

    @property
    def path(self) -> str:
        return self._devices.path(self._name)

    # --- the disk ---

    async def create(self, size_mib: int) -> None:
        async with self._naming("create"):
            if size_mib <= 0:
                raise StorageError(f"a size of {size_mib} MiB is not possible")
            volume = await self._volume()
            if volume is None:
                await self._make(size_mib * MIB)
            elif volume.disk != self._disk.uuid:
                raise StorageError(
                    "a volume of this name exists; remove it if it is not needed (lvremove)"
                )
            elif volume.size < size_mib * MIB:
                raise StorageError(f"it exists with {volume.size // MIB} MiB instead of {size_mib}")
            await self._finish()

    async def _make(self, size: int) -> None:
        """Make the volume and clear it; on a failure nothing remains."""
        if self._pool:
            await self._make_thin(size)
            return
        wipes = self._disk.wipe
        tags = [self._tag, f"{UNWIPED_TAG}0"] if wipes else [self._tag]
        stripes, on = await self._stripes(), await self._alone(size)
        words = commands.create(self._name, size, tags, stripes=stripes, clear=not wipes, on=on)
        try:
            await self._lvm.act(words)
            await self._finish()
        except StorageError:
            await self._forget()
            raise

    @property
    def _pool(self) -> str:
        """Return the thin pool of a new volume; '' if it gets space of the group."""
        return str(self._disk.params.get("thin_pool") or "")

    async def _make_thin(self, size: int) -> None:
        """Make a volume in a pool that fills new space with zeros, so that nothing need be cleared."""
        if self._disk.exclusive:
            raise StorageError(
                "exclusive storage gives each disk physical volumes of its own, and the volumes of a thin pool share"
                " them; set thin_pool= for this disk"
            )
        name = VolumeName(self._name.group, self._pool)
        pool = await self._lvm.volume(name)
        if pool is None or not pool.is_pool:
            raise StorageError(
                f"{name} is not a thin pool; make one on each node: lvcreate --type thin-pool --size SIZE --zero y"
                f" --name {name.name} {name.group}"
            )
        if pool.is_partial:
            raise StorageError(f"a physical volume with a part of thin pool {name} is missing")
        if self._disk.wipe and not pool.zeroes:
            raise StorageError(
                f"thin pool {name} does not fill new space with zeros, which may hold another's data; run: lvchange"
                f" --zero y {name}"
            )
        await self._lvm.act(commands.create_thin(self._name, self._pool, size, [self._tag]))

    async def _stripes(self) -> tuple[int, int]:
        """Return the number of stripes and their KiB; at most as many as there are physical volumes."""
        wanted = self._spindles or int(self._disk.params.get("stripes", 1))
        if wanted > 1:
            usable = [one for one in await self._lvm.physical() if one.group == self._name.group]
            wanted = max(1, min(wanted, sum(one.is_allocatable for one in usable)))
        return wanted, int(self._disk.params.get("stripe_size", 64))

    async def _alone(self, size: int) -> list[str]:
        """Return the physical volumes that the disk must have for itself; empty if any will do."""
        if not self._disk.exclusive:
            return []
        parts = await self._lvm.parts(self._name.group)
        own = [one.devices for one in parts if one.name == self._name.name]
        devices, group = await self._lvm.physical(), self._name.group
        return devices_alone(devices, group, size, own[0] if own else (), self._spindles)

    @property
    def _spindles(self) -> int:
        """Return the number of physical volumes for the disk alone; 0 if unspecified."""
        return int(self._disk.params.get("spindles", 0)) if self._disk.exclusive else 0

    async def _forget(self) -> None:
        """Remove the remains of a failed creation; the next call of `remove` does what fails here."""
        try:
            volume = await self._own()
            if volume is not None and volume.unwiped_from == 0:
                await self._act_when_idle(commands.remove(self._name))
        except StorageError:
            return

    async def remove(self) -> None:
        async with self._naming("remove"):
            if await self._own() is not None:
                await self._act_when_idle(commands.remove(self._name))

    async def open(self, role: DiskRole) -> None:
        """Any role is the same here: another layer makes copies."""
        del role
        async with self._naming("use"):
            volume = self._whole(await self._own())
            if volume.unwiped_from is not None:
                await self._finish()
            elif not volume.is_active:
                await self._lvm.act(commands.activate(self._name))

    async def close(self) -> None:
        """Do nothing: the volume stays active, because no other node sees it."""

    async def grow(self, size_mib: int) -> None:
        async with self._naming("grow"):
            await self._finish()
            volume = self._whole(await self._own())
            if volume.size >= size_mib * MIB:
                return
            on = await self._alone(size_mib * MIB)
            if self._disk.wipe and not volume.pool:
                # Recorded before any new space exists, so that no crash can leave some unnoticed.
                mark = f"{UNWIPED_TAG}{volume.size}"
                await self._lvm.act(commands.retag(self._name, add=[mark]))
            await self._lvm.act(commands.extend(self._name, size_mib * MIB, on))
            await self._finish()

    async def size_mib(self) -> int | None:
        async with self._naming("look at"):
            volume = await self._own()
            return None if volume is None else volume.size // MIB

    async def spindles(self) -> int:
        if not self._disk.exclusive:
            return 0
        async with self._naming("look at"):
            parts = await self._lvm.parts(self._name.group)
            return max(
                (len(one.devices) for one in parts if one.name == self._name.name), default=0
            )

    async def check_identity(self) -> None:
        async with self._naming("use"):
            volume = self._whole(await self._own())
            if volume.unwiped_from is not None:
                raise StorageError("its creation or growth is incomplete; activate it first")

    # --- snapshots ---

    async def take(self, name: str) -> str:
        await self.make(name)
        return self._devices.path(VolumeName(self._name.group, name))

    async def make(self, name: str) -> None:
        """Take a snapshot that never overflows: a thick one has space for every block, a thin one that of its pool."""
        async with self._naming("make a snapshot of"):
            volume = self._whole(await self._own())
            copy, found = VolumeName(self._name.group, name), await self._copy(name)
            if found is not None and not self._is_own_copy(found):
                raise StorageError(f"{copy} already exists and is another volume")
            if found is None:
                size, tag = snapshot_bytes(volume.size), f"{SNAPSHOT_TAG}{self._disk.uuid}"
                if volume.pool:
                    words = commands.thin_snapshot(self._name, name, [tag])
                else:
                    words = commands.snapshot(self._name, name, size, [tag])
                await self._lvm.act(words)

    async def roll_back(self, name: str) -> None:
        """Copy the blocks that differ; a merge by LVM would consume the snapshot."""
        async with self._naming("roll back"):
            copy, found = VolumeName(self._name.group, name), await self._copy(name)
            volume = self._whole(await self._own())
            if found is None or not self._is_own_copy(found):
                raise StorageError(f"its snapshot {copy} does not exist")
            if not found.is_whole:
                raise StorageError(f"its snapshot {copy} is damaged: its space was exhausted")
            if not (found.is_active and volume.is_active):
                await self._lvm.act(commands.activate(self._name))
                if volume.pool:  # a thin snapshot is a volume of its own
                    await self._lvm.act(commands.activate(copy))
                volume, found = await self._own() or volume, await self._copy(name) or found
            # LVM reports the size of the space for later writes; the device has that of the disk.
            origin, seen = volume, replace(found, size=volume.size)

            def work(is_stopped: Callable[[], bool]) -> None:
                with (
                    opened(self._devices, self._name, origin, alone=True) as target,
                    opened(self._devices, copy, seen, alone=False) as source,
                ):
                    copy_differences(source, target, origin.size, is_stopped)

            await in_stoppable_thread(work)

    async def drop(self, name: str, *, unsure: bool = True) -> None:
        del unsure
        async with self._naming("drop a snapshot of"):
            found = await self._copy(name)
            if found is not None and self._is_own_copy(found):
                await self._act_when_idle(commands.remove(VolumeName(self._name.group, name)))

    async def _copy(self, name: str) -> Volume | None:
        return await self._lvm.volume(VolumeName(self._name.group, name))

    def _is_own_copy(self, found: Volume) -> bool:
        return f"{SNAPSHOT_TAG}{self._disk.uuid}" in found.tags

    # --- adoption ---

    def source_path(self, source: str) -> str:
        return self._devices.path(VolumeName(self._name.group, source))

    async def adoptable_mib(self, source: str) -> int:
        async with self._naming("adopt"):
            size = _adoptable(await self._source(source), source)
            if self._disk.exclusive:
                parts = await self._lvm.parts(self._name.group)
                check_alone(parts, source, self._spindles)
            return size // MIB

    async def adopt(self, source: str) -> None:
        async with self._naming("adopt"):
            mine = await self._volume()
            if mine is not None and mine.disk == self._disk.uuid:
                return
            if mine is not None:
                raise StorageError("a volume of this name already exists")
            old, found = VolumeName(self._name.group, source), await self._source(source)
            if found is None or found.disk != self._disk.uuid:
                _adoptable(found, source)
                tags = [self._tag, f"{WAS_TAG}{source}"]
                await self._lvm.act(commands.retag(old, add=tags))
            await self._lvm.act(commands.rename(old, self._name.name))

    async def give_back(self, source: str) -> None:
        async with self._naming("give back"):
            old, mark = VolumeName(self._name.group, source), f"{WAS_TAG}{source}"
            mine = await self._volume()
            if mine is not None and mine.disk == self._disk.uuid and mark in mine.tags:
                await self._lvm.act(commands.rename(self._name, source))
            found = await self._source(source)
            if found is not None and found.disk == self._disk.uuid:
                await self._lvm.act(commands.retag(old, drop=[self._tag, mark]))

    async def _source(self, source: str) -> Volume | None:
        return await self._lvm.volume(VolumeName(self._name.group, source))

    # --- means ---

    @asynccontextmanager
    async def _naming(self, verb: str) -> AsyncIterator[None]:
        """Name the disk in an error."""
        try:
            yield
        except StorageError as err:
            what = f"cannot {verb} disk {self._disk.index} ({self._name})"
            raise StorageError(f"{what}: {err.message}") from err
        except OSError as err:
            raise StorageError(
                f"cannot {verb} disk {self._disk.index} ({self._name}): {err.strerror}"
            ) from err

    async def _volume(self) -> Volume | None:
        """Return the volume of our name."""
        return await self._lvm.volume(self._name)

    async def _own(self) -> Volume | None:
        """Return the disk's own volume; one without a mark is accepted, for example one of upstream Ganeti."""
        volume = await self._volume()
        return volume if volume is not None and volume.disk in (None, self._disk.uuid) else None

    def _whole(self, volume: Volume | None) -> Volume:
        """Raise StorageError unless the volume exists with all its data."""
        if volume is None:
            raise StorageError("the disk has no such volume")
        if volume.is_partial:
            raise StorageError("a physical volume with a part of it is missing, and so is its data")
        check_size("it", volume.size // MIB, self._disk.size)
        return volume

    async def _finish(self) -> None:
        """Fill with zeros the rest that must be filled, if there is any."""
        volume = await self._own()
        if volume is None or (start := volume.unwiped_from) is None:
            return
        if not volume.is_active:
            await self._lvm.act(commands.activate(self._name))
            volume = await self._own()
            if volume is None:
                raise StorageError("it disappeared during its creation")
        found = volume

        def work(is_stopped: Callable[[], bool]) -> None:
            with opened(self._devices, self._name, found, alone=start == 0) as descriptor:
                wipe(descriptor, start, found.size, is_stopped)

        await in_stoppable_thread(work)
        await self._lvm.act(commands.retag(self._name, drop=[f"{UNWIPED_TAG}{start}"]))

    async def _act_when_idle(self, words: Words) -> None:
        for pause in BUSY_PAUSES_S:
            try:
                await self._lvm.act(words)
            except StorageError as err:
                if " in use" not in err.message and "used by another device" not in err.message:
                    raise
                await asyncio.sleep(pause)
            else:
                return
        await self._lvm.act(words)


def _adoptable(volume: Volume | None, source: str) -> int:
    """Return the bytes of a volume that may become a disk; StorageError says why it may not (A48)."""
    why = ""
    if volume is None:
        why = "it does not exist"
    elif volume.disk is not None:
        why = f"it is disk {volume.disk} of an instance"
    elif not volume.is_plain or volume.origin:
        why = "it is a snapshot, the origin of one, a mirror, a pool or a part of such"
    elif volume.is_open:
        why = "a program or device of the node uses it"
    elif volume.is_partial:
        why = "a physical volume with a part of it is missing"
    elif volume.size < MIB:
        why = "it is smaller than 1 MiB"
    if volume is None or why:
        raise StorageError(f"volume {source} cannot be adopted: {why}")
    return volume.size
