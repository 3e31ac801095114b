"""Repair of the disks of an instance: broken disks on its primary node, and split-brain copies."""

from dataclasses import dataclass

from ganeti.base.errors import ErrorCode, ExecError, PrereqError
from ganeti.config.fill import disk_spec
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.layouts.places import creation_order
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.mirror_states import LOST, MirrorState
from ganeti.model.names import DiskRole
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.model.opcodes.instance_changes import OpInstanceReplaceDisks
from ganeti.model.opcodes.mirrors import OpInstanceRepair
from ganeti.rpc.procedures.disks import (
    BLOCKDEV_ASSEMBLE,
    BLOCKDEV_DISCARD,
    BLOCKDEV_OUTDATE,
    DiskArgs,
    OpenDiskArgs,
)
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import (
    InstanceUnit,
    check_not_migrating,
    is_running,
    primary_node,
)
from ganeti.units.instance.disks import close_disks, is_mirrored, open_disks, wait_for_sync
from ganeti.units.mirrors.current import keep_copies
from ganeti.units.mirrors.judge import OFFLINE, Seen, Verdict, problem
from ganeti.units.mirrors.look import settled_verdicts, verdicts_of
from ganeti.units.mirrors.opening import prepare_primary
from ganeti.units.node_choice import check_online
from ganeti.units.relocation.replace_disks import ReplaceMode
from ganeti.units.undo.disks import SetDiskRole


@dataclass(frozen=True)
class RepairPlan:
    """The broken disks on the primary node, or the copy to keep, and the disks concerned."""

    instance: Instance
    broken: tuple[int, ...] = ()
    keep: Node | None = None
    parted: tuple[int, ...] = ()
    is_up: bool = False


class LUInstanceRepair(InstanceUnit[OpInstanceRepair, RepairPlan]):
    """Submit a replacement of broken disks on the primary node (S98), or keep one of two split-brain copies."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        instance = self.instance(snapshot)
        mode = Mode.EXCLUSIVE if self.op.keep else Mode.SHARED
        return [
            lock(Level.INSTANCE, instance.name, mode),
            lock(Level.NODE, instance.all_nodes, Mode.SHARED),
        ]

    async def check_prereq(self, ctx: UnitContext) -> RepairPlan:
        instance = self.instance(ctx.snapshot)
        check_not_migrating(instance)
        if not is_mirrored(instance):
            raise PrereqError(
                f"the disks of {instance.name} (template {instance.disk_template}) have no other copy to repair them from",
                ErrorCode.WRONG_STATE,
            )
        verdicts = await verdicts_of(ctx, instance)
        if self.op.keep:
            return await self._choice(ctx, instance, verdicts, self.op.keep)
        parted = next((one for one in verdicts if one.state is MirrorState.SPLIT_BRAIN), None)
        if parted is not None:
            found = problem(parted, instance.name, is_up=True)
            raise PrereqError(f"name the copy to keep: {found}", ErrorCode.WRONG_STATE)
        return RepairPlan(instance, tuple(_broken(instance, verdicts)))

    async def _choice(
        self, ctx: UnitContext, instance: Instance, verdicts: list[Verdict], name: str
    ) -> RepairPlan:
        """Return the plan that keeps the copies of one node.

        Refused if the other copy is in use, or without a split brain.
        """
        keep, primary = resolve_node(ctx.snapshot, name), primary_node(ctx, instance)
        if keep.uuid not in instance.all_nodes:
            raise PrereqError(
                f"{keep.name} has no copy of the disks of {instance.name}", ErrorCode.WRONG_INPUT
            )
        check_online(keep)
        parted = [
            one.disk
            for one in verdicts
            if _needs_choice(one, keep.name) or _lacks_writes(instance, one, keep)
        ]
        if not parted:
            states = ", ".join(f"disk/{one.disk} is {one.state}" for one in verdicts)
            raise PrereqError(
                f"the copies of {instance.name} have no split brain, so there is no copy to choose: {states}",
                ErrorCode.WRONG_STATE,
            )
        is_up = not primary.offline and await is_running(ctx, primary, instance)
        if is_up and keep.uuid != primary.uuid:
            raise PrereqError(
                f"{instance.name} runs on {primary.name} and writes to the copy there; to keep that of {keep.name},"
                f" first run: gnt-instance shutdown {instance.name}",
                ErrorCode.WRONG_STATE,
            )
        if keep.uuid != primary.uuid and primary.offline:
            raise PrereqError(
                f"{primary.name}, the primary node of {instance.name}, is marked offline; to use the copy on"
                f" {keep.name}: gnt-instance failover --ignore-consistency {instance.name}",
                ErrorCode.WRONG_STATE,
            )
        return RepairPlan(instance, keep=keep, parted=tuple(parted), is_up=is_up)

    async def execute(self, ctx: UnitContext, plan: RepairPlan) -> Outcome:
        if plan.keep is not None:
            await _keep(ctx, plan, plan.keep)
            return Outcome({"jobs": []})
        if not plan.broken:
            ctx.info(f"the disks of {plan.instance.name} are complete on its primary node")
            return Outcome({"jobs": []})
        replacement = OpInstanceReplaceDisks(
            instance_name=plan.instance.name,
            mode=str(ReplaceMode.PRIMARY),
            disks=list(plan.broken),
            early_release=self.op.early_release,
        )
        return Outcome(jobs=[[replacement]])

    def dry_run_result(self, ctx: UnitContext, plan: RepairPlan) -> list[int]:
        del ctx
        return [*plan.broken, *plan.parted]


def _broken(instance: Instance, verdicts: list[Verdict]) -> list[int]:
    """Return the disks that are broken on the primary node and complete on the other one."""
    found = []
    for verdict in verdicts:
        primary, *others = verdict.states
        if primary not in LOST:
            continue
        if any(other in (*LOST, MirrorState.UNKNOWN) for other in others):
            raise PrereqError(
                f"disk {verdict.disk} of {instance.name} is {primary} on {verdict.primary.node}, and incomplete on its"
                " other node: no copy can repair it",
                ErrorCode.WRONG_STATE,
            )
        found.append(verdict.disk)
    return found


def _needs_choice(verdict: Verdict, keep: str) -> bool:
    """Return whether the copies diverged, or the copy to keep lacks writes that only a dead node has."""
    if verdict.state is MirrorState.SPLIT_BRAIN:
        return True
    is_alone = any(part.why == OFFLINE for part in verdict.others(keep))
    return is_alone and verdict.of(keep)[1] is MirrorState.STALE


def _lacks_writes(instance: Instance, verdict: Verdict, keep: Node) -> bool:
    """Return whether the grant of the disk says that only a dead node has all of its writes."""
    grant = instance.disks[verdict.disk].grant
    is_alone = any(part.why == OFFLINE for part in verdict.others(keep.name))
    return is_alone and grant is not None and keep.uuid not in grant.current


# --- keeping one copy ---


async def _keep(ctx: UnitContext, plan: RepairPlan, keep: Node) -> None:
    """Fill the other copy from the one to keep; without a link it is marked as out of date until then."""
    instance = plan.instance
    (other,) = (ctx.snapshot.nodes[uuid] for uuid in instance.all_nodes if uuid != keep.uuid)
    async with ctx.undo_log() as undo:
        for uuid in creation_order(instance):
            await undo.push(SetDiskRole(node=uuid, instance=instance.uuid))
        if other.offline:
            ctx.step(
                f"using the copy on {keep.name} without that on {other.name}, which is offline"
            )
            await open_disks(ctx, instance, keep, DiskRole.SECONDARY)
            await prepare_primary(ctx, instance, force=True)
        else:
            ctx.step(f"keeping the copy on {keep.name}; that on {other.name} is replaced by it")
            await _fill(ctx, plan, keep, other)
        undo.commit()
    if not plan.is_up:
        for uuid in instance.all_nodes:
            if not ctx.snapshot.nodes[uuid].offline:
                await close_disks(ctx, instance, ctx.snapshot.nodes[uuid])


async def _fill(ctx: UnitContext, plan: RepairPlan, keep: Node, other: Node) -> None:
    """Connect the copies so that DRBD discards the writes of one of them, and wait until they are the same."""
    uuid = NodeUuid(keep.uuid)
    instance = await keep_copies(ctx, plan.instance, uuid, plan.parted, is_up=plan.is_up)
    for at in plan.parted:
        disk = disk_spec(ctx.snapshot, instance, at, NodeUuid(other.uuid))
        await ctx.call(other, BLOCKDEV_DISCARD, DiskArgs(instance_name=instance.name, disk=disk))
    role = DiskRole.PRIMARY if plan.is_up else DiskRole.SECONDARY
    for at in range(len(instance.disks)):
        disk = disk_spec(ctx.snapshot, instance, at, NodeUuid(keep.uuid))
        args = OpenDiskArgs(instance_name=instance.name, disk=disk, role=role)
        await ctx.call(keep, BLOCKDEV_ASSEMBLE, args)
        if at not in plan.parted:
            there = disk_spec(ctx.snapshot, instance, at, NodeUuid(other.uuid))
            what = OpenDiskArgs(instance_name=instance.name, disk=there, role=DiskRole.SECONDARY)
            await ctx.call(other, BLOCKDEV_ASSEMBLE, what)
    verdicts = [one for one in await settled_verdicts(ctx, instance) if one.disk in plan.parted]
    cut = [one for one in verdicts if not one.primary.is_connected]
    if not cut:
        ctx.step("waiting for the copies to be the same")
        await wait_for_sync(ctx, instance)
        return
    for verdict in cut:
        disk = disk_spec(ctx.snapshot, instance, verdict.disk, NodeUuid(other.uuid))
        await ctx.call(other, BLOCKDEV_OUTDATE, DiskArgs(instance_name=instance.name, disk=disk))
    if _is_dropped(cut):
        raise ExecError(
            f"{keep.name} and {other.name} have ended the connection of the disks of {instance.name} again"
            f" ({'; '.join(str(problem(one, instance.name, is_up=True)) for one in cut)})"
        )
    ctx.warn(
        f"{keep.name} and {other.name} do not reach each other over the replication network; the copy on"
        f" {other.name} is marked as out of date. When the link works again, run:"
        f" gnt-instance repair-disks --keep={keep.name} {instance.name}"
    )


def _is_dropped(verdicts: list[Verdict]) -> bool:
    def dropped(part: Seen) -> bool:
        return part.copy is not None and part.copy.dropped

    return any(dropped(part) for verdict in verdicts for part in verdict.parts)
