"""The move of all instances of a group to other groups."""

from ganeti.config.resolve import resolve_group
from ganeti.config.snapshot import Snapshot
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.iallocator import named_allocators
from ganeti.model.opcodes.group import OpGroupEvacuate
from ganeti.protocols import iallocator_requests
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import group_variables, members
from ganeti.units.hooks.point import HookPoint, on_nodes
from ganeti.units.relocation.evacuation import (
    EvacuationUnit,
    Jobs,
    jobs_of,
    other_groups,
    proposed_moves,
    say_moves,
)


class LUGroupEvacuate(EvacuationUnit[OpGroupEvacuate]):
    """Move all instances of a group to other groups."""

    def check_arguments(self) -> None:
        named_allocators(self.op.iallocator)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        del snapshot
        return [lock(Level.NODE_GROUP, ALL, Mode.SHARED), lock(Level.NODE, ALL, Mode.SHARED)]

    async def check_prereq(self, ctx: UnitContext) -> Jobs:
        op, snapshot = self.op, ctx.snapshot
        group = resolve_group(snapshot, op.group_name)
        targets = other_groups(snapshot, op.target_groups, [group])
        instances = sorted(
            (
                one
                for one in snapshot.instances.values()
                if any(snapshot.nodes[uuid].group == group.uuid for uuid in one.all_nodes)
            ),
            key=lambda one: one.name,
        )
        if not instances:
            return []
        request = iallocator_requests.change_group([one.name for one in instances], targets)
        found = await proposed_moves(ctx, request, instances, op.iallocator)
        say_moves(ctx, found)
        return jobs_of(found, op, sequential=op.sequential, force_failover=op.force_failover)

    def hooks(self, snapshot: Snapshot, plan: Jobs) -> HookPoint:
        group = resolve_group(snapshot, self.op.group_name)
        variables = {
            **group_variables(group),
            "TARGET_GROUPS": " ".join(other_groups(snapshot, self.op.target_groups, [group])),
        }
        return on_nodes("group-evacuate", variables, snapshot, members(snapshot, group))
