"""Creation, change, renaming and removal of node groups."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.identifiers import plain_name
from ganeti.config.resolve import resolve_group
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change, Outcome
from ganeti.locking.levels import CLUSTER_LOCK, Level
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.cluster_values import changed_policy
from ganeti.model.disk_params import check_disk_params
from ganeti.model.names import AllocPolicy
from ganeti.model.objects import GroupUuid, NodeGroup
from ganeti.model.opcodes.group import (
    OpGroupAdd,
    OpGroupRemove,
    OpGroupRename,
    OpGroupSetParams,
)
from ganeti.model.param_checks import changed, check_group_backend_params, check_node_params
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import group_variables, members
from ganeti.units.hooks.point import HookPoint, on_nodes
from ganeti.units.instance.policy import policy_breaches
from ganeti.units.job_source import check_may_set_of_nodes

OpT = TypeVar("OpT", OpGroupRemove, OpGroupRename)
SHOWN = 5


def check_group_request(op: OpGroupAdd | OpGroupSetParams) -> None:
    """Refuse values that no group can have; InputError names the field."""
    for field in ("hv_state", "disk_state"):
        if getattr(op, field):
            raise InputError("this implementation does not support it", field)
    if op.alloc_policy is not None and op.alloc_policy not in tuple(AllocPolicy):
        raise InputError(f"must be one of {', '.join(AllocPolicy)}", "alloc_policy")
    check_node_params(op.ndparams or {})
    check_group_backend_params(op.beparams or {})


def with_request(group: NodeGroup, op: OpGroupAdd | OpGroupSetParams) -> NodeGroup:
    """Return the changed group; InputError if its policy would contradict itself."""
    diskparams = dict(group.diskparams)
    for template, params in (op.diskparams or {}).items():
        checked = check_disk_params(template, params, f"diskparams.{template}")
        diskparams[template] = changed(diskparams.get(template, {}), checked)
    policy = AllocPolicy(op.alloc_policy) if op.alloc_policy else group.alloc_policy
    ipolicy = group.ipolicy
    if op.ipolicy is not None:
        ipolicy = changed_policy(ipolicy, op.ipolicy, of_group=True)
    return replace(
        group,
        alloc_policy=policy,
        ndparams=changed(group.ndparams, check_node_params(op.ndparams or {})),
        beparams=changed(group.beparams, check_group_backend_params(op.beparams or {})),
        diskparams={template: params for template, params in diskparams.items() if params},
        ipolicy=ipolicy,
    )


class LUGroupAdd(LogicalUnit[OpGroupAdd, NodeGroup]):
    """Create a node group without nodes."""

    def check_arguments(self) -> None:
        plain_name(self.op.group_name, "group_name")
        check_group_request(self.op)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        del snapshot
        return [lock(Level.CLUSTER, CLUSTER_LOCK)]

    async def check_prereq(self, ctx: UnitContext) -> NodeGroup:
        check_may_set_of_nodes(ctx, self.op.ndparams)
        check_name_is_free(ctx.snapshot, self.op.group_name)
        group = NodeGroup(uuid=GroupUuid(ctx.ids.uuid()), name=self.op.group_name)
        group = with_request(group, self.op)
        ctx.check_change(lambda draft: _put(draft, group))
        return group

    def hooks(self, snapshot: Snapshot, plan: NodeGroup) -> HookPoint:
        return on_nodes("group-add", group_variables(plan), snapshot)

    async def execute(self, ctx: UnitContext, plan: NodeGroup) -> Outcome:
        return Outcome(change=lambda draft: _put(draft, plan))


class GroupUnit(LogicalUnit[OpT, Change], Generic[OpT]):
    """The common part of removing and renaming: only the group is locked, and one change is made."""

    _hooked: NodeGroup | None = None

    def group(self, snapshot: Snapshot) -> NodeGroup:
        return resolve_group(snapshot, self.op.group_name)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [lock(Level.NODE_GROUP, self.group(snapshot).uuid)]

    async def execute(self, ctx: UnitContext, plan: Change) -> Outcome:
        return Outcome(change=plan)


class LUGroupRemove(GroupUnit[OpGroupRemove]):
    """Remove a node group that has no nodes."""

    async def check_prereq(self, ctx: UnitContext) -> Change:
        group = self.group(ctx.snapshot)
        if len(ctx.snapshot.groups) == 1:
            raise PrereqError(
                f"group {group.name} is the only group, and a cluster needs at least one",
                ErrorCode.WRONG_STATE,
            )

        def change(draft: Draft) -> None:
            draft.remove(draft.groups[group.uuid])

        ctx.check_change(change)
        return change

    def hooks(self, snapshot: Snapshot, plan: Change) -> HookPoint:
        self._hooked = self._hooked or self.group(snapshot)
        return on_nodes("group-remove", group_variables(self._hooked), snapshot)


class LUGroupRename(GroupUnit[OpGroupRename]):
    """Give a node group another name; nodes and instances refer to it by UUID."""

    def check_arguments(self) -> None:
        plain_name(self.op.new_name, "new_name")

    async def check_prereq(self, ctx: UnitContext) -> Change:
        group = self.group(ctx.snapshot)
        check_name_is_free(ctx.snapshot, self.op.new_name)

        def change(draft: Draft) -> None:
            draft.put(replace(draft.groups[group.uuid], name=self.op.new_name))

        ctx.check_change(change)
        return change

    def hooks(self, snapshot: Snapshot, plan: Change) -> HookPoint:
        old = self._hooked = self._hooked or self.group(snapshot)
        variables = {"OP_TARGET": old.name, "OLD_NAME": old.name, "NEW_NAME": self.op.new_name}
        return on_nodes("group-rename", variables, snapshot, members(snapshot, old))

    async def execute(self, ctx: UnitContext, plan: Change) -> Outcome:
        return Outcome(self.op.new_name, change=plan)


@dataclass(frozen=True)
class GroupChange:
    """The group before and after."""

    old: NodeGroup
    new: NodeGroup


class LUGroupSetParams(LogicalUnit[OpGroupSetParams, GroupChange]):
    """Change a node group."""

    def check_arguments(self) -> None:
        check_group_request(self.op)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [lock(Level.NODE_GROUP, resolve_group(snapshot, self.op.group_name).uuid)]

    async def check_prereq(self, ctx: UnitContext) -> GroupChange:
        op = self.op
        given = (op.alloc_policy, op.ndparams, op.beparams, op.diskparams, op.ipolicy)
        if all(one is None for one in given):
            raise InputError("nothing to change: pass at least one option", "options")
        check_may_set_of_nodes(ctx, op.ndparams)
        old = resolve_group(ctx.snapshot, op.group_name)
        plan = GroupChange(old, with_request(old, op))
        ctx.check_change(lambda draft: _put(draft, _changed(draft, plan)))
        return plan

    def hooks(self, snapshot: Snapshot, plan: GroupChange) -> HookPoint:
        variables = {**group_variables(plan.old), "NEW_ALLOC_POLICY": plan.new.alloc_policy}
        return on_nodes("group-modify", variables, snapshot)

    async def execute(self, ctx: UnitContext, plan: GroupChange) -> Outcome:
        if plan.new.ipolicy != plan.old.ipolicy:
            _warn_of_policy(ctx, plan)
        changes: list[list[Any]] = [
            [name, getattr(plan.new, name)]
            for name in ("alloc_policy", "ndparams", "beparams", "diskparams", "ipolicy")
            if getattr(plan.new, name) != getattr(plan.old, name)
        ]
        return Outcome(changes, change=lambda draft: _put(draft, _changed(draft, plan)))


def check_name_is_free(snapshot: Snapshot, name: str) -> None:
    """Raise PrereqError if a group has the name."""
    if snapshot.group_by_name(name) is not None:
        raise PrereqError(f"group {name} exists already", ErrorCode.EXISTS)


def _put(draft: Draft, group: NodeGroup) -> None:
    draft.put(group)


def _changed(draft: Draft, plan: GroupChange) -> NodeGroup:
    """Return the present group, including tags, with the plan's changes."""
    new = plan.new
    return replace(
        draft.groups[new.uuid],
        alloc_policy=new.alloc_policy,
        ndparams=new.ndparams,
        beparams=new.beparams,
        diskparams=new.diskparams,
        ipolicy=new.ipolicy,
    )


def _warn_of_policy(ctx: UnitContext, plan: GroupChange) -> None:
    """Warn about instances that violate the new policy, but not the old one."""
    snapshot = ctx.snapshot
    cluster = snapshot.cluster
    names = sorted(
        instance.name
        for instance in snapshot.instances.values()
        if snapshot.nodes[instance.primary_node].group == plan.old.uuid
        and policy_breaches(cluster, plan.new, instance)
        and not policy_breaches(cluster, plan.old, instance)
    )
    if names:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        ctx.warn(
            f"after this change {', '.join(names[:SHOWN])}{more} will violate the policy of group {plan.old.name}"
        )
