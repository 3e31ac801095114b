"""Repair of the consistency of a storage unit of a node."""

from dataclasses import dataclass

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.base.identifiers import plain_name
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.layouts.places import holders
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.model.opcodes.storage import OpRepairNodeStorage
from ganeti.rpc.procedures.storage_units import STORAGE_UNIT_REPAIR, UnitArgs
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.instance.disks import is_mirrored
from ganeti.units.mirrors.judge import why_no_source
from ganeti.units.mirrors.look import verdicts_of
from ganeti.units.node_choice import check_online


@dataclass(frozen=True)
class RepairPlan:
    """The node, and the data that this does not save."""

    node: Node
    lost: tuple[str, ...] = ()


class LURepairNodeStorage(LogicalUnit[OpRepairNodeStorage, RepairPlan]):
    """Remove missing devices from a unit of a node, if no data is lost (S94)."""

    def check_arguments(self) -> None:
        plain_name(self.op.storage_type, "storage_type")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        node = self._node(snapshot)
        users = self._users(snapshot, node)
        nodes = {uuid for one in users for uuid in one.all_nodes} | {NodeUuid(node.uuid)}
        names = sorted(one.name for one in users)
        return [
            *([lock(Level.INSTANCE, names, Mode.SHARED)] if names else []),
            lock(Level.NODE, sorted(nodes), Mode.SHARED),
        ]

    def _node(self, snapshot: Snapshot) -> Node:
        return resolve_node(snapshot, self.op.node_uuid or self.op.node_name)

    @staticmethod
    def _users(snapshot: Snapshot, node: Node) -> list[Instance]:
        here = NodeUuid(node.uuid)
        return [one for one in snapshot.instances.values() if here in holders(one)]

    async def check_prereq(self, ctx: UnitContext) -> RepairPlan:
        node = self._node(ctx.snapshot)
        check_online(node)
        problems: list[str] = []
        for instance in self._users(ctx.snapshot, node):
            problems += await self._problems(ctx, instance, node)
        if problems and not self.op.ignore_consistency:
            raise PrereqError(
                f"data would be lost: {'; '.join(problems)}; repair it first (gnt-instance replace-disks), or"
                " accept the loss with --ignore-consistency",
                ErrorCode.WRONG_STATE,
            )
        return RepairPlan(node, tuple(problems))

    async def _problems(self, ctx: UnitContext, instance: Instance, node: Node) -> list[str]:
        """Return why an instance's data is not safe elsewhere: a good copy must be on another node or complete here."""
        verdicts = await verdicts_of(ctx, instance)
        mirrored = is_mirrored(instance)
        where = [uuid for uuid in holders(instance) if (uuid != node.uuid) is mirrored]
        found = []
        for uuid in where:
            other = ctx.snapshot.nodes[uuid]
            if other.offline:
                found.append(f"{instance.name}: its other node {other.name} is offline")
                continue
            found += [
                f"{instance.name}: disk {verdict.disk}: {why}"
                for verdict in verdicts
                if (why := why_no_source(verdict, other.name))
            ]
        return found

    async def execute(self, ctx: UnitContext, plan: RepairPlan) -> Outcome:
        for text in plan.lost:
            ctx.warn(f"data loss accepted: {text}")
        unit = StorageUnit(kind=self.op.storage_type, key=self.op.name)
        ctx.step(f"repairing {unit} on {plan.node.name}")
        for text in await ctx.call(plan.node, STORAGE_UNIT_REPAIR, UnitArgs(unit=unit)):
            ctx.info(text)
        return Outcome()
