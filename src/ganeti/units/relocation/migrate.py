"""Migration of instances whose data both nodes see, and of instances together with their disks."""

from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Instance
from ganeti.model.opcodes.instance import OpInstanceMigrate
from ganeti.units.bandwidth import check_bandwidth
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import text
from ganeti.units.instance.access import HookNodes
from ganeti.units.relocation.decide import plan_migration
from ganeti.units.relocation.plan import LiveGuest, Plan, check_mode, hook_nodes
from ganeti.units.relocation.targets import TargetChoice
from ganeti.units.relocation.unit import RelocationUnit


class LUInstanceMigrate(RelocationUnit[OpInstanceMigrate]):
    """Move a running instance to another node without stopping it, or reconcile an earlier attempt."""

    hook = "instance-migrate"

    @property
    def choice(self) -> TargetChoice:
        op = self.op
        given = op.target_node_uuid or op.target_node
        return TargetChoice(given, op.iallocator, ignore_policy=op.ignore_ipolicy)

    def check_arguments(self) -> None:
        check_mode(self.op.mode, live=self.op.live)
        self.choice.check()
        check_bandwidth(self.op.bandwidth)

    async def check_prereq(self, ctx: UnitContext) -> Plan | None:
        if self.op.cleanup:
            return None
        return await plan_migration(ctx, self.instance(ctx.snapshot), self.choice, self.op)

    def hook_nodes(self, before: Instance, plan: Plan | None) -> HookNodes:
        ends = (plan.source.uuid, plan.target.uuid) if plan else ()
        nodes = [*before.all_nodes, *ends]
        return nodes, nodes

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: Plan | None
    ) -> dict[str, str]:
        op = self.op
        is_still = plan is not None and isinstance(plan.guest, LiveGuest) and not plan.guest.is_live
        return {
            **hook_nodes(snapshot, instance, plan),
            "MIGRATE_LIVE": text(not is_still),
            "MIGRATE_CLEANUP": text(op.cleanup),
            "ALLOW_RUNTIME_CHANGES": text(op.allow_runtime_changes),
        }
