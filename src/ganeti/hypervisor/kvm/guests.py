"""The QEMU processes of a node: their discovery, start, end and cleanup."""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from ganeti.base.errors import HostError, HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.process import Run
from ganeti.base.process_table import PROC, ProcessId
from ganeti.hypervisor.kvm import tpm
from ganeti.hypervisor.kvm.acceleration import Acceleration
from ganeti.hypervisor.kvm.command_line import DiskBackend, Resolved, nic_queues, qemu_command
from ganeti.hypervisor.kvm.confinement import Confined, Confinement
from ganeti.hypervisor.kvm.disks import resolve_disks
from ganeti.hypervisor.kvm.display import Spice, has_spice, vnc_socket
from ganeti.hypervisor.kvm.firmware import prepare
from ganeti.hypervisor.kvm.machine import Firmware, most_vcpus
from ganeti.hypervisor.kvm.monitor import MonitorGone, MonitorSilent, Talk
from ganeti.hypervisor.kvm.network import make_taps, remove_taps, tap_names
from ganeti.hypervisor.kvm.passwords import set_passwords
from ganeti.hypervisor.kvm.pci_slots import initial_slots
from ganeti.hypervisor.kvm.pinning import pin
from ganeti.hypervisor.kvm.positions import plug
from ganeti.hypervisor.kvm.processes import Processes
from ganeti.hypervisor.kvm.runtime import GuestFiles, Record, all_guest_files, boot_id
from ganeti.hypervisor.kvm.validation import spice_address
from ganeti.model.hypervisor_params import hypervisor_defaults
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params
from ganeti.rpc.procedures.instances import Lowered
from ganeti.rpc.procedures.migration import MigrationInfo

MONITOR_S = 30.0
"""The time until the monitor of a new QEMU must answer."""
QUIT_S, KILL_S = 5.0, 15.0
"""The time for QEMU to end, on request and after a kill."""
TPM_S = 2.0
"""The time for a TPM to notice that its QEMU has ended."""
LOOK_AGAIN_S = 0.02

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Guest:
    """A live QEMU process of this driver."""

    files: GuestFiles
    record: Record
    ask: Talk

    @property
    def instance(self) -> InstanceSpec:
        """The instance as its running guest has it, which may differ from its next start."""
        return self.record.instance

    @property
    def memory(self) -> int:
        """MiB that the guest may use."""
        return self.record.memory or self.record.instance.memory

    @property
    def vcpus(self) -> int:
        """The processors that the guest has."""
        return self.record.instance.vcpus + len(self.record.added_cpus)

    @property
    def most_vcpus(self) -> int:
        """The processors that the guest can have until its next start."""
        return most_vcpus(self.instance, complete(self.instance.hvparams))

    def own(self, what: str) -> "Guest":
        """Return the guest; HypervisorError if upstream started it, with other names of devices."""
        if self.record.is_adopted:
            raise HypervisorError(
                f"{self.instance.name} was started by upstream Ganeti and cannot {what}"
                " before a restart: gnt-instance reboot --type=full"
                f" {self.instance.name}"
            )
        return self

    @property
    def outlives_shutdown(self) -> bool:
        """True if QEMU remains, stopped, when the guest shuts itself down (`user_shutdown`)."""
        return bool(complete(self.record.instance.hvparams)["user_shutdown"])

    async def status(self, *, timeout_s: float = 20.0) -> str:
        """QEMU's run state, such as `running`, `paused`, `inmigrate`, `postmigrate`."""
        answer = await self.ask("query-status", timeout_s=timeout_s)
        return str(answer["status"])


@dataclass(frozen=True)
class Launch:
    """The guest to start."""

    instance: InstanceSpec
    disk_paths: Sequence[str]
    program: str
    accelerator: str
    machine: str
    is_incoming: bool = False
    resume: bool = True
    slots: Mapping[str, int] | None = None
    """The slots of an incoming guest's devices; None for a new one."""
    added_cpus: Sequence[int] = ()
    """The positions of an incoming guest's processors that were added since its start."""
    memory: int = 0
    lowered: Lowered | None = None
    disks: Sequence[DiskBackend] | None = None
    """The way to open the disks, if it is not that of their paths."""

    @classmethod
    def incoming(
        cls,
        instance: InstanceSpec,
        disk_paths: Sequence[str],
        program: str,
        accelerator: str,
        info: MigrationInfo,
        *,
        resume: bool,
    ) -> "Launch":
        """Return the launch of a guest that another QEMU describes, and that waits for its memory."""
        return cls(
            instance=instance,
            disk_paths=disk_paths,
            program=program,
            accelerator=accelerator,
            machine=info.machine,
            is_incoming=True,
            resume=resume,
            slots=info.slots,
            added_cpus=info.added_cpus,
            memory=info.memory,
            lowered=info.lowered,
        )

    @property
    def hvparams(self) -> Params:
        return complete(self.instance.hvparams)


def complete(hvparams: Params) -> Params:
    """With a value for every parameter."""
    return hypervisor_defaults("kvm") | hvparams


class Guests:
    """All guests of this node. A change needs the lock of the guest."""

    def __init__(
        self, paths: Paths, run: Run, processes: Processes, monitor: Callable[[Path], Talk]
    ) -> None:
        self._paths, self._run, self._processes, self._monitor = paths, run, processes, monitor
        self.acceleration = Acceleration(paths, run)
        self.confinement = Confinement(paths, run)
        self._locks: dict[str, asyncio.Lock] = {}
        self._monitors: dict[Path, Talk] = {}
        self.ended_alone: dict[str, str] = {}
        """Instance UUID -> name of guests whose remains were removed; their end was no request of the cluster."""

    def files(self, instance_uuid: str) -> GuestFiles:
        return GuestFiles.of(self._paths, instance_uuid)

    def lock(self, files: GuestFiles) -> asyncio.Lock:
        """The lock that is held while this guest is started, ended or moved."""
        return self._locks.setdefault(files.short_uuid, asyncio.Lock())

    def known(self) -> Iterator[GuestFiles]:
        """Return the files of all guests that have a record, alive or not."""
        return all_guest_files(self._paths)

    def here(self, instance: InstanceSpec) -> Guest:
        """Return the live guest of an instance; HypervisorError if there is none."""
        guest = self.peek(self.files(instance.uuid))
        if guest is None:
            raise HypervisorError(f"{instance.name} does not run on this node")
        return guest

    def peek(self, files: GuestFiles) -> Guest | None:
        """Return the live guest, if there is one; changes nothing."""
        record = files.read()
        if record is None or record.boot_id != boot_id():
            return None
        if not record.pid:
            found = self._processes.find(record.argv)
            if found is None:
                return None
            record = replace(record, pid=found.pid, start_ticks=found.start_ticks)
        if not self._processes.is_alive(record.process):
            return None
        return Guest(files, record, self._ask(files))

    async def live(self, files: GuestFiles) -> Guest | None:
        """Return the live guest; remove the remains of a dead one."""
        guest = self.peek(files)
        if guest is None:
            record = files.read()
            if record is not None:
                await self._clear(files, record)
                if not record.is_incoming:
                    self.ended_alone[record.instance.uuid] = record.instance.name
        else:
            self.confinement.remember(guest.record)
        return guest

    def change(self, guest: Guest, **fields: object) -> Guest:
        """Write other facts into the guest's record."""
        record = replace(guest.record, **fields)
        guest.files.write(record)
        return Guest(guest.files, record, guest.ask)

    async def launch(self, what: Launch) -> Guest:
        """Start a new QEMU, stopped before its first instruction, and wait for its monitor.

        On failure nothing remains.
        """
        files = self.files(what.instance.uuid)
        files.check_lengths()
        async with self.confinement.confined(files, what.hvparams, what.program) as confined:
            return await self._launch(what, files, confined)

    async def _launch(self, what: Launch, files: GuestFiles, confined: Confined) -> Guest:
        hvparams = what.hvparams
        disks = what.disks
        if disks is None:
            disks = resolve_disks(what.instance, what.disk_paths, str(hvparams["disk_cache"]))
        taps = tap_names(self._paths.root, what.instance)
        flash, spice = await self._firmware(what), await self._spice(hvparams)
        slots = initial_slots(what.instance) if what.slots is None else dict(what.slots)
        record = None
        try:
            files.prepare()
            resolved = Resolved(
                program=what.program,
                accelerator=what.accelerator,
                machine=what.machine,
                files=files,
                hvparams=hvparams,
                disks=disks,
                taps=taps,
                is_incoming=what.is_incoming,
                slots=slots,
                firmware=flash,
                spice=spice,
            )
            record = _new_record(what, resolved, qemu_command(what.instance, resolved))
            record = replace(
                record, argv=(*record.argv, *confined.words), pool_uid=confined.pool_uid
            )
            with self._tpm(what, files, confined) as started:
                record = replace(record, tpm_argv=tuple(started.words) if started else ())
                # Before the taps are made: after any end of this daemon, the next one knows them.
                files.write(record)
                queues = nic_queues(hvparams)
                await make_taps(
                    self._run, self._paths.root, what.instance, self._paths.etc, queues=queues
                )
                self.confinement.prepare(files, hvparams)
                if started is not None:
                    record = self._spawn_tpm(files, record, started)
                guest = await self._spawn(files, record, confined)
            await self._make_ready(guest, hvparams)
            return self.change(guest, is_prepared=True)
        except BaseException:
            if record is not None:
                await self._abandon(files, record)
            raise

    def _tpm(
        self, what: Launch, files: GuestFiles, confined: Confined
    ) -> contextlib.AbstractContextManager[tpm.Launch | None]:
        if not what.hvparams["tpm"]:
            return contextlib.nullcontext()
        uuid, is_new = what.instance.uuid, what.is_incoming
        return tpm.prepared(self._paths, files, uuid, confined.owner, is_new=is_new)

    def _spawn_tpm(self, files: GuestFiles, record: Record, how: tpm.Launch) -> Record:
        argv = [*_own_scope(record, files, "tpm"), *how.launcher, *how.words]
        process = self._processes.spawn(argv, files.qemu_log, keep=how.descriptors)
        record = replace(record, tpm_pid=process.pid, tpm_start_ticks=process.start_ticks)
        files.write(record)
        return record

    async def _firmware(self, what: Launch) -> Firmware | None:
        if what.hvparams["firmware"] != "uefi":
            return None
        return await asyncio.to_thread(prepare, self._paths, what.instance, what.disk_paths)

    async def _spice(self, hvparams: Params) -> Spice:
        address = await spice_address(self._run, hvparams) if has_spice(hvparams) else ""
        return Spice(address, self._paths.data)

    async def _make_ready(self, guest: Guest, hvparams: Params) -> None:
        """Return the commands for a new QEMU before the guest's first instruction."""
        await set_passwords(self._paths, hvparams, guest.ask)
        for position in guest.record.added_cpus:
            await plug(guest.ask, position)
        await pin(guest.ask, guest.record.pid, str(hvparams["cpu_mask"]), guest.vcpus)
        socket = vnc_socket(guest.instance, hvparams)
        if socket is not None:
            socket.chmod(0o600)

    async def end(self, guest: Guest) -> None:
        """End the process, by asking QEMU and then by force, and remove everything that belongs to it."""
        patience_s = QUIT_S
        try:
            await guest.ask("quit", timeout_s=QUIT_S)
        except MonitorSilent:
            patience_s = 0
        except HypervisorError:
            pass  # it is about to end, or refuses
        if not await self._processes.ended_within(guest.record.process, patience_s):
            await self._kill(guest.record)
        await self._clear(guest.files, guest.record)

    async def ended_within(self, guest: Guest, timeout_s: float) -> bool:
        """Wait until the guest's process has ended."""
        return await self._processes.ended_within(guest.record.process, timeout_s)

    async def clear(self, guest: Guest) -> None:
        """Remove everything that belongs to an ended process."""
        await self._clear(guest.files, guest.record)

    def cpu_time_s(self, guest: Guest) -> float:
        return self._processes.cpu_time_s(guest.record.process)

    def _ask(self, files: GuestFiles) -> Talk:
        """Return the one monitor client for all callers of a guest, so that they take turns."""
        if files.monitor not in self._monitors:
            self._monitors[files.monitor] = self._monitor(files.monitor)
        return self._monitors[files.monitor]

    async def _spawn(self, files: GuestFiles, record: Record, confined: Confined) -> Guest:
        argv = [*_own_scope(record, files, "kvm"), *confined.launcher, *record.argv]
        process = self._processes.spawn(argv, files.qemu_log, keep=confined.descriptors)
        record = replace(record, pid=process.pid, start_ticks=process.start_ticks)
        files.write(record)
        guest = Guest(files, record, self._ask(files))
        await self._wait_for_monitor(guest)
        files.restrict()
        machine = await guest.ask("qom-get", {"path": "/machine", "property": "type"})
        version = (await guest.ask("query-version"))["qemu"]
        return self.change(
            guest,
            machine=str(machine).removesuffix("-machine"),
            qemu_version=f"{version['major']}.{version['minor']}.{version['micro']}",
        )

    async def _wait_for_monitor(self, guest: Guest) -> None:
        try:
            async with asyncio.timeout(MONITOR_S):
                while True:
                    try:
                        await guest.status()
                    except MonitorGone:
                        if not self._processes.is_alive(guest.record.process):
                            raise
                    else:
                        return
                    # There is no notification of a new socket; QEMU makes it within milliseconds.
                    await asyncio.sleep(LOOK_AGAIN_S)
        except (TimeoutError, HypervisorError) as err:
            alive = self._processes.is_alive(guest.record.process)
            what = f"did not answer within {MONITOR_S:g} s" if alive else "ended at once"
            said = guest.files.qemu_said() or "it printed nothing"
            raise HypervisorError(f"QEMU for {guest.instance.name} {what}: {said}") from err

    async def _abandon(self, files: GuestFiles, record: Record) -> None:
        """Clean up after a failed start: kill its processes, remove its devices."""
        try:
            current = files.read() or record
            guest = self.peek(files)
            if guest is not None:
                current = guest.record
                await self._kill(current)
            await self._clear(files, current)
        except HostError:
            logger.exception("cleaning up after a failed start of %s", record.instance.name)

    async def _kill(self, record: Record) -> None:
        self._processes.kill(record.process)
        if not await self._processes.ended_within(record.process, KILL_S):
            raise HypervisorError(
                f"QEMU process {record.pid} of {record.instance.name} did not end after SIGKILL;"
                " it probably waits for a disk: check the node's storage"
            )

    async def _end_tpm(self, record: Record) -> None:
        """Wait for the end of the TPM; it ends with QEMU, if QEMU ever connected."""
        if record.tpm_pid:
            process: ProcessId | None = ProcessId(record.tpm_pid, record.tpm_start_ticks)
        else:
            process = self._processes.find(record.tpm_argv) if record.tpm_argv else None
        if process is None or await self._processes.ended_within(process, TPM_S):
            return
        self._processes.kill(process)
        if not await self._processes.ended_within(process, KILL_S):
            raise HypervisorError(
                f"the TPM of {record.instance.name} (process {process.pid}) did not end after SIGKILL"
            )

    async def _clear(self, files: GuestFiles, record: Record) -> None:
        await self._end_tpm(record)
        await remove_taps(self._run, record.taps)
        self._monitors.pop(files.monitor, None)
        self.ended_alone.pop(record.instance.uuid, None)
        self.confinement.clear(files, record)
        files.forget()


def _new_record(what: Launch, resolved: Resolved, argv: Sequence[str]) -> Record:
    return Record(
        instance=what.instance,
        argv=tuple(argv),
        accelerator=what.accelerator,
        boot_id=boot_id(),
        taps=tuple(resolved.taps),
        slots=dict(resolved.slots),
        added_cpus=tuple(what.added_cpus),
        memory=what.memory,
        lowered=what.lowered,
        is_incoming=what.is_incoming,
        resume=what.resume,
    )


def _own_scope(record: Record, files: GuestFiles, kind: str) -> list[str]:
    """Return the prefix that starts it outside of the node daemon's control group, which systemd ends as a whole."""
    if not Path("/run/systemd/system").is_dir() or (PROC / "1/comm").read_text() != "systemd\n":
        return []
    # Both ends of a migration may be virtual nodes of one host.
    node = hashlib.sha256(bytes(files.directory)).hexdigest()[:8]
    unit = f"ganeti-{kind}-{record.instance.uuid}-{node}"
    return ["systemd-run", "--scope", "--quiet", "--collect", f"--unit={unit}", "--"]
