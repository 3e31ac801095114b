"""A hypervisor without virtual machines: guests are files, so that a cluster can be tried without real guests.

For tests an operation fails if a file `fail-OPERATION` exists beside the guests (its text is the error), or if
`failures` names it. A file `delay-OPERATION` contains the duration of an operation in seconds; operations with such a
file run in sequence, as on a busy host, or at once if the word `together` follows. The state survives the node daemon.
"""

# ruff: noqa: ARG002 - a simulated guest needs no time, no address and no port

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from ganeti.base.clock import Clock, SystemClock
from ganeti.base.errors import HypervisorError, InputError
from ganeti.base.files import write_atomically
from ganeti.base.paths import Paths
from ganeti.base.process import Run, run
from ganeti.hypervisor.abilities import (
    Adoption,
    AdoptsGuests,
    MeasuresGuests,
    NoticesFaults,
    Options,
    Sighting,
)
from ganeti.hypervisor.fake_figures import simulated_reading
from ganeti.hypervisor.fake_hotplug import FakeHotplug
from ganeti.hypervisor.interface import Hypervisor
from ganeti.model.figures import Reading
from ganeti.model.hypervisors.fake import FAKE
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params
from ganeti.model.recovery import GuestFault
from ganeti.model.wire import decode, encode
from ganeti.rpc.procedures.instances import ConsoleInfo, RunningInstance
from ganeti.rpc.procedures.migration import (
    Incoming,
    IncomingArgs,
    MigrateArgs,
    MigrationEnd,
    MigrationInfo,
    MigrationResult,
)

INCOMING_PORT = 8102
TOGETHER = "together"
_SUFFIX = ".json"


class _Guest(msgspec.Struct, frozen=True, kw_only=True):
    """One simulated guest; `state` is `running`, `paused`, `incoming` or `sent`."""

    instance: InstanceSpec
    state: str
    started: float
    resume: bool = True


class FakeHypervisor(Hypervisor, NoticesFaults, MeasuresGuests):
    """Simulates guests, and their memory: `memory_mib` is the total that its guests may use."""

    name: ClassVar[str] = FAKE.name

    def __init__(
        self,
        paths: Paths,
        run: Run = run,
        *,
        memory_mib: int | None = None,
        failures: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        del run
        self._directory = paths.fake_hypervisor
        self._memory_mib = memory_mib
        self._failures = failures or {}
        self._clock = clock or SystemClock()
        self._busy = asyncio.Lock()
        self._hotplug = FakeHotplug(self._change, self._meet)
        self._seen: dict[str, str] = {}
        """Instance UUID -> name of guests that were seen here and not removed since."""

    @property
    def hotplug(self) -> FakeHotplug:
        return self._hotplug

    @property
    def options(self) -> Options:
        adoption = UpstreamGuests(self, self._directory)
        return Options(hotplug=self._hotplug, faults=self, figures=self, adoption=adoption)

    async def verify(self) -> list[str]:
        try:
            await self._work("verify")
        except HypervisorError as err:
            return [str(err)]
        return []

    async def version(self) -> str:
        return "0"

    async def running(self) -> list[RunningInstance]:
        self._meet("running")
        return [self._entry(guest) for guest in self.all_guests()]

    async def one_running(self, instance_uuid: str) -> RunningInstance | None:
        self._meet("running")
        guest = self._read(instance_uuid)
        return self._entry(guest) if guest is not None else None

    async def start(
        self, instance: InstanceSpec, disk_paths: Sequence[str], *, paused: bool = False
    ) -> None:
        await self._work("start")
        guest = self._read(instance.uuid)
        if guest is not None and guest.state in ("incoming", "sent"):
            raise HypervisorError(f"{instance.name} is in a migration that was not finished")
        if guest is None:
            _check_disks(instance, disk_paths)
            self._check_memory(instance)
        if guest is None or (guest.state == "paused" and not paused):
            self.write(instance, "paused" if paused else "running")

    async def stop(self, instance: InstanceSpec, timeout_s: float) -> None:
        await self._work("stop")
        self.remove(instance)

    async def reboot(self, instance: InstanceSpec, *, soft: bool, timeout_s: float) -> None:
        self._meet("reboot")
        self._here(instance)
        self.write(instance, "running")

    async def console(self, instance: InstanceSpec) -> ConsoleInfo:
        self._here(instance)
        return ConsoleInfo(kind="msg", message="Console not available for fake hypervisor")

    async def migration_info(self, instance: InstanceSpec) -> MigrationInfo:
        self._meet("migration_info")
        guest = self._here(instance)
        return MigrationInfo(instance=guest.instance, running=guest.state == "running")

    async def accept(self, wanted: IncomingArgs, disk_paths: Sequence[str]) -> Incoming:
        await self._work("accept")
        instance = wanted.instance
        guest = self._read(instance.uuid)
        if guest is not None and guest.state != "incoming":
            raise HypervisorError(f"{instance.name} is on this node already")
        if guest is None:
            _check_disks(instance, disk_paths)
            self._check_memory(instance)
            self.write(instance, "incoming", resume=wanted.info.running)
        return Incoming(address=wanted.address, port=INCOMING_PORT)

    async def migrate(self, where: MigrateArgs) -> MigrationResult:
        await self._work("migrate")
        instance = where.instance
        guest = self._here(instance)
        if guest.state == "incoming":
            raise HypervisorError(f"{instance.name} has not arrived on this node yet")
        if guest.state != "sent":
            self.write(instance, "sent", resume=guest.state == "running")
        transferred = instance.memory * 1024 * 1024
        return MigrationResult(
            status="completed", total_ms=0, downtime_ms=0, transferred=transferred
        )

    async def finish_migration(self, instance: InstanceSpec, end: MigrationEnd) -> None:
        self._meet("finish_migration")
        guest = self._read(instance.uuid)
        if end.removes:
            _check_may_go(instance, guest, left_as="sent" if end.is_source else "incoming")
            self.remove(instance)
            return
        if guest is None:
            raise HypervisorError(f"{instance.name} does not exist on the node that should have it")
        if guest.state in ("incoming", "sent"):
            self.write(instance, "running" if guest.resume else "paused")

    async def validate(self, hvparams: Params) -> list[str]:
        return []

    def seen(self, wanted: Collection[str]) -> dict[str, Sighting]:
        """A guest whose file has disappeared has crashed."""
        for uuid in self._seen.keys() - set(wanted):
            del self._seen[uuid]
        self._seen |= {
            uuid: guest.instance.name
            for uuid in wanted
            if (guest := self._read(uuid)) is not None and guest.state in ("running", "paused")
        }
        return {
            uuid: Sighting(name, None if self._path(uuid).exists() else GuestFault.CRASHED)
            for uuid, name in self._seen.items()
        }

    async def look(self, wanted: Collection[str]) -> None:
        """Do nothing: a simulated guest neither hangs nor panics."""

    def measure(self) -> dict[str, Reading]:
        """Return plausible figures, which depend only on the instance and on the time since its guest's start."""
        now = self._clock.time()
        return {
            guest.instance.uuid: simulated_reading(guest.instance, guest.started, now)
            for guest in self.all_guests()
            if guest.state == "running"
        }

    # --- the files ---------------------------------------------------------------------------

    def _path(self, instance_uuid: str) -> Path:
        return self._directory / f"{instance_uuid}{_SUFFIX}"

    def all_guests(self) -> list[_Guest]:
        """Return all guests with a file; HypervisorError for a damaged one."""
        if not self._directory.is_dir():
            return []
        return [_decoded(path) for path in sorted(self._directory.glob(f"*{_SUFFIX}"))]

    def _read(self, instance_uuid: str) -> _Guest | None:
        path = self._path(instance_uuid)
        return _decoded(path) if path.exists() else None

    def _here(self, instance: InstanceSpec) -> _Guest:
        guest = self._read(instance.uuid)
        if guest is None:
            raise HypervisorError(f"{instance.name} does not run on this node")
        return guest

    def write(self, instance: InstanceSpec, state: str, *, resume: bool = True) -> None:
        """Set the state of a guest."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        guest = _Guest(instance=instance, state=state, started=self._clock.time(), resume=resume)
        path = self._path(instance.uuid)
        # Not synced: a power cut ends real guests, too.
        temporary = path.with_suffix(".new")
        temporary.write_bytes(encode(guest))
        temporary.replace(path)

    def _change(
        self, instance: InstanceSpec, change: Callable[[InstanceSpec], InstanceSpec]
    ) -> bool:
        """Change a guest; return False if it is not here."""
        guest = self._read(instance.uuid)
        if guest is not None:
            self.write(change(guest.instance), guest.state, resume=guest.resume)
        return guest is not None

    def remove(self, instance: InstanceSpec) -> None:
        """Remove a guest; no-op if it is not here."""
        self._path(instance.uuid).unlink(missing_ok=True)
        self._seen.pop(instance.uuid, None)

    def _meet(self, operation: str) -> None:
        """Fail if a test requests it."""
        if operation in self._failures:
            raise HypervisorError(self._failures[operation])
        switch = self._directory / f"fail-{operation}"
        if switch.exists():
            text = switch.read_text().strip()
            raise HypervisorError(text or f"{operation} fails, as {switch} requests")

    async def _work(self, operation: str) -> None:
        """Fail where a test requests it, and take the time that a test gives."""
        self._meet(operation)
        delay = self._directory / f"delay-{operation}"
        if delay.exists():
            seconds, _, how = delay.read_text().partition(" ")
            async with self._busy if how.strip() != TOGETHER else contextlib.nullcontext():
                await asyncio.sleep(float(seconds))

    def _check_memory(self, instance: InstanceSpec) -> None:
        if self._memory_mib is None:
            return
        free = self._memory_mib - sum(guest.instance.memory for guest in self.all_guests())
        if instance.memory > free:
            raise HypervisorError(
                f"{instance.name} needs {instance.memory} MiB of memory, but {free} MiB are free on this node"
            )

    def _entry(self, guest: _Guest) -> RunningInstance:
        instance = guest.instance
        return RunningInstance(
            name=instance.name,
            uuid=instance.uuid,
            hypervisor=self.name,
            memory=instance.memory,
            vcpus=instance.vcpus,
            state="postmigrate" if guest.state == "sent" else guest.state,
            cpu_time_s=max(0.0, self._clock.time() - guest.started),
        )


class UpstreamGuests(AdoptsGuests):
    """Guests that upstream simulates: a file for each, with a number, memory in MiB, and processors."""

    def __init__(self, hypervisor: FakeHypervisor, directory: Path) -> None:
        self._hypervisor, self._directory = hypervisor, directory

    def adopt(self, uuids: Mapping[str, str]) -> Adoption:
        adopted, unknown = [], []
        for path in _files_of_the_original(self._directory):
            _id, memory, vcpus = (int(line) for line in path.read_text().split())
            if path.name not in uuids:
                unknown.append(path.name)
                continue
            instance = InstanceSpec(
                name=path.name,
                uuid=uuids[path.name],
                hypervisor=FakeHypervisor.name,
                os="",
                memory=memory,
                vcpus=vcpus,
                hvparams={},
                disk_template="diskless",
            )
            self._hypervisor.write(instance, "running")
            adopted.append(path.name)
        return Adoption(tuple(adopted), unknown=tuple(unknown))

    def hidden_guests(self) -> list[str]:
        """Return no names: upstream gets a file for each."""
        return []

    def give_back(self) -> None:
        guests = {guest.instance.name: guest.instance for guest in self._hypervisor.all_guests()}
        for path in _files_of_the_original(self._directory):
            path.unlink()
        for name, instance in guests.items():
            text = f"0\n{instance.memory}\n{instance.vcpus}\n"
            write_atomically(self._directory / name, text.encode())
            self._hypervisor.remove(instance)


def _files_of_the_original(directory: Path) -> list[Path]:
    found = directory.iterdir() if directory.is_dir() else ()
    return sorted(
        path
        for path in found
        if path.suffix != _SUFFIX and not path.name.startswith(("fail-", "delay-"))
    )


def _decoded(path: Path) -> _Guest:
    try:
        return decode(path.read_bytes(), _Guest, what=str(path))
    except InputError as err:
        raise HypervisorError(f"the record of a guest is damaged: {err}") from err


def _check_disks(instance: InstanceSpec, disk_paths: Sequence[str]) -> None:
    if len(disk_paths) != len(instance.disks):
        raise HypervisorError(
            f"{instance.name} has {len(instance.disks)} disks, but {len(disk_paths)} paths were given"
        )
    for path in disk_paths:
        if not Path(path).exists():
            raise HypervisorError(f"{instance.name}: disk {path} does not exist")


def _check_may_go(instance: InstanceSpec, guest: _Guest | None, *, left_as: str) -> None:
    if guest is not None and guest.state != left_as:
        raise HypervisorError(
            f"{instance.name} runs on the node that should not have it; it was not ended"
        )
