"""Abandon a move to another cluster before any data was sent (S241)."""

from dataclasses import dataclass

from ganeti.jobs.executor import Outcome
from ganeti.model.objects import Node
from ganeti.model.opcodes.backup import OpBackupAbandon
from ganeti.rpc.procedures.streams import TRANSFER_KEY_REMOVE, TransferKeyArgs
from ganeti.units.backup.remote_export import verified_key_name
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import InstanceUnit, primary_node
from ganeti.units.node_choice import check_online
from ganeti.units.transfers import secret_of_others


@dataclass(frozen=True)
class AbandonPlan:
    """The key to remove, and its node."""

    instance: str
    node: Node
    key_name: str


class LUBackupAbandon(InstanceUnit[OpBackupAbandon, AbandonPlan]):
    """Remove the key that OP_BACKUP_PREPARE made; a missing key is not an error.

    The lock of the instance prevents a concurrent export with the same key.
    """

    async def check_prereq(self, ctx: UnitContext) -> AbandonPlan:
        instance = self.instance(ctx.snapshot)
        node = primary_node(ctx, instance)
        check_online(node)
        key_name = verified_key_name(secret_of_others(ctx), self.op.x509_key_name)
        return AbandonPlan(instance.name, node, key_name)

    async def execute(self, ctx: UnitContext, plan: AbandonPlan) -> Outcome:
        args = TransferKeyArgs(instance_name=plan.instance, key_name=plan.key_name)
        await ctx.call(plan.node, TRANSFER_KEY_REMOVE, args)
        return Outcome()
