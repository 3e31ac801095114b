"""Migration: of instances whose data both nodes see, and of those whose disks are taken along."""

from dataclasses import dataclass, replace

from ganeti.base.errors import ErrorCode, ExecError, InputError, PrereqError, RpcFailed
from ganeti.config.fill import filled_beparams, filled_hvparams
from ganeti.config.nvram import has_nvram_on_its_node
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import space_needed
from ganeti.jobs.executor import Outcome
from ganeti.layouts.places import Way, relocate
from ganeti.locking.requests import LockRequest
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.names import AdminState, DiskRole
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.model.opcodes.instance import DEFAULT_SHUTDOWN_TIMEOUT_S, OpInstanceMigrate
from ganeti.rpc.headers import UNREACHABLE
from ganeti.rpc.procedures.disks import BLOCKDEV_REMOVE, DiskArgs
from ganeti.rpc.procedures.instances import InstanceArgs, RunningInstance
from ganeti.rpc.procedures.migration import (
    MIGRATION_ACCEPT,
    MIGRATION_FINISH_TARGET,
    MIGRATION_INFO,
    MIGRATION_RUN,
    FinishMigrationArgs,
    IncomingArgs,
    MigrateArgs,
    MigrationInfo,
    MigrationResult,
)
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import text
from ganeti.units.instance.access import (
    HookNodes,
    InstanceUnit,
    check_not_migrating,
    check_not_offline,
    check_nothing_there,
    primary_node,
    running_state,
    spec_of,
)
from ganeti.units.instance.cleanup import clean_up
from ganeti.units.instance.disks import is_mirrored, make_disk, open_disks, wait_for_sync
from ganeti.units.instance.failover import FailoverPlan, fail_over, moves, places, plan_failover
from ganeti.units.instance.fit import Shrinking, shrink, shrinking_to_fit
from ganeti.units.instance.nic_checks import check_links
from ganeti.units.instance.nvram import forget_nvram_step
from ganeti.units.instance.pending import check_nothing_pending
from ganeti.units.instance.reconcile_migration import (
    mark_handed_over,
    mark_migrating,
    mark_taken_back,
    record_primary,
)
from ganeti.units.instance.targets import TargetChoice
from ganeti.units.mirrors.opening import check_copy
from ganeti.units.node_choice import check_online, check_space, free_resources
from ganeti.units.spindles import check_spindles
from ganeti.units.telling import showing
from ganeti.units.undo.disks import SetDiskRole, removals
from ganeti.units.undo.migrations import EndSource, ReconcileMigration
from ganeti.units.undo.step import Step

LIVE, NON_LIVE = "live", "non-live"


@dataclass(frozen=True)
class MigrationPlan:
    """Which instance goes from where to where, and how; `info` is what its node says of it."""

    instance: Instance
    source: Node
    target: Node
    live: bool
    copied: bool
    """Its disks are taken along."""
    info: MigrationInfo
    shrinking: Shrinking | None
    """Memory that the guest gives back first, to fit."""


Plan = MigrationPlan | FailoverPlan | Instance
"""A migration, a failover in its place, or an instance whose state is only to be reconciled."""


class LUInstanceMigrate(InstanceUnit[OpInstanceMigrate, Plan]):
    """Move a running instance to another node without stopping it, or reconcile an earlier attempt."""

    hook = "instance-migrate"

    @property
    def _choice(self) -> TargetChoice:
        op = self.op
        given = op.target_node_uuid or op.target_node
        return TargetChoice(given, op.iallocator, ignore_policy=op.ignore_ipolicy)

    def check_arguments(self) -> None:
        if self.op.mode not in (None, LIVE, NON_LIVE):
            raise InputError(f"must be {LIVE} or {NON_LIVE}", "mode")
        if self.op.mode is not None and self.op.live is not None:
            raise InputError("give either mode or live, not both", "mode")
        self._choice.check()

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return self._choice.locks(snapshot, self.instance(snapshot))

    async def check_prereq(self, ctx: UnitContext) -> Plan:
        instance = self.instance(ctx.snapshot)
        if self.op.cleanup:
            return instance
        check_not_migrating(instance)
        check_nothing_pending(ctx, instance, to="migrate")
        source = primary_node(ctx, instance)
        if self.op.allow_failover and await self._must_fail_over(ctx, instance, source):
            return await plan_failover(ctx, instance, self._choice, DEFAULT_SHUTDOWN_TIMEOUT_S)
        check_not_offline(instance)
        check_online(source)
        present = self._check_source(instance, source, await running_state(ctx, source, instance))
        info = await self._source_info(ctx, instance, source)
        target = await self._choice.choose(ctx, instance, source, verb="migrate")
        way = relocate(instance, NodeUuid(target.uuid)).way
        copied = way is Way.COPY
        if way is Way.SWAP and is_mirrored(instance):
            await check_copy(ctx, instance, target, to="migrate")
        if copied:
            _check_can_copy(instance, info)
        shrinking = await self._check_target(ctx, instance, target, present, copied=copied)
        live = self._is_live(ctx, instance)
        return MigrationPlan(instance, source, target, live, copied, info, shrinking)

    async def _must_fail_over(self, ctx: UnitContext, instance: Instance, source: Node) -> bool:
        if source.offline or filled_beparams(ctx.snapshot.cluster, instance)["always_failover"]:
            return True
        if instance.admin_state is not AdminState.UP:
            return True
        state = await running_state(ctx, source, instance)
        return state is None or state.state == "shutdown"

    def _check_source(self, instance: Instance, source: Node, state: RunningInstance | None) -> int:
        """The memory of the guest, in MiB."""
        if state is None or state.state == "shutdown":
            raise PrereqError(
                f"instance {instance.name} is not running on {source.name}, so there is nothing to migrate",
                ErrorCode.WRONG_STATE,
            )
        if state.state not in ("running", "paused"):
            raise PrereqError(
                f"an earlier migration of {instance.name} is not finished on {source.name} ({state.state});"
                f" run: gnt-instance migrate --cleanup {instance.name}",
                ErrorCode.WRONG_STATE,
            )
        return state.memory

    async def _source_info(
        self, ctx: UnitContext, instance: Instance, source: Node
    ) -> MigrationInfo:
        asked = InstanceArgs(instance=spec_of(ctx, instance))
        info = await ctx.call(source, MIGRATION_INFO, asked)
        template = DISK_TEMPLATES[instance.disk_template]
        if template.is_local and not info.mirrors_disks:
            raise PrereqError(
                f"disk template {template.name} of {instance.name} keeps its data on one node, and hypervisor"
                f" {instance.hypervisor} cannot take disks along: gnt-instance move does",
                ErrorCode.WRONG_STATE,
            )
        return info

    async def _check_target(
        self, ctx: UnitContext, instance: Instance, target: Node, memory_mib: int, *, copied: bool
    ) -> Shrinking | None:
        what = f"migrating instance {instance.name}"
        needs = space_needed(ctx.snapshot.cluster, instance.disks)
        info = await free_resources(ctx, target, what, needs)
        may_change = self.op.allow_runtime_changes
        shrinking = shrinking_to_fit(
            ctx, instance, memory_mib, target, info, may_change=may_change, what=what
        )
        if copied:
            check_space(info, target, needs)
            check_spindles(ctx.snapshot, info, target, instance.disks)
        await check_links(ctx, target, instance)
        check_nothing_there(await running_state(ctx, target, instance), target, instance)
        return shrinking

    def _is_live(self, ctx: UnitContext, instance: Instance) -> bool:
        if self.op.live is not None:
            return self.op.live
        default = filled_hvparams(ctx.snapshot.cluster, instance).get("migration_mode", LIVE)
        return (self.op.mode or default) == LIVE

    def hook_nodes(self, before: Instance, plan: Plan) -> HookNodes:
        nodes = [*before.all_nodes, *(node.uuid for node in moves(plan))]
        return nodes, nodes

    def hook_variables(self, snapshot: Snapshot, instance: Instance, plan: Plan) -> dict[str, str]:
        op = self.op
        return {
            **places(snapshot, instance, *moves(plan)),
            "MIGRATE_LIVE": text(not isinstance(plan, MigrationPlan) or plan.live),
            "MIGRATE_CLEANUP": text(op.cleanup),
            "ALLOW_RUNTIME_CHANGES": text(op.allow_runtime_changes),
        }

    async def execute(self, ctx: UnitContext, plan: Plan) -> Outcome:
        if isinstance(plan, Instance):
            return await clean_up(ctx, plan)
        instance, source, target = plan.instance, plan.source, plan.target
        if isinstance(plan, FailoverPlan):
            ctx.log(f"Failing over instance {instance.name} from {source.name} to {target.name}")
            await fail_over(ctx, plan)
            return Outcome([target.name])
        ctx.log(f"Migrating instance {instance.name} from {source.name} to {target.name}")
        async with ctx.undo_log() as undo:
            if plan.shrinking is not None:
                await shrink(ctx, undo, instance, source, plan.shrinking)
                # Its hardware as it is now.
                plan = replace(plan, info=await self._source_info(ctx, instance, source))
            await undo.push(
                ReconcileMigration(
                    instance=instance.uuid,
                    source=source.uuid,
                    target=target.uuid,
                    copied=plan.copied,
                    guest=spec_of(ctx, instance),
                )
            )
            await ctx.config.change(mark_migrating(_uuid(plan), NodeUuid(target.uuid)))
            result = await _move(ctx, plan)
            ctx.step(f"ending what is left on {source.name}")
            arrived = record_primary(_uuid(plan), NodeUuid(target.uuid))
            undo.commit(arrived, then=_ends_of_source(ctx, plan))
        ctx.info(
            f"{instance.name} runs on {target.name}: {result.transferred // 1024} KiB in {result.total_ms} ms,"
            f" standing still for {result.downtime_ms} ms"
        )
        return Outcome([target.name])


def _check_can_copy(instance: Instance, info: MigrationInfo) -> None:
    """A mirror writes to its source, too, which nobody may do to a disk that the guest has read-only.

    What the configuration says may wait for the guest's next start; `info` says what it has.
    """
    for index, disk in enumerate(info.instance.disks):
        if disk.mode == "ro":
            raise PrereqError(
                f"disk {index} of {instance.name} is read-only, and cannot be taken along while the guest"
                f" runs; move it while it is down: gnt-instance move -n NODE {instance.name}",
                ErrorCode.WRONG_STATE,
            )


def _uuid(plan: MigrationPlan) -> InstanceUuid:
    return InstanceUuid(plan.instance.uuid)


async def _move(ctx: UnitContext, plan: MigrationPlan) -> MigrationResult:
    """Send the guest and let it go on at the target; after an error it is not known where it is."""
    spec = spec_of(ctx, plan.instance)
    there = spec_of(ctx, plan.instance, plan.target)
    if is_mirrored(plan.instance):
        ctx.step("letting both nodes write to its disks")
        for node in (plan.source, plan.target):  # the source lets the target do so, too
            await open_disks(ctx, plan.instance, node, DiskRole.BOTH)
        await wait_for_sync(ctx, plan.instance)
    if plan.copied:
        ctx.step(f"creating its disks on {plan.target.name}")
        await make_disks_anew(ctx, plan.instance, plan.target)
    ctx.step(f"preparing {plan.target.name} to accept the instance")
    wanted = IncomingArgs(
        instance=there,
        address=plan.target.secondary_ip,
        info=plan.info,
        copies_disks=plan.copied,
    )
    incoming = await ctx.call(plan.target, MIGRATION_ACCEPT, wanted)
    ctx.step(f"migrating the {'disks and the ' * plan.copied}memory of the guest")
    where = MigrateArgs(
        instance=spec,
        address=incoming.address,
        port=incoming.port,
        live=plan.live,
        disks_port=incoming.disks_port,
        certificate=incoming.certificate,
    )
    async with showing(ctx, plan.source, plan.instance.name):
        result = await ctx.call(plan.source, MIGRATION_RUN, where)
    if result.status != "completed":
        raise ExecError(
            f"the migration of {plan.instance.name} ended as {result.status}: {result.error}"
        )
    ctx.step(f"letting the guest go on at {plan.target.name}")
    await _hand_over(ctx, plan)
    return result


def _ends_of_source(ctx: UnitContext, plan: MigrationPlan) -> list[Step]:
    """The steps that leave nothing on the source, the last of them first."""
    spec, node = spec_of(ctx, plan.instance), plan.source
    steps = removals(NodeUuid(node.uuid), spec) if plan.copied else []
    if is_mirrored(plan.instance):
        steps = [SetDiskRole(node=plan.target.uuid, instance=spec.uuid)]
    if has_nvram_on_its_node(ctx.snapshot.cluster, plan.instance):
        steps.append(forget_nvram_step(ctx, plan.instance, node))
    return [*steps, EndSource(node=node.uuid, instance=spec)]


async def _hand_over(ctx: UnitContext, plan: MigrationPlan) -> None:
    """Let the guest go on at the target.

    Recorded before it is done: once the target may have run the guest, what the source still has
    in memory is of the past, and must never go on.
    """
    uuid, source, target = _uuid(plan), NodeUuid(plan.source.uuid), NodeUuid(plan.target.uuid)
    await ctx.config.change(mark_handed_over(uuid, source, target))
    there = spec_of(ctx, plan.instance, plan.target)
    ended = FinishMigrationArgs(instance=there, success=True)
    try:
        await ctx.call(plan.target, MIGRATION_FINISH_TARGET, ended)
    except RpcFailed as err:
        if err.wire_error == UNREACHABLE:  # surely not told, so the source's state is the latest
            await ctx.config.change(mark_taken_back(uuid, source, target))
        raise


async def make_disks_anew(ctx: UnitContext, instance: Instance, node: Node) -> None:
    """Make all disks of an instance on a node, in place of what an earlier attempt left there."""
    await remove_disks(ctx, instance, node)
    spec = spec_of(ctx, instance)
    for disk in spec.disks:
        await make_disk(ctx, node, DiskArgs(instance_name=spec.name, disk=disk))


async def remove_disks(ctx: UnitContext, instance: Instance, node: Node) -> None:
    """Remove all disks of an instance from one node."""
    spec = spec_of(ctx, instance)
    for disk in spec.disks:
        await ctx.call(node, BLOCKDEV_REMOVE, DiskArgs(instance_name=spec.name, disk=disk))
