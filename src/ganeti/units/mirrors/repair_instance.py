"""Mending the disks of an instance on its primary node."""

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.opcodes.instance_changes import OpInstanceReplaceDisks
from ganeti.model.opcodes.mirrors import OpInstanceRepair
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import InstanceUnit, check_not_migrating
from ganeti.units.instance.disks import is_mirrored
from ganeti.units.instance.replace_disks import ReplaceMode
from ganeti.units.mirrors.disk_status import parts_of
from ganeti.units.mirrors.judge import DiskState, judge

BAD = (DiskState.MISSING, DiskState.BROKEN)


class LUInstanceRepair(InstanceUnit[OpInstanceRepair, list[int]]):
    """Submit a replacement of what is broken on the primary node; the secondary's side is never touched (S98)."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        instance = self.instance(snapshot)
        return [
            lock(Level.INSTANCE, instance.name, Mode.SHARED),
            lock(Level.NODE, instance.all_nodes, Mode.SHARED),
        ]

    async def check_prereq(self, ctx: UnitContext) -> list[int]:
        """The disks to mend: broken on the primary, whole on the secondary."""
        instance = self.instance(ctx.snapshot)
        check_not_migrating(instance)
        if not is_mirrored(instance):
            raise PrereqError(
                f"the disks of {instance.name} (template {instance.disk_template}) have no copy to be mended from",
                ErrorCode.WRONG_STATE,
            )
        broken = []
        for parts in await parts_of(ctx, instance):
            primary, *others = judge(parts, mirrored=True)
            if primary not in BAD:
                continue
            if any(other in (*BAD, DiskState.UNKNOWN) for other in others):
                raise PrereqError(
                    f"disk {parts[0].disk} of {instance.name} is {primary} on {parts[0].node}, and not whole on its"
                    " other node: there is nothing to mend it from",
                    ErrorCode.WRONG_STATE,
                )
            broken.append(parts[0].disk)
        return broken

    async def execute(self, ctx: UnitContext, plan: list[int]) -> Outcome:
        instance = self.instance(ctx.snapshot)
        if not plan:
            ctx.info(f"the disks of {instance.name} are whole on its primary node")
            return Outcome({"jobs": []})
        mend = OpInstanceReplaceDisks(
            instance_name=instance.name,
            mode=str(ReplaceMode.PRIMARY),
            disks=plan,
            early_release=self.op.early_release,
        )
        return Outcome(jobs=[[mend]])

    def dry_run_result(self, ctx: UnitContext, plan: list[int]) -> list[int]:
        del ctx
        return plan
