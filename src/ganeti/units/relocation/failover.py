"""Failover: stop an instance on its node, and start it on another node that has its data."""

from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Instance
from ganeti.model.opcodes.moving import OpInstanceFailover
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import text
from ganeti.units.instance.access import HookNodes, check_shutdown_timeout
from ganeti.units.relocation.decide import plan_failover
from ganeti.units.relocation.plan import Plan, hook_nodes
from ganeti.units.relocation.targets import TargetChoice
from ganeti.units.relocation.unit import RelocationUnit


class LUInstanceFailover(RelocationUnit[OpInstanceFailover]):
    """Stop an instance on its node, which may be dead, and start it on another node that has its data."""

    hook = "instance-failover"

    @property
    def choice(self) -> TargetChoice:
        op = self.op
        given = op.target_node_uuid or op.target_node
        return TargetChoice(
            given,
            op.iallocator,
            ignore_policy=op.ignore_ipolicy,
            ignore_consistency=op.ignore_consistency,
        )

    def check_arguments(self) -> None:
        self.choice.check()
        check_shutdown_timeout(self.op.shutdown_timeout, "shutdown_timeout")

    async def check_prereq(self, ctx: UnitContext) -> Plan | None:
        if self.op.cleanup:
            return None
        instance = self.instance(ctx.snapshot)
        return await plan_failover(ctx, instance, self.choice, self.op.shutdown_timeout)

    def hook_nodes(self, before: Instance, plan: Plan | None) -> HookNodes:
        """The primary node may be dead, so hooks run on it only afterwards."""
        target = (plan.target.uuid,) if plan else ()
        others = [*before.secondary_nodes, *target]
        return others, [*others, before.primary_node]

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: Plan | None
    ) -> dict[str, str]:
        op = self.op
        return {
            **hook_nodes(snapshot, instance, plan),
            "IGNORE_CONSISTENCY": text(op.ignore_consistency),
            "SHUTDOWN_TIMEOUT": text(op.shutdown_timeout),
            "FAILOVER_CLEANUP": text(op.cleanup),
        }
