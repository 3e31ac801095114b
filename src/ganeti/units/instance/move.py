"""Moving an instance together with its disks, while it is down."""

from dataclasses import dataclass

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.fill import filled_beparams
from ganeti.config.nvram import has_nvram
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import space_needed
from ganeti.jobs.executor import Outcome
from ganeti.jobs.undo_log import UndoLog
from ganeti.layouts.places import Way, relocate
from ganeti.locking.requests import LockRequest
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.model.opcodes.moving import OpInstanceMove
from ganeti.rpc.procedures.disks import BLOCKDEV_REMOVE, DiskArgs
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import text
from ganeti.units.instance.access import (
    HookNodes,
    InstanceUnit,
    check_not_migrating,
    check_nothing_there,
    check_shutdown_timeout,
    primary_node,
    running_state,
    spec_of,
)
from ganeti.units.instance.disks import close_secondaries, make_disk
from ganeti.units.instance.failover import shut_down_source
from ganeti.units.instance.nic_checks import check_links
from ganeti.units.instance.nvram import copy_nvram, forget_nvram_step
from ganeti.units.instance.pending import check_nothing_pending
from ganeti.units.instance.power import start_instance, stopped
from ganeti.units.instance.reconcile_migration import record_primary
from ganeti.units.instance.replace_disks import (
    ReplacePlan,
    plan_new_secondary,
    replace_parts,
)
from ganeti.units.instance.targets import MOVE, TargetChoice
from ganeti.units.mirrors.opening import check_copy, check_source
from ganeti.units.node_choice import check_memory, check_online, check_space, free_resources
from ganeti.units.relocation.copying import DiskCopies
from ganeti.units.spindles import check_spindles
from ganeti.units.undo.disks import RemoveDisk, removals
from ganeti.units.undo.step import Step

COMPRESSIONS = ("none", "gzip", "gzip-fast", "gzip-slow")


@dataclass(frozen=True)
class MovePlan:
    """Which instance goes from where to where, and whether it runs afterwards."""

    instance: Instance
    source: Node
    target: Node
    start: bool
    way: Way
    new_secondary: ReplacePlan | None
    """How a third node gets a copy first."""


class LUInstanceMove(InstanceUnit[OpInstanceMove, MovePlan]):
    """Stop an instance, copy its disks to another node, and start it there; or leave it where it was."""

    hook = "instance-move"

    @property
    def _choice(self) -> TargetChoice:
        op = self.op
        return TargetChoice(op.target_node_uuid or op.target_node, ignore_policy=op.ignore_ipolicy)

    def check_arguments(self) -> None:
        check_shutdown_timeout(self.op.shutdown_timeout, "shutdown_timeout")
        if self.op.compress not in COMPRESSIONS:
            raise InputError(f"must be one of {', '.join(COMPRESSIONS)}", "compress")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return self._choice.locks(snapshot, self.instance(snapshot))

    async def check_prereq(self, ctx: UnitContext) -> MovePlan:
        instance = self.instance(ctx.snapshot)
        check_not_migrating(instance)
        check_nothing_pending(ctx, instance, to=MOVE)
        template = DISK_TEMPLATES[instance.disk_template]
        if template.shared or not template.has_disks:
            raise PrereqError(
                f"disk template {template.name} of {instance.name} needs no copy: use gnt-instance migrate or failover",
                ErrorCode.WRONG_STATE,
            )
        source = primary_node(ctx, instance)
        check_online(source)
        target = await self._choice.choose(ctx, instance, source, verb=MOVE)
        start = instance.admin_state is AdminState.UP
        way = relocate(instance, NodeUuid(target.uuid)).way
        await self._check_target(ctx, instance, target, start=start, makes=way is not Way.SWAP)
        if way is Way.SWAP:
            await check_copy(ctx, instance, target, to=MOVE, force=self.op.ignore_consistency)
        if way is Way.REPLACE:
            await check_source(ctx, instance, source, range(len(instance.disks)))
        # Its guest is stopped before the copies are made the same, so nothing else writes to them.
        new = plan_new_secondary(ctx, instance, target, is_up=False) if way is Way.REPLACE else None
        return MovePlan(instance, source, target, start, way, new)

    async def _check_target(
        self, ctx: UnitContext, instance: Instance, target: Node, *, start: bool, makes: bool
    ) -> None:
        what = f"moving instance {instance.name}"
        needs = space_needed(ctx.snapshot.cluster, instance.disks)
        info = await free_resources(ctx, target, what, needs)
        memory = filled_beparams(ctx.snapshot.cluster, instance)["maxmem"]
        check_memory(info, target, memory if start else 0, what)
        if makes:
            check_space(info, target, needs)
            check_spindles(ctx.snapshot, info, target, instance.disks)
        if start:
            await check_links(ctx, target, instance)
        check_nothing_there(await running_state(ctx, target, instance), target, instance)

    def hook_nodes(self, before: Instance, plan: MovePlan) -> HookNodes:
        nodes = [before.primary_node, plan.target.uuid]
        return nodes, nodes

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: MovePlan
    ) -> dict[str, str]:
        return {
            "TARGET_NODE": plan.target.name,
            "SHUTDOWN_TIMEOUT": text(self.op.shutdown_timeout),
        }

    async def execute(self, ctx: UnitContext, plan: MovePlan) -> Outcome:
        instance, source, target = plan.instance, plan.source, plan.target
        ctx.log(f"Moving instance {instance.name} from {source.name} to {target.name}")
        async with stopped(ctx, instance, restart=plan.start) as restart:
            await shut_down_source(ctx, instance, source, self.op.shutdown_timeout)
            if plan.new_secondary is not None:
                await replace_parts(ctx, plan.new_secondary, early_release=False)
            await self._switch(ctx, plan)
            restart.commit()
            moved = ctx.snapshot.instances[InstanceUuid(instance.uuid)]
            if plan.start:
                ctx.step(f"starting the instance on {target.name}")
                await start_instance(ctx, moved, force=self.op.ignore_consistency)
            else:
                await close_secondaries(ctx, moved)
        return Outcome([target.name])

    async def _switch(self, ctx: UnitContext, plan: MovePlan) -> None:
        """Let the target have all that the instance needs, and be its node."""
        instance, source, target = plan.instance, plan.source, plan.target
        copied = plan.way is Way.COPY
        async with ctx.undo_log() as undo:
            if copied:
                await self._copy_disks(ctx, undo, plan)
            await copy_nvram(ctx, undo, instance, source, target)
            switch = record_primary(InstanceUuid(instance.uuid), NodeUuid(target.uuid))
            if copied:
                ctx.step(f"removing the disks on {source.name}")
            undo.commit(switch, then=_superfluous(ctx, instance, source, disks=copied))

    async def _copy_disks(self, ctx: UnitContext, undo: UndoLog, plan: MovePlan) -> None:
        spec = spec_of(ctx, plan.instance)
        copies = DiskCopies(ctx, undo, spec, plan.source, plan.target, self.op.compress)
        for disk in spec.disks:
            what = DiskArgs(instance_name=spec.name, disk=disk)
            ctx.step(f"copying disk {disk.index} ({disk.size} MiB)")
            await undo.push(RemoveDisk(node=plan.target.uuid, instance=spec.name, disk=disk.public))
            # What an earlier attempt left there is not zeros.
            await ctx.call(plan.target, BLOCKDEV_REMOVE, what)
            await make_disk(ctx, plan.target, what)
            await copies.copy(disk, disk)


def _superfluous(ctx: UnitContext, instance: Instance, node: Node, *, disks: bool) -> list[Step]:
    """The steps that leave nothing of an instance on the node that it has left."""
    steps = removals(NodeUuid(node.uuid), spec_of(ctx, instance)) if disks else []
    if has_nvram(ctx.snapshot.cluster, instance):
        steps.append(forget_nvram_step(ctx, instance, node))
    return steps
