"""The KVM hypervisor: QEMU processes, controlled through their monitors."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.process import Run
from ganeti.hypervisor.abilities import Options
from ganeti.hypervisor.disk_moves import DiskMoveRecords
from ganeti.hypervisor.interface import Hypervisor
from ganeti.hypervisor.kvm import migration
from ganeti.hypervisor.kvm.adoption import UpstreamGuests
from ganeti.hypervisor.kvm.agents import Agents
from ganeti.hypervisor.kvm.command_line import DiskBackend
from ganeti.hypervisor.kvm.console import Consoles, console_info
from ganeti.hypervisor.kvm.disk_moves import KvmDiskMoves
from ganeti.hypervisor.kvm.drills import Drills
from ganeti.hypervisor.kvm.faults import FAILED, Faults
from ganeti.hypervisor.kvm.figures import Figures
from ganeti.hypervisor.kvm.guests import Guest, Guests, Launch, complete
from ganeti.hypervisor.kvm.holding import Holding
from ganeti.hypervisor.kvm.hotplug import KvmHotplug
from ganeti.hypervisor.kvm.links import HostLinks
from ganeti.hypervisor.kvm.live_restores import KvmLiveRestores
from ganeti.hypervisor.kvm.memory import why_not_live
from ganeti.hypervisor.kvm.migration_endpoint import MigrationEndpoint
from ganeti.hypervisor.kvm.moments import Moments
from ganeti.hypervisor.kvm.monitor import Monitor, MonitorGone, MonitorSilent, Talk
from ganeti.hypervisor.kvm.nvram import NvramFiles
from ganeti.hypervisor.kvm.processes import HostProcesses, Processes
from ganeti.hypervisor.kvm.programs import Programs
from ganeti.hypervisor.kvm.rules import accelerator
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.hypervisor.kvm.saved_guests import KvmSavedGuests
from ganeti.hypervisor.kvm.screenshot import Screens
from ganeti.hypervisor.kvm.shares import Shares
from ganeti.hypervisor.kvm.upkeep import Upkeep
from ganeti.hypervisor.kvm.validation import problems_here
from ganeti.model.hypervisors.kvm import KVM, SPICE_FILES, VNC_PASSWORD_FILE
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params
from ganeti.rpc.procedures.instances import ConsoleInfo, RunningInstance
from ganeti.rpc.procedures.migration import (
    Incoming,
    IncomingArgs,
    MigrateArgs,
    MigrationEnd,
    MigrationInfo,
    MigrationResult,
)

LOOK_S = 2.0
"""The time for a QEMU to report its state when all are listed."""
ASK_AGAIN_S = 5.0
"""A guest that is still booting misses the power button: it is pressed again."""
LOOK_EVERY_S = 0.2
FIRMWARE_RESETS_S = 3.0
"""SeaBIOS, when run before, resets the machine once more, which is not a reboot by the guest."""

logger = logging.getLogger(__name__)

_STATES = {
    "inmigrate": "incoming",
    "finish-migrate": "migrating",
    "postmigrate": "postmigrate",
    "running": "running",
    "shutdown": "shutdown",
}
"""QEMU's run states in the words of RunningInstance; all others count as `paused`."""
_MIGRATING = frozenset(("migrating", "incoming", "postmigrate"))


class KvmHypervisor(Hypervisor):
    """Guests as QEMU processes, which outlive this object and its daemon."""

    name: ClassVar[str] = KVM.name

    def __init__(
        self,
        paths: Paths,
        run: Run,
        *,
        processes: Processes | None = None,
        monitor: Callable[[Path], Talk] = Monitor,
    ) -> None:
        self._paths, self._run = paths, run
        processes = processes or HostProcesses()
        self._guests = Guests(paths, run, processes, monitor)
        self._adoption = UpstreamGuests(paths, processes)
        self._endpoint = MigrationEndpoint(paths)
        self.programs = Programs(run)
        self.hotplug = KvmHotplug(paths, run, self._guests)
        self.agents = Agents(self._guests)
        self.faults = Faults(self._guests, self.agents)
        self.figures = Figures(paths)
        self.shares = Shares(self._guests, self.hotplug.memory)
        self.screens = Screens(self._guests)
        self.nvram = NvramFiles(paths, self._guests)
        self.holding = Holding(self._guests, self.agents)
        self.moments = Moments(paths, self._guests, self.holding)
        self.disk_moves = KvmDiskMoves(DiskMoveRecords(paths), self._guests, self.holding)
        self.live_restores = KvmLiveRestores(self._guests, self._start)
        self.saved = KvmSavedGuests(self._guests, self._described, self._program_for, self.validate)
        self.upkeep = Upkeep(
            self._guests,
            self.programs,
            self._endpoint,
            self.agents,
            self.holding,
            self.disk_moves,
            self.saved,
        )

    @property
    def options(self) -> Options:
        return Options(
            hotplug=self.hotplug,
            networks=HostLinks(),
            machines=self.programs,
            screens=self.screens,
            consoles=Consoles(self._guests),
            nvram=self.nvram,
            agents=self.agents,
            holding=self.holding,
            saved=self.saved,
            moments=self.moments,
            disk_moves=self.disk_moves,
            live_restores=self.live_restores,
            drills=Drills(self.programs, self._guests.acceleration),
            faults=self.faults,
            figures=self.figures,
            shares=self.shares,
            warm_up=self.upkeep,
            upkeep=self.upkeep,
            adoption=self._adoption,
            shared_files=(VNC_PASSWORD_FILE, *SPICE_FILES),
        )

    async def verify(self) -> list[str]:
        problems = []
        try:
            await self.version()
        except HypervisorError as err:
            problems.append(str(err))
        for files in self._guests.known():
            try:
                files.read()
            except HypervisorError as err:
                problems.append(str(err))
        problems += self._guests.confinement.pool_problems()
        try:
            self._guests.files("0" * 36).check_lengths()
        except HypervisorError as err:
            problems.append(str(err))
        return problems

    async def version(self) -> str:
        return await self.programs.version_of(self.programs.find({}))

    async def running(self) -> list[RunningInstance]:
        found = await asyncio.gather(*(self._look(files) for files in list(self._guests.known())))
        return [one for one in found if one is not None]

    async def one_running(self, instance_uuid: str) -> RunningInstance | None:
        found = await self._look(self._guests.files(instance_uuid))
        return found if found is not None and found.uuid == instance_uuid else None

    async def start(
        self, instance: InstanceSpec, disk_paths: Sequence[str], *, paused: bool = False
    ) -> None:
        await self._start(instance, disk_paths, None, paused=paused)

    async def _start(
        self,
        instance: InstanceSpec,
        disk_paths: Sequence[str],
        disks: Sequence[DiskBackend] | None,
        *,
        paused: bool = False,
    ) -> None:
        files = self._guests.files(instance.uuid)
        async with self._guests.lock(files):
            guest = await self._guests.live(files)
            if guest is not None and not await self._ended_if_useless(guest):
                await self._resume(guest, paused=paused)
                return
            hvparams = complete(instance.hvparams)
            program = self.programs.find(hvparams)
            guest = await self._guests.launch(
                Launch(
                    instance=instance,
                    disk_paths=disk_paths,
                    program=program,
                    accelerator=await self._guests.acceleration.choose(
                        accelerator(hvparams), program
                    ),
                    machine=str(hvparams["machine_version"]),
                    disks=disks,
                )
            )
            if not paused:
                await self._first_go(guest)

    async def stop(self, instance: InstanceSpec, timeout_s: float) -> None:
        files = self._guests.files(instance.uuid)
        async with self._guests.lock(files):
            guest = await self._guests.live(files)
            if guest is None:
                self._guests.ended_alone.pop(instance.uuid, None)
                return
            if timeout_s > 0 and await self._ends_when_asked(guest, timeout_s):
                await self._guests.clear(guest)
            else:
                await self._guests.end(guest)

    async def reboot(self, instance: InstanceSpec, *, soft: bool, timeout_s: float) -> None:
        files = self._guests.files(instance.uuid)
        async with self._guests.lock(files):
            guest = self._guests.here(instance)
            if soft:
                # After the guest's own shutdown QEMU stays stopped, to be reset and continued.
                await guest.ask("set-action", {"shutdown": "pause"})
                try:
                    await self._shuts_down(guest, timeout_s)
                finally:
                    if not guest.outlives_shutdown:
                        await guest.ask("set-action", {"shutdown": "poweroff"})
            exits = complete(guest.instance.hvparams)["reboot_behavior"] == "exit"
            if exits:
                await guest.ask("set-action", {"reboot": "reset"})
            await guest.ask("system_reset")
            await guest.ask("cont")
            self.faults.forget(guest)
            if exits:
                await asyncio.sleep(FIRMWARE_RESETS_S)
                await guest.ask("set-action", {"reboot": "shutdown"})

    async def console(self, instance: InstanceSpec) -> ConsoleInfo:
        return console_info(self._guests.here(instance))

    async def migration_info(self, instance: InstanceSpec) -> MigrationInfo:
        files = self._guests.files(instance.uuid)
        async with self._guests.lock(files):
            _guest, info = await self._described(instance)
        return replace(
            info, mirrors_disks=True, certificate=self._endpoint.certificate(instance.uuid)
        )

    async def _described(self, instance: InstanceSpec) -> tuple[Guest, MigrationInfo]:
        """Return a guest, whose lock is held, and the facts that another QEMU needs to continue it."""
        guest = await self.hotplug.reconciled(self._guests.here(instance).own("move live"))
        info = MigrationInfo(
            instance=guest.instance,
            slots=guest.record.slots,
            added_cpus=guest.record.added_cpus,
            memory=guest.record.memory,
            lowered=guest.record.lowered,
            machine=guest.record.machine,
            qemu_version=guest.record.qemu_version,
            accelerator=guest.record.accelerator,
            running=await guest.status() == "running",
            obstacle=why_not_live(guest),
        )
        return guest, info

    async def migration_obstacles(self, instance: InstanceSpec, info: MigrationInfo) -> list[str]:
        try:
            await self._program_for(instance, info)
        except HypervisorError as err:
            return [err.message]
        return []

    async def _program_for(self, instance: InstanceSpec, info: MigrationInfo) -> tuple[str, str]:
        """Return the program and the accelerator that can continue a guest; HypervisorError if there are none."""
        hvparams = complete(instance.hvparams)
        program = self.programs.find(hvparams)
        chosen = await self._guests.acceleration.choose(accelerator(hvparams), program)
        migration.check_compatible(
            info, accelerator=chosen, version=await self.programs.version_of(program)
        )
        return program, chosen

    async def accept(self, wanted: IncomingArgs, disk_paths: Sequence[str]) -> Incoming:
        instance, info = wanted.instance, wanted.info
        files = self._guests.files(instance.uuid)
        async with self._guests.lock(files):
            guest = await self._guests.live(files)
            if guest is not None and not await self._ended_if_half_accepted(guest):
                return await self._accepted_before(guest, wanted.address)
            program, chosen = await self._program_for(instance, info)
            launch = Launch.incoming(
                instance, disk_paths, program, chosen, info, resume=info.running
            )
            guest = await self._guests.launch(launch)
            try:
                incoming = await self._endpoint.listen(guest, wanted)
                self._guests.change(
                    guest,
                    port=incoming.port,
                    disks_port=incoming.disks_port,
                    certificate=incoming.certificate,
                )
            except BaseException:
                await self._guests.end(guest)
                raise
            return incoming

    async def migrate(self, where: MigrateArgs) -> MigrationResult:
        instance = where.instance
        files = self._guests.files(instance.uuid)
        async with self._guests.lock(files):
            guest = self._guests.here(instance)
            if guest.record.is_incoming:
                raise HypervisorError(
                    f"{instance.name} has only arrived here, and that migration is not finished"
                )
            status = await guest.status()
            if where.live and status == "running" and (why := why_not_live(guest)):
                raise HypervisorError(f"{why}; migrate it with --non-live")
            if status in ("running", "paused", "prelaunch") and not guest.record.stopped_to_move:
                stops = status == "running" and not where.live
                guest = self._guests.change(
                    guest, resume=status == "running", stopped_to_move=stops
                )
            if guest.record.stopped_to_move and status == "running":
                await guest.ask("stop")
            result = await self._endpoint.send(guest, where)
            if result.status != "completed" and guest.record.stopped_to_move:
                await guest.ask("cont")
                self._guests.change(guest, stopped_to_move=False)
            return result

    async def finish_migration(self, instance: InstanceSpec, end: MigrationEnd) -> None:
        files = self._guests.files(instance.uuid)
        async with self._guests.lock(files):
            match end:
                case MigrationEnd.END_SOURCE:
                    await self._end_source(files, instance)
                case MigrationEnd.RESUME_SOURCE:
                    await self._resume_source(files, instance)
                case MigrationEnd.END_TARGET:
                    await self._end_target(files, instance)
                case MigrationEnd.RESUME_TARGET:
                    await self._resume_target(files, instance)

    async def validate(self, hvparams: Params) -> list[str]:
        filled = complete(hvparams)
        try:
            program = self.programs.find(filled)
            problems = await problems_here(self._paths, self._run, program, filled)
            await self._guests.acceleration.choose(accelerator(filled), program)
        except HypervisorError as err:
            return [str(err)]
        return problems

    # --- pieces of the operations above ------------------------------------------------------

    async def _look(self, files: GuestFiles) -> RunningInstance | None:
        """Return one entry of the list; a QEMU that does not answer counts as running."""
        try:
            guest = await self._cleaned(files)
            if guest is None:
                return None
            state = await self._state(guest)
            if state is None:
                await self._cleaned(files)
        except HypervisorError as err:
            logger.error("%s", err)  # noqa: TRY400 - the sentence is for people, the traceback adds nothing
            return None
        if state is None:
            return None
        if guest.record.is_incoming and state != "running":
            state = "incoming"  # it may have arrived, but was not resumed
        elif guest.record.stopped_to_move and state == "paused":
            state = "migrating"
        instance = guest.instance
        return RunningInstance(
            name=instance.name,
            uuid=instance.uuid,
            hypervisor=self.name,
            memory=guest.memory,
            vcpus=guest.vcpus,
            lowered=guest.record.lowered,
            state=state,
            cpu_time_s=self._guests.cpu_time_s(guest),
        )

    async def _cleaned(self, files: GuestFiles) -> Guest | None:
        """Return the live guest, after removing a dead one, unless another task works on it."""
        lock = self._guests.lock(files)
        if lock.locked():
            return self._guests.peek(files)
        async with lock:
            return await self._guests.live(files)

    async def _state(self, guest: Guest) -> str | None:
        try:
            return _STATES.get(await guest.status(timeout_s=LOOK_S), "paused")
        except MonitorSilent:
            return "running"
        except MonitorGone:
            return None if self._guests.peek(guest.files) is None else "running"

    async def _ended_if_useless(self, guest: Guest) -> bool:
        """Stop a QEMU whose guest cannot continue: it ended itself or failed, or its start was incomplete."""
        if guest.record.is_incoming:
            return False
        try:
            status = await self._first_status(guest)
        except MonitorSilent:
            return False
        was_never_ready = status == "prelaunch" and not guest.record.is_prepared
        is_over = _STATES.get(status) == "shutdown" or status in FAILED or self.faults.of(guest)
        if not is_over and not was_never_ready:
            return False
        await self._guests.end(guest)
        return True

    async def _first_status(self, guest: Guest) -> str:
        """Return the state of a QEMU that an earlier daemon may have just started: wait for its monitor."""
        for _ in range(round(ASK_AGAIN_S / LOOK_EVERY_S)):
            with contextlib.suppress(MonitorGone):
                return await guest.status()
            if self._guests.peek(guest.files) is None:
                break
            await asyncio.sleep(LOOK_EVERY_S)
        return await guest.status()

    async def _resume(self, guest: Guest, *, paused: bool) -> None:
        """Handle a start of an existing guest."""
        name = guest.instance.name
        try:
            status = await guest.status()
        except MonitorSilent:
            return
        if guest.record.is_incoming or _STATES.get(status) in _MIGRATING:
            raise HypervisorError(
                f"{name} is in an unfinished migration on this node (QEMU reports {status});"
                " find the node that runs it, and finish or clean up that migration"
            )
        if status != "running" and not paused:
            await self._run_on(guest)
            if guest.record.is_restored:
                self._guests.change(guest, is_restored=False)
                await self.agents.set_time(guest)

    async def _first_go(self, guest: Guest) -> None:
        try:
            await self._run_on(guest)
        except BaseException:
            await self._guests.end(guest)
            raise

    async def _run_on(self, guest: Guest) -> None:
        """Resume a guest; HypervisorError if it does not run then."""
        await guest.ask("cont")
        status = await guest.status()
        if status == "suspended":
            await guest.ask("system_wakeup")
        elif _STATES.get(status, "paused") == "paused":
            raise HypervisorError(
                f"{guest.instance.name} should run but is stopped: QEMU reports {status};"
                f" its log is {guest.files.qemu_log}"
            )

    async def _ends_when_asked(self, guest: Guest, timeout_s: float) -> bool:
        """Press the power button until the guest has ended; return False after `timeout_s`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        try:
            if guest.outlives_shutdown:
                # Requested by the cluster, so not a shutdown by the user.
                action = {"shutdown": "poweroff"}
                await guest.ask("set-action", action, timeout_s=min(LOOK_S, timeout_s))
            if await guest.status(timeout_s=min(LOOK_S, timeout_s)) != "running":
                return False
            is_first = True
            while (left := deadline - loop.time()) > 0:
                await guest.ask("system_powerdown", timeout_s=left)
                if not is_first:  # it missed the button
                    await self.agents.shutdown(guest)
                is_first = False
                if await self._guests.ended_within(guest, min(ASK_AGAIN_S, left)):
                    return True
        except MonitorGone:
            return await self._guests.ended_within(guest, ASK_AGAIN_S)
        except HypervisorError:
            return False
        return False

    async def _shuts_down(self, guest: Guest, timeout_s: float) -> None:
        """Press the power button, and wait at most `timeout_s` until the guest has shut down."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        press_at = loop.time()
        while loop.time() < deadline and await guest.status() == "running":
            if loop.time() >= press_at:
                await guest.ask("system_powerdown")
                press_at = loop.time() + ASK_AGAIN_S
            await asyncio.sleep(LOOK_EVERY_S)

    async def _ended_if_half_accepted(self, guest: Guest) -> bool:
        """Stop a QEMU that waits at an unreported address: an earlier daemon died before its answer."""
        if not guest.record.is_incoming or guest.record.port:
            return False
        await self._guests.end(guest)
        return True

    async def _accepted_before(self, guest: Guest, address: str) -> Incoming:
        if guest.record.is_incoming and guest.record.port and await guest.status() == "inmigrate":
            return Incoming(
                address=address,
                port=guest.record.port,
                disks_port=guest.record.disks_port,
                certificate=guest.record.certificate,
            )
        raise HypervisorError(
            f"{guest.instance.name} has a QEMU process on this node already; if it belongs to a"
            " failed migration, clean up that migration first"
        )

    async def _end_source(self, files: GuestFiles, instance: InstanceSpec) -> None:
        guest = await self._guests.live(files)
        self._endpoint.over(instance.uuid)
        if guest is None:
            return
        async with guest.ask.conversation():
            if not await migration.has_left(guest.ask):
                raise HypervisorError(
                    f"{instance.name} still runs on the node that should have sent it; it was not ended"
                )
            await self._guests.end(guest)

    async def _resume_source(self, files: GuestFiles, instance: InstanceSpec) -> None:
        guest = await self._guests.live(files)
        if guest is None:
            raise HypervisorError(f"{instance.name} does not exist on the node that should keep it")
        await self._endpoint.take_back(guest)
        self._guests.change(guest, stopped_to_move=False)

    async def _end_target(self, files: GuestFiles, instance: InstanceSpec) -> None:
        guest = await self._guests.live(files)
        if guest is None:
            return
        if not guest.record.is_incoming or await self._is_known_to_run(guest):
            raise HypervisorError(
                f"{instance.name} runs on the target node of a migration that was reported as failed;"
                " not ended"
            )
        await self._guests.end(guest)

    async def _resume_target(self, files: GuestFiles, instance: InstanceSpec) -> None:
        guest = await self._guests.live(files)
        if guest is None:
            raise HypervisorError(f"{instance.name} did not arrive on this node")
        if guest.record.is_incoming:
            await self._endpoint.activate(guest)
            self._guests.change(guest, is_incoming=False)

    async def _is_known_to_run(self, guest: Guest) -> bool:
        try:
            return await guest.status(timeout_s=LOOK_S) == "running"
        except (MonitorSilent, MonitorGone):
            return False
