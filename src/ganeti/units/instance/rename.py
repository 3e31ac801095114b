"""Renaming of an instance."""

from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, GuestOsError, InputError, PrereqError, RpcFailed
from ganeti.base.identifiers import host_name
from ganeti.config.fill import instance_spec, os_facts
from ganeti.config.resolve import full_name
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.backup_schedule import BackupSchedule
from ganeti.model.objects import Instance, InstanceUuid
from ganeti.model.opcodes.instance_system import OpInstanceRename
from ganeti.rpc.procedures.programs import OS_RENAME, OsRenameArgs
from ganeti.units import name_lookup
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import InstanceUnit, check_down, primary_node
from ganeti.units.instance.disks import label_disks
from ganeti.units.instance.grants import grant_primary
from ganeti.units.instance.install import osparams_with, run_script
from ganeti.units.mirrors.opening import disks_ready


@dataclass(frozen=True)
class RenamePlan:
    """The instance under its new name, and its old name."""

    instance: Instance
    old_name: str
    runs_script: bool


class LUInstanceRename(InstanceUnit[OpInstanceRename, RenamePlan]):
    """Set the new name in the installed system, then record it, in one step.

    All other references, except those of schedules of backups, are to the instance's UUID, including those of disks:
    their paths keep the name under which they were made.
    """

    hook = "instance-rename"

    def check_arguments(self) -> None:
        if host_name(self.op.new_name, "new_name") != self.op.new_name:
            raise InputError("must be in lower case", "new_name")
        name_lookup.check_arguments(name_check=self.op.name_check, ip_check=self.op.ip_check)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        self.op = replace(self.op, new_name=full_name(snapshot, self.op.new_name))
        instance = self.instance(snapshot)
        return [
            lock(Level.INSTANCE, {instance.name, self.op.new_name}),
            lock(Level.NODE, instance.all_nodes, Mode.SHARED),
        ]

    async def check_prereq(self, ctx: UnitContext) -> RenamePlan:
        snapshot, new_name = ctx.snapshot, self.op.new_name
        instance = self.instance(snapshot)
        # A rename to the same name runs the script again, for a system that missed a change.
        if new_name != instance.name and snapshot.instance_by_name(new_name):
            raise PrereqError(f"instance {new_name} exists already", ErrorCode.EXISTS)
        ctx.config.reservations.take_name(ctx.job_id, new_name)
        ctx.check_change(lambda draft: _rename(draft, instance.uuid, new_name))
        await check_down(ctx, instance, "renamed")
        await name_lookup.check_name(
            new_name, name_check=self.op.name_check, ip_check=self.op.ip_check
        )
        return RenamePlan(
            instance=replace(instance, name=new_name),
            old_name=instance.name,
            runs_script=bool(instance.os and instance.disks),
        )

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: RenamePlan
    ) -> dict[str, str]:
        return {"INSTANCE_NEW_NAME": plan.instance.name}

    async def execute(self, ctx: UnitContext, plan: RenamePlan) -> Outcome:
        instance = plan.instance
        if plan.runs_script:
            ctx.step(f"running the OS rename script of {instance.os}")
            await self._run_script(ctx, plan)
        await label_disks(ctx, instance, [disk.uuid for disk in instance.disks])
        return Outcome(
            instance.name, change=lambda draft: _rename(draft, instance.uuid, instance.name)
        )

    async def _run_script(self, ctx: UnitContext, plan: RenamePlan) -> None:
        instance = await grant_primary(ctx.config, plan.instance)
        node = primary_node(ctx, instance)
        args = OsRenameArgs(
            instance=instance_spec(ctx.snapshot, instance),
            os=instance.os,
            old_name=plan.old_name,
            osparams=osparams_with(ctx, instance),
            facts=os_facts(ctx.snapshot, instance),
            debug=int(self.op.debug_level > 0),
        )
        try:
            async with disks_ready(ctx, instance):
                await run_script(ctx, node, OS_RENAME, args)
        except RpcFailed as err:
            if err.wire_error != GuestOsError.wire_name:
                raise
            # The cluster's name of the instance does not depend on the guest's name for itself.
            ctx.warn(
                f"{err}; the instance is renamed nevertheless; change the name in its system manually"
            )


def _rename(draft: Draft, uuid: InstanceUuid, name: str) -> None:
    """Record the name of an instance, also in the schedules of backups that have the old one."""
    old = draft.instances[uuid]
    draft.put(replace(old, name=name))
    for schedule in draft.table(BackupSchedule).values():
        if old.name in schedule.instances:
            names = {name, *schedule.instances} - ({old.name} - {name})
            draft.put(replace(schedule, instances=tuple(sorted(names))))
