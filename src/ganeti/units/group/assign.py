"""The move of nodes into another group."""

from collections.abc import Collection
from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.resolve import resolve_group, resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.objects import GroupUuid, Instance, Node, NodeGroup, NodeUuid
from ganeti.model.opcodes.group import OpGroupAssignNodes
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.instance.nic_checks import check_networks


@dataclass(frozen=True)
class AssignPlan:
    """The group, the nodes to move, and warnings."""

    group: NodeGroup
    nodes: tuple[NodeUuid, ...]
    warnings: tuple[str, ...]


class LUGroupAssignNodes(LogicalUnit[OpGroupAssignNodes, AssignPlan]):
    """Move nodes into a group."""

    def check_arguments(self) -> None:
        if not (self.op.node_uuids or self.op.nodes):
            raise InputError("name at least one", "nodes")

    def _nodes(self, snapshot: Snapshot) -> list[Node]:
        return [resolve_node(snapshot, name) for name in self.op.node_uuids or self.op.nodes]

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        nodes = self._nodes(snapshot)
        groups = {resolve_group(snapshot, self.op.group_name).uuid, *(one.group for one in nodes)}
        return [lock(Level.NODE_GROUP, groups), lock(Level.NODE, {one.uuid for one in nodes})]

    async def check_prereq(self, ctx: UnitContext) -> AssignPlan:
        snapshot = ctx.snapshot
        group = resolve_group(snapshot, self.op.group_name)
        moved = {node.uuid: group.uuid for node in self._nodes(snapshot)}
        new, old = _split(snapshot, moved)
        if new and not self.op.force:
            raise PrereqError(
                f"the nodes of {', '.join(new)} would be in different groups: move its other node too,"
                " or force it (--force)",
                ErrorCode.WRONG_STATE,
            )
        for uuid in moved:
            for instance in snapshot.instances_on(uuid):
                check_networks(ctx, group, instance)
        warnings = []
        if new:
            warnings.append(f"the nodes of {', '.join(new)} are now in different groups")
        if old:
            warnings.append(f"the nodes of {', '.join(old)} are still in different groups")
        plan = AssignPlan(group, tuple(moved), tuple(warnings))
        ctx.check_change(lambda draft: _assign(draft, plan))
        return plan

    async def execute(self, ctx: UnitContext, plan: AssignPlan) -> Outcome:
        for text in plan.warnings:
            ctx.warn(text)
        return Outcome(change=lambda draft: _assign(draft, plan))


def _assign(draft: Draft, plan: AssignPlan) -> None:
    for uuid in plan.nodes:
        draft.put(replace(draft.nodes[uuid], group=plan.group.uuid))


def _split(snapshot: Snapshot, moved: dict[NodeUuid, GroupUuid]) -> tuple[list[str], list[str]]:
    """Return mirrored instances whose nodes would be in different groups, and those whose nodes remain so."""
    new: list[str] = []
    old: list[str] = []
    for instance in snapshot.instances.values():
        if not instance.secondary_nodes:
            continue
        before = _groups(snapshot, instance, {})
        after = _groups(snapshot, instance, moved)
        if len(after) > 1:
            (old if len(before) > 1 else new).append(instance.name)
    return sorted(new), sorted(old)


def _groups(
    snapshot: Snapshot, instance: Instance, moved: dict[NodeUuid, GroupUuid]
) -> Collection[GroupUuid]:
    return {moved.get(uuid, snapshot.nodes[uuid].group) for uuid in instance.all_nodes}
