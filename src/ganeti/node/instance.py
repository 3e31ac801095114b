"""Answers calls about instances: list, start, stop, console, migration."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import HypervisorError, InputError
from ganeti.hypervisor.hotplug import incoming_instance
from ganeti.hypervisor.interface import Hypervisor
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.names import DiskRole, RebootType
from ganeti.node.disks import DeviceFactory, InstanceDisks
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.host import HypervisorsArgs
from ganeti.rpc.procedures.instances import (
    INSTANCE_CONSOLE,
    INSTANCE_INFO,
    INSTANCE_REBOOT,
    INSTANCE_SHUTDOWN,
    INSTANCE_START,
    INSTANCES_INFO,
    VALIDATE_HVPARAMS,
    ConsoleInfo,
    HvParamsArgs,
    InstanceArgs,
    RebootArgs,
    RunningInstance,
    ShutdownArgs,
    StartArgs,
    Stopped,
)
from ganeti.rpc.procedures.migration import (
    MIGRATION_ACCEPT,
    MIGRATION_FINISH_SOURCE,
    MIGRATION_FINISH_TARGET,
    MIGRATION_INFO,
    MIGRATION_OBSTACLES,
    MIGRATION_RUN,
    FinishMigrationArgs,
    FitArgs,
    Incoming,
    IncomingArgs,
    MigrateArgs,
    MigrationEnd,
    MigrationInfo,
    MigrationResult,
)

log = logging.getLogger(__name__)


def handlers(
    hypervisors: Mapping[str, Hypervisor],
    device: DeviceFactory,
    locks: InstanceLocks,
    has_history: Callable[[str], bool],
) -> Handlers:
    """Return the handlers of all calls about instances; the ones that change one wait for its lock."""
    instances = _Instances(hypervisors, device, locks, has_history)
    return {
        INSTANCES_INFO.name: instances.all_running,
        INSTANCE_INFO.name: instances.one_running,
        INSTANCE_START.name: instances.start,
        INSTANCE_SHUTDOWN.name: instances.shutdown,
        INSTANCE_REBOOT.name: instances.reboot,
        INSTANCE_CONSOLE.name: instances.console,
        VALIDATE_HVPARAMS.name: instances.validate_hvparams,
        MIGRATION_INFO.name: instances.migration_info,
        MIGRATION_OBSTACLES.name: instances.migration_obstacles,
        MIGRATION_ACCEPT.name: instances.accept,
        MIGRATION_RUN.name: instances.migrate,
        MIGRATION_FINISH_SOURCE.name: instances.finish_source,
        MIGRATION_FINISH_TARGET.name: instances.finish_target,
    }


async def give_up(disks: InstanceDisks, hypervisor: Hypervisor, instance: InstanceSpec) -> None:
    """Deactivate the disks after a failed start, unless a guest uses them or may use them."""
    try:
        guest = await hypervisor.one_running(instance.uuid)
    except HypervisorError as err:
        log.warning("%s keeps its disks active, because it may run: %s", instance.name, err)
        return
    if guest is None:
        await disks.abandon()


@dataclass(frozen=True)
class _Instances:
    hypervisors: Mapping[str, Hypervisor]
    device: DeviceFactory
    locks: InstanceLocks
    has_history: Callable[[str], bool]

    def _hypervisor(self, name: str) -> Hypervisor:
        found = self.hypervisors.get(name)
        if found is None:
            known = ", ".join(sorted(self.hypervisors)) or "none"
            raise HypervisorError(f"this node has no hypervisor {name!r:.40} (it has {known})")
        return found

    async def all_running(self, args: HypervisorsArgs, _call: Call) -> list[RunningInstance]:
        asked = [self._hypervisor(name) for name in args.hypervisors]
        answers = await asyncio.gather(*(hypervisor.running() for hypervisor in asked))
        return [instance for answer in answers for instance in answer]

    async def one_running(self, args: InstanceArgs, _call: Call) -> RunningInstance | None:
        """Return one instance's state without waiting for its lock.

        It is called while others change the instance.
        """
        return await self._hypervisor(args.instance.hypervisor).one_running(args.instance.uuid)

    async def start(self, args: StartArgs, _call: Call) -> Nothing:
        instance = args.instance
        hypervisor = self._hypervisor(instance.hypervisor)
        async with self.locks.of(instance.name):
            disks = InstanceDisks(self.device, instance)
            disk_paths = await disks.open()
            try:
                await hypervisor.start(instance, disk_paths, paused=args.paused)
            except BaseException:
                await give_up(disks, hypervisor, instance)
                raise
        return Nothing()

    async def shutdown(self, args: ShutdownArgs, _call: Call) -> Stopped:
        instance = args.instance
        hypervisor = self._hypervisor(instance.hypervisor)
        async with self.locks.of(instance.name):
            await hypervisor.stop(instance, args.timeout_s)
            await InstanceDisks(self.device, instance).close()
        return Stopped(has_history=self.has_history(instance.uuid))

    async def reboot(self, args: RebootArgs, _call: Call) -> Nothing:
        if args.reboot_type not in (RebootType.SOFT, RebootType.HARD):
            raise InputError(
                f"{args.reboot_type!r:.20} is neither soft nor hard; a full reboot is a stop and a start",
                "reboot_type",
            )
        instance = args.instance
        hypervisor = self._hypervisor(instance.hypervisor)
        async with self.locks.of(instance.name):
            found = await hypervisor.one_running(instance.uuid)
            if found is not None and not found.has_guest:
                # Either end would resume the guest, while it may run at the other (G5).
                raise HypervisorError(f"{instance.name} is in an unfinished migration")
            soft = args.reboot_type == RebootType.SOFT
            await hypervisor.reboot(instance, soft=soft, timeout_s=args.timeout_s)
        return Nothing()

    async def console(self, args: InstanceArgs, _call: Call) -> ConsoleInfo:
        return await self._hypervisor(args.instance.hypervisor).console(args.instance)

    async def validate_hvparams(self, args: HvParamsArgs, _call: Call) -> list[str]:
        return await self._hypervisor(args.hypervisor).validate(args.hvparams)

    async def migration_info(self, args: InstanceArgs, _call: Call) -> MigrationInfo:
        return await self._hypervisor(args.instance.hypervisor).migration_info(args.instance)

    async def migration_obstacles(self, args: FitArgs, _call: Call) -> list[str]:
        instance = incoming_instance(args.instance, args.info.instance)
        try:
            hypervisor = self._hypervisor(instance.hypervisor)
        except HypervisorError as err:
            return [err.message]
        return await hypervisor.migration_obstacles(instance, args.info)

    async def accept(self, args: IncomingArgs, _call: Call) -> Incoming:
        """Start the guest with its present hardware, whatever the configuration assigns at its next start."""
        instance = incoming_instance(args.instance, args.info.instance)
        hypervisor = self._hypervisor(instance.hypervisor)
        async with self.locks.of(instance.name):
            disks = InstanceDisks(self.device, instance)
            disk_paths = await disks.open(DiskRole.BOTH)
            try:
                return await hypervisor.accept(replace(args, instance=instance), disk_paths)
            except BaseException:
                await give_up(disks, hypervisor, instance)
                raise

    async def migrate(self, args: MigrateArgs, _call: Call) -> MigrationResult:
        instance = args.instance
        hypervisor = self._hypervisor(instance.hypervisor)
        async with self.locks.of(instance.name):
            return await hypervisor.migrate(args)

    async def finish_source(self, args: FinishMigrationArgs, _call: Call) -> Nothing:
        return await self._finish(args, MigrationEnd.of(is_source=True, success=args.success))

    async def finish_target(self, args: FinishMigrationArgs, _call: Call) -> Nothing:
        return await self._finish(args, MigrationEnd.of(is_source=False, success=args.success))

    async def _finish(self, args: FinishMigrationArgs, end: MigrationEnd) -> Nothing:
        """Close the disks at the end that no longer has the guest."""
        instance = args.instance
        hypervisor = self._hypervisor(instance.hypervisor)
        async with self.locks.of(instance.name):
            await hypervisor.finish_migration(instance, end)
            if end.removes:
                await InstanceDisks(self.device, instance).close()
        return Nothing()
