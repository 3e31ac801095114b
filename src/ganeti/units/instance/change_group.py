"""The move of one instance to a node of another group."""

from ganeti.config.resolve import resolve_instance
from ganeti.config.snapshot import Snapshot
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.iallocator import named_allocators
from ganeti.model.objects import Instance
from ganeti.model.opcodes.group import OpInstanceChangeGroup
from ganeti.protocols import iallocator_requests
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import instance_variables
from ganeti.units.hooks.point import HookPoint, on_nodes
from ganeti.units.relocation.evacuation import (
    EvacuationUnit,
    Jobs,
    jobs_of,
    other_groups,
    proposed_moves,
    say_moves,
)


class LUInstanceChangeGroup(EvacuationUnit[OpInstanceChangeGroup]):
    """Move an instance to a node of another group."""

    def check_arguments(self) -> None:
        named_allocators(self.op.iallocator)

    def _instance(self, snapshot: Snapshot) -> Instance:
        return resolve_instance(snapshot, self.op.instance_uuid or self.op.instance_name)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [
            lock(Level.INSTANCE, self._instance(snapshot).name, Mode.SHARED),
            lock(Level.NODE, ALL, Mode.SHARED),
        ]

    async def check_prereq(self, ctx: UnitContext) -> Jobs:
        op, snapshot = self.op, ctx.snapshot
        instance = self._instance(snapshot)
        request = iallocator_requests.change_group([instance.name], self._targets(snapshot))
        found = await proposed_moves(ctx, request, [instance], op.iallocator)
        say_moves(ctx, found)
        return jobs_of(found, op)

    def _targets(self, snapshot: Snapshot) -> list[str]:
        own = {snapshot.nodes[uuid].group for uuid in self._instance(snapshot).all_nodes}
        own_groups = [snapshot.groups[one] for one in own]
        return other_groups(snapshot, self.op.target_groups, own_groups)

    def hooks(self, snapshot: Snapshot, plan: Jobs) -> HookPoint:
        instance = self._instance(snapshot)
        variables = {
            **instance_variables(snapshot, instance),
            "TARGET_GROUPS": " ".join(self._targets(snapshot)),
        }
        return on_nodes("instance-change-group", variables, snapshot)
