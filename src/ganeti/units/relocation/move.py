"""Moves of an instance together with its disks; a guest that can run meanwhile is sent as by a migration."""

from ganeti.base.errors import InputError
from ganeti.config.snapshot import Snapshot
from ganeti.model.compression import COPIED
from ganeti.model.objects import Instance
from ganeti.model.opcodes.moving import OpInstanceMove
from ganeti.units.bandwidth import check_bandwidth
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import text
from ganeti.units.instance.access import HookNodes, check_shutdown_timeout
from ganeti.units.relocation.decide import plan_move
from ganeti.units.relocation.plan import Plan
from ganeti.units.relocation.targets import TargetChoice
from ganeti.units.relocation.unit import RelocationUnit


class LUInstanceMove(RelocationUnit[OpInstanceMove]):
    """Copy an instance with its disks to another node, and continue it there; on failure it remains on its node."""

    hook = "instance-move"

    @property
    def choice(self) -> TargetChoice:
        op = self.op
        return TargetChoice(
            op.target_node_uuid or op.target_node,
            ignore_policy=op.ignore_ipolicy,
            ignore_consistency=op.ignore_consistency,
        )

    def check_arguments(self) -> None:
        check_shutdown_timeout(self.op.shutdown_timeout, "shutdown_timeout")
        if self.op.compress not in COPIED:
            raise InputError(f"must be one of {', '.join(COPIED)}", "compress")
        check_bandwidth(self.op.bandwidth)

    async def check_prereq(self, ctx: UnitContext) -> Plan | None:
        return await plan_move(ctx, self.instance(ctx.snapshot), self.choice, self.op)

    def hook_nodes(self, before: Instance, plan: Plan | None) -> HookNodes:
        target = (plan.target.uuid,) if plan else ()
        nodes = [before.primary_node, *target]
        return nodes, nodes

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: Plan | None
    ) -> dict[str, str]:
        del snapshot, instance
        return {
            "TARGET_NODE": plan.target.name if plan else "",
            "SHUTDOWN_TIMEOUT": text(self.op.shutdown_timeout),
        }
