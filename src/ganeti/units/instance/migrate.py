"""Live migration of instances whose data both nodes see."""

from dataclasses import dataclass

from ganeti.base.errors import ErrorCode, ExecError, InputError, PrereqError
from ganeti.base.identifiers import plain_name
from ganeti.config.fill import filled_beparams
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.model.opcodes.instance import OpInstanceMigrate
from ganeti.model.params import Params
from ganeti.rpc.procedures.instances import InstanceArgs
from ganeti.rpc.procedures.migration import (
    MIGRATION_ACCEPT,
    MIGRATION_FINISH_SOURCE,
    MIGRATION_FINISH_TARGET,
    MIGRATION_INFO,
    MIGRATION_RUN,
    FinishMigrationArgs,
    Incoming,
    IncomingArgs,
    MigrateArgs,
    MigrationResult,
)
from ganeti.units.allocation import Demand, Wish, choose_nodes
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import (
    InstanceUnit,
    check_not_offline,
    check_settled,
    primary_node,
    running_state,
    spec_of,
)
from ganeti.units.instance.settle import mark_migrating, mark_settled, settle_migration
from ganeti.units.node_choice import (
    check_can_host,
    check_can_migrate,
    check_memory,
    check_online,
    free_resources,
)


@dataclass(frozen=True)
class MigrationPlan:
    """Which instance goes from where to where; without a target only the state is settled."""

    instance: Instance
    source: Node
    target: Node | None


class LUInstanceMigrate(InstanceUnit[OpInstanceMigrate, MigrationPlan]):
    """Move a running instance to another node without stopping it, or settle an earlier attempt."""

    def check_arguments(self) -> None:
        op = self.op
        if op.mode not in (None, "live") or op.live is False:
            raise InputError(
                "only live migration is possible; to move a stopped guest, shut it down first",
                "mode",
            )
        if op.iallocator and (op.target_node or op.target_node_uuid):
            raise InputError("give either a target node or an allocator, not both", "iallocator")
        if op.iallocator:
            plain_name(op.iallocator, "iallocator")
        if op.allow_failover:
            raise InputError("failover is not possible yet", "allow_failover")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        instance = self.instance(snapshot)
        given = self.op.target_node_uuid or self.op.target_node
        nodes = {*instance.all_nodes, resolve_node(snapshot, given).uuid} if given else ALL
        return [lock(Level.INSTANCE, instance.name), lock(Level.NODE, nodes, Mode.SHARED)]

    async def check_prereq(self, ctx: UnitContext) -> MigrationPlan:
        instance = self.instance(ctx.snapshot)
        source = primary_node(ctx, instance)
        if self.op.cleanup:
            return MigrationPlan(instance, source, None)
        check_settled(instance)
        check_not_offline(instance)
        check_can_migrate(instance)
        check_online(source)
        await self._check_source(ctx, instance, source)
        target = await self._target(ctx, instance, source)
        check_can_host(target)
        what = f"migrating instance {instance.name}"
        info = await free_resources(ctx, target, what)
        memory = filled_beparams(ctx.snapshot.cluster, instance)["maxmem"]
        check_memory(info, target, memory, what)
        if await running_state(ctx, target, instance) is not None:
            raise PrereqError(
                f"something of {instance.name} is on {target.name} already, from an earlier migration;"
                f" run: gnt-instance migrate --cleanup {instance.name}",
                ErrorCode.WRONG_STATE,
            )
        return MigrationPlan(instance, source, target)

    async def _check_source(self, ctx: UnitContext, instance: Instance, source: Node) -> None:
        state = await running_state(ctx, source, instance)
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

    async def _target(self, ctx: UnitContext, instance: Instance, source: Node) -> Node:
        wish = Wish(
            Demand.of(ctx.snapshot.cluster, instance),
            relocate_from=source,
            ignore_policy=self.op.ignore_ipolicy,
        )
        given = self.op.target_node_uuid or self.op.target_node
        if given:
            target = resolve_node(ctx.snapshot, given)
            if target.uuid == source.uuid:
                raise InputError(f"{instance.name} is on {source.name} already", "target_node")
            ctx.services.placements.place(wish.placed_on(ctx, target))
            return target
        allocator = self.op.iallocator or ctx.snapshot.cluster.default_iallocator
        if not allocator:
            raise PrereqError(
                "say to which node (--target-node) or by which allocator (--iallocator) to migrate:"
                " the cluster has no default allocator",
                ErrorCode.WRONG_INPUT,
            )
        (target,) = await choose_nodes(ctx, allocator, wish)
        ctx.info(
            f"Selected nodes for instance {instance.name} via iallocator {allocator}: {target.name}"
        )
        if target.uuid == source.uuid:
            raise PrereqError(
                f"iallocator '{allocator}' chose {target.name}, which the instance is to leave",
                ErrorCode.ENVIRONMENT,
            )
        return target

    async def execute(self, ctx: UnitContext, plan: MigrationPlan) -> Outcome:
        if plan.target is None:
            return await self._cleanup(ctx, plan)
        instance, source, target = plan.instance, plan.source, plan.target
        ctx.log(f"Migrating instance {instance.name} from {source.name} to {target.name}")
        async with ctx.undo_log() as undo:
            info = await ctx.call(
                source, MIGRATION_INFO, InstanceArgs(instance=spec_of(ctx, instance))
            )
            await undo.push(
                "settle_migration", instance=instance.uuid, source=source.uuid, target=target.uuid
            )
            await ctx.config.change(mark_migrating(instance.uuid, target.uuid))
            result = await self._move(ctx, plan, target, info)
            undo.commit()
        ctx.info(
            f"{instance.name} runs on {target.name}: {result.transferred // 1024} KiB in {result.total_ms} ms,"
            f" standing still for {result.downtime_ms} ms"
        )
        return Outcome([target.name])

    async def _move(
        self, ctx: UnitContext, plan: MigrationPlan, target: Node, info: Params
    ) -> MigrationResult:
        """Send the guest and let it go on at the target; after an error it is not known where it is."""
        instance, source = plan.instance, plan.source
        spec = spec_of(ctx, instance)
        ctx.step(f"preparing {target.name} to accept the instance")
        wanted = IncomingArgs(instance=spec, address=target.secondary_ip, info=info)
        incoming: Incoming = await ctx.call(target, MIGRATION_ACCEPT, wanted)
        ctx.step("migrating the memory of the guest")
        where = MigrateArgs(instance=spec, address=incoming.address, port=incoming.port)
        result: MigrationResult = await ctx.call(source, MIGRATION_RUN, where)
        if result.status != "completed":
            raise ExecError(
                f"the migration of {instance.name} ended as {result.status}: {result.error}"
            )
        ended = FinishMigrationArgs(instance=spec, success=True)
        await ctx.call(target, MIGRATION_FINISH_TARGET, ended)
        await ctx.config.change(mark_settled(instance.uuid, target.uuid))
        await ctx.call(source, MIGRATION_FINISH_SOURCE, ended)
        return result

    async def _cleanup(self, ctx: UnitContext, plan: MigrationPlan) -> Outcome:
        """Settle the migration that broke off, or look for remains of one on all nodes."""
        await ctx.run.started()
        instance, source = plan.instance, plan.source
        others = [node for node in ctx.snapshot.online_nodes() if node.uuid != source.uuid]
        if instance.migrating_to is not None:
            holders = [ctx.snapshot.nodes[instance.migrating_to]]
        else:
            holders = [
                node for node in others if await running_state(ctx, node, instance) is not None
            ]
        if len(holders) > 1:
            names = ", ".join(node.name for node in holders)
            raise ExecError(
                f"something of {instance.name} is on {names}; end all but one copy there first"
            )
        for node in holders:
            name = await self._settle_with(ctx, plan, node)
            ctx.info(f"{instance.name} is on {name or 'no node'}")
        if not holders:
            ctx.info(f"nothing of {instance.name} was found beside {source.name}")
        return Outcome()

    async def _settle_with(self, ctx: UnitContext, plan: MigrationPlan, other: Node) -> str:
        """Settle between the primary node and another one, whichever of them sent the guest."""
        ends = [NodeUuid(plan.source.uuid), NodeUuid(other.uuid)]
        if not other.offline:
            found = await running_state(ctx, other, plan.instance)
            if found is not None and found.state == "postmigrate":
                ends.reverse()
        key = f"{ctx.job_id}/{ctx.run.index}/settle"
        return await settle_migration(
            ctx.services, key, InstanceUuid(plan.instance.uuid), ends[0], ends[1]
        )
