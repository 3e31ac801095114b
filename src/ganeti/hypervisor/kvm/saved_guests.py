"""Guests that are saved to a file with their memory, and continue from it.

QEMU writes the memory as for a migration, to an open file. The guest runs meanwhile, until little is left or the file
could overflow; then it is paused, the disks are taken, and QEMU writes the rest. QEMU and this daemon share the
position of the file, so it tells how much was written.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.hotplug import incoming_instance
from ganeti.hypervisor.kvm import migration
from ganeti.hypervisor.kvm.capabilities import set_capabilities
from ganeti.hypervisor.kvm.guests import Guest, Guests, Launch, complete
from ganeti.hypervisor.kvm.memory import why_not_live
from ganeti.hypervisor.kvm.monitor import MonitorGone
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.hypervisor.saved_guests import (
    SavedGuest,
    SavesGuests,
    TakeDisks,
    misfits,
    read_header,
    write_header,
)
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params
from ganeti.rpc.meters import report
from ganeti.rpc.procedures.migration import MigrationInfo

logger = logging.getLogger(__name__)

DISKS_S = 60.0
"""The time for the snapshots of the disks, while the guest is paused."""
LOAD_S = 30.0
"""A guest of which nothing is read for this time does not arrive."""
LOOK_EVERY_S = 0.05
MIB = 1024 * 1024
CHUNK = 4 * MIB
FURTHER_MIB = 64
"""The memory of a guest's devices: its display, its firmware."""
_UNLIMITED = 2**40
"""Bytes a second; the storage is the limit."""
_FILE = "saved-guest"
_STANDS = frozenset(("finish-migrate", "postmigrate", "paused"))

Describe = Callable[[InstanceSpec], Awaitable[tuple[Guest, MigrationInfo]]]
"""Returns the guest, whose lock is held, and the facts that another QEMU needs to continue it."""


@dataclass(frozen=True)
class KvmSavedGuests(SavesGuests):
    """Saves guests of this node, and continues them."""

    guests: Guests
    describe: Describe
    program_for: Callable[[InstanceSpec, MigrationInfo], Awaitable[tuple[str, str]]]
    """Returns QEMU and its acceleration for a guest; HypervisorError if they cannot continue it."""
    validate: Callable[[Params], Awaitable[list[str]]]

    async def save(
        self, instance: InstanceSpec, path: Path, capacity: int, take_disks: TakeDisks
    ) -> SavedGuest:
        async with self.guests.lock(self.guests.files(instance.uuid)):
            guest, info = await self.describe(instance)
            status = await guest.status()
            if guest.record.is_incoming or status != "running":
                raise HypervisorError(
                    f"{instance.name} cannot be saved with its memory, because it does not run (QEMU reports {status})"
                )
            with _opened(path, os.O_RDWR) as descriptor:
                await asyncio.to_thread(write_header, descriptor, info)
                # Recorded before the act, so that the guest continues even if this daemon dies.
                guest = self.guests.change(guest, is_saved=True)
                saving = _Saving(guest, descriptor, capacity, take_disks)
                try:
                    await saving.write()
                finally:
                    await asyncio.shield(self._continued(guest))
                paused_ms = saving.paused_ms()
                length = os.lseek(descriptor, 0, os.SEEK_CUR)
                sha256 = await asyncio.to_thread(_stored, descriptor, length)
        return SavedGuest(length, sha256, paused_ms)

    async def put_right(self, files: GuestFiles) -> None:
        """Let a guest continue whose saving was interrupted; no-op for any other, and while it is being saved."""
        record = files.read()
        lock = self.guests.lock(files)
        if record is None or not record.is_saved or lock.locked():
            return
        async with lock:
            guest = self.guests.peek(files)
            if guest is not None and guest.record.is_saved:
                logger.warning("%s was being saved, and continues", guest.instance.name)
                await self._continued(guest)

    async def _continued(self, guest: Guest) -> None:
        """End what is left of the transfer, and let the guest continue."""
        with contextlib.suppress(MonitorGone):
            await migration.stop_sending(guest.ask)
            if await guest.status() in _STANDS:
                await guest.ask("cont")
        self.guests.change(self.guests.peek(guest.files) or guest, is_saved=False)

    async def restore(
        self, instance: InstanceSpec, disk_paths: list[str], path: Path, saved: SavedGuest
    ) -> None:
        files = self.guests.files(instance.uuid)
        async with self.guests.lock(files):
            if await self.guests.live(files) is not None:
                raise HypervisorError(f"{instance.name} is on this node already")
            with _opened(path, os.O_RDONLY) as descriptor:
                try:
                    info = await asyncio.to_thread(_checked, descriptor, saved)
                except HypervisorError as err:
                    raise HypervisorError(f"the saved memory of {instance.name}: {err}") from err
                guest = await self._launched(instance, disk_paths, info)
                try:
                    await _load(guest, descriptor, saved.length)
                    self.guests.change(guest, is_incoming=False, is_restored=True)
                except BaseException:
                    await asyncio.shield(self.guests.end(guest))
                    raise

    async def misfits(self, instance: InstanceSpec, path: Path) -> list[str]:
        with _opened(path, os.O_RDONLY) as descriptor:
            info = await asyncio.to_thread(read_header, descriptor)
        found = misfits(info.instance, instance)
        if found:
            return found
        found = await self.validate({**instance.hvparams, "machine_version": info.machine})
        try:
            await self.program_for(instance, info)
        except HypervisorError as err:
            found.append(str(err))
        return found

    async def _launched(
        self, instance: InstanceSpec, disk_paths: list[str], info: MigrationInfo
    ) -> Guest:
        if why := misfits(info.instance, instance):
            raise HypervisorError(
                f"{instance.name} cannot continue from its saved memory: {'; '.join(why)}"
            )
        wanted = incoming_instance(instance, info.instance)
        program, chosen = await self.program_for(wanted, info)
        launch = Launch.incoming(wanted, disk_paths, program, chosen, info, resume=True)
        return await self.guests.launch(launch)


@dataclass
class _Saving:
    """One transfer to a file."""

    guest: Guest
    descriptor: int
    capacity: int
    take_disks: TakeDisks
    _paused_at: float = field(default=0.0, init=False)

    async def write(self) -> None:
        """Return once everything is written and the disks are taken; the guest is paused then."""
        ask, hvparams = self.guest.ask, complete(self.guest.instance.hvparams)
        async with ask.conversation():
            # After a rollback the last backup is usually a later one, and no backup would use or remove the bitmap.
            await set_capabilities(ask, pauses=True, bitmaps=False)
            limits = {"max-bandwidth": _UNLIMITED, "downtime-limit": hvparams["migration_downtime"]}
            await ask("migrate-set-parameters", {**limits, "tls-creds": ""})
            await self._pause_if_it_must_not_run()
            await ask.with_files(
                [self.descriptor],
                [("getfd", {"fdname": _FILE}), ("migrate", {"uri": f"fd:{_FILE}"})],
            )
        await self._watch()

    def paused_ms(self) -> int:
        """Return the time since the guest was paused."""
        return round(1000 * (asyncio.get_running_loop().time() - self._paused_at))

    async def _pause_if_it_must_not_run(self) -> None:
        if why_not_live(self.guest):
            await self._pause()

    async def _pause(self) -> None:
        self._note_pause()
        await self.guest.ask("stop")

    def _note_pause(self) -> None:
        self._paused_at = self._paused_at or asyncio.get_running_loop().time()

    async def _watch(self) -> None:
        ask, loop = self.guest.ask, asyncio.get_running_loop()
        has_disks, seen, moved = False, -1, loop.time()
        while True:
            answer = await ask("query-migrate")
            status, memory = answer.get("status"), answer.get("ram", {})
            if status == "completed" and has_disks:
                return
            if status in migration.OVER:
                why = answer.get("error-desc") or f"QEMU reports {status}"
                raise HypervisorError(
                    f"the memory of {self.guest.instance.name} was not saved: {why}"
                )
            written = os.lseek(self.descriptor, 0, os.SEEK_CUR)
            if status == "pre-switchover" and not has_disks:
                self._note_pause()
                await self._take_disks()
                await ask("migrate-continue", {"state": "pre-switchover"})
                has_disks, moved = True, loop.time()
            migration.report_memory(memory)
            if written != seen:
                seen, moved = written, loop.time()
            elif loop.time() - moved > migration.NO_PROGRESS_S:
                raise HypervisorError(
                    f"the memory of {self.guest.instance.name} was not saved: the storage took nothing for"
                    f" {migration.NO_PROGRESS_S:g} s"
                )
            # Paused in time, so that all that it may have changed until then still fits.
            if not self._paused_at and written + self._most(memory) > self.capacity:
                await self._pause()
            # With its disks taken, the guest only waits for this.
            wait_s = migration.FIRST_PAUSE_S if has_disks else migration.until_next_look(memory)
            await asyncio.sleep(wait_s)

    def _most(self, memory: Mapping[str, Any]) -> int:
        """Return the bytes that QEMU writes at most if the guest stops now; memory that it does not have counts little."""
        return min(int(memory.get("total", 0)), (self.guest.memory + FURTHER_MIB) * MIB)

    async def _take_disks(self) -> None:
        try:
            async with asyncio.timeout(DISKS_S):
                await self.take_disks()
        except TimeoutError as err:
            raise HypervisorError(
                f"the snapshots of the disks of {self.guest.instance.name} took more than {DISKS_S:g} s"
            ) from err


async def _load(guest: Guest, descriptor: int, length: int) -> None:
    """Let a waiting QEMU read its guest; HypervisorError if it does not accept it."""
    ask, loop = guest.ask, asyncio.get_running_loop()
    async with ask.conversation():
        await set_capabilities(ask)
        await ask.with_files(
            [descriptor],
            [("getfd", {"fdname": _FILE}), ("migrate-incoming", {"uri": f"fd:{_FILE}"})],
        )
    seen, moved = -1, loop.time()
    while True:
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        report(position, length, "memory")
        if position != seen:
            seen, moved = position, loop.time()
        try:
            status = (await ask("query-migrate")).get("status")
            if status == "completed" and await guest.status() != "inmigrate":
                return
        except MonitorGone:
            status = "failed"
        if status in ("failed", "cancelled") or loop.time() - moved > LOAD_S:
            said = guest.files.qemu_said() or "it gave no reason"
            raise HypervisorError(
                f"QEMU does not continue {guest.instance.name} from its saved memory: {said}"
            )
        await asyncio.sleep(LOOK_EVERY_S)


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC)
    except OSError as err:
        raise HypervisorError(f"cannot open {path}: {err.strerror}") from err
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _checked(descriptor: int, saved: SavedGuest) -> MigrationInfo:
    """Return the facts about a saved guest; HypervisorError if anything is not as it was saved."""
    if _digest(descriptor, saved.length) != saved.sha256:
        raise HypervisorError("its data is not what was saved (SHA-256)")
    return read_header(descriptor)


def _stored(descriptor: int, length: int) -> str:
    """Make what was written durable, and return its digest as it is read back."""
    try:
        os.fsync(descriptor)
    except OSError as err:
        raise HypervisorError(f"the saved memory is not on its storage: {err.strerror}") from err
    return _digest(descriptor, length)


def _digest(descriptor: int, length: int) -> str:
    found, done = hashlib.sha256(), 0
    while done < length:
        try:
            part = os.pread(descriptor, min(CHUNK, length - done), done)
        except OSError as err:
            raise HypervisorError(f"the saved memory cannot be read: {err.strerror}") from err
        if not part:
            break
        found.update(part)
        done += len(part)
        report(done, length, "check")
    # Nothing reads it soon, and the node needs its memory for guests.
    os.posix_fadvise(descriptor, 0, length, os.POSIX_FADV_DONTNEED)
    return found.hexdigest()
