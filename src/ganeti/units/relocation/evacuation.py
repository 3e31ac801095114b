"""Jobs that allocators propose: from a request about instances to the submission."""

from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.resolve import resolve_group
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.iallocator import RequestType
from ganeti.model.objects import Instance, NodeGroup
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.instance import OpInstanceMigrate
from ganeti.model.opcodes.instance_changes import OpInstanceReplaceDisks
from ganeti.model.opcodes.moving import OpInstanceFailover
from ganeti.protocols.iallocator_results import Moves, moves
from ganeti.units.allocation import Options, allocators_for, ask
from ganeti.units.allocator_message import cluster_message
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext

Jobs = list[list[OpCode]]
BEFORE_ANY_END = ["success", "error", "canceled"]
AFTER_SUCCESS = ["success"]

OpT = TypeVar("OpT", bound=OpCode)


class EvacuationUnit(LogicalUnit[OpT, Jobs]):
    """A unit whose plan is a list of jobs that it submits."""

    async def execute(self, ctx: UnitContext, plan: Jobs) -> Outcome:
        del ctx
        return Outcome(jobs=plan, result=None if plan else {"jobs": []})

    def dry_run_result(self, ctx: UnitContext, plan: Jobs) -> Any:
        del ctx
        return [[op.summary() for op in job] for job in plan]


async def proposed_moves(
    ctx: UnitContext,
    request: dict[str, Any],
    instances: Sequence[Instance],
    iallocator: str | None,
    *,
    must_all: bool = True,
    options: Options | None = None,
) -> Moves:
    """Return the proposal of the first allocator that succeeds; PrereqError names the unplaced instances."""
    kind = RequestType(request["type"])
    allocators = allocators_for(ctx.snapshot.cluster, kind, iallocator)
    if not allocators:
        raise PrereqError(
            f"name an allocator (--iallocator): the cluster has no default allocator for {kind}",
            ErrorCode.WRONG_INPUT,
        )
    templates = [one.disk_template for one in instances]
    template = next(
        (name for name in templates if DISK_TEMPLATES[name].has_disks),
        ctx.snapshot.cluster.enabled_disk_templates[0],
    )

    async def make(*, fresh: bool) -> dict[str, Any]:
        return await cluster_message(ctx, request, template=template, fresh=fresh)

    names = {one.name for one in instances}
    allocator, found = await ask(
        ctx, allocators, make, lambda name, answer: moves(name, answer, names), options
    )
    if found.failed and must_all:
        why = "; ".join(f"{name}: {reason}" for name, reason in found.failed)
        raise PrereqError(
            f"Can't compute evacuation using iallocator '{allocator}': {why}",
            ErrorCode.NO_RESOURCES,
        )
    return found


def jobs_of(
    found: Moves,
    op: OpCode,
    *,
    sequential: bool = False,
    force_failover: bool = False,
) -> Jobs:
    """Return the jobs with the reason and priority of `op`, each after the success of those that it needs.

    With `sequential` each waits for the end of the one before it; with `force_failover` none migrates live.
    """
    jobs: Jobs = []
    for number, opcodes in enumerate(found.jobs):
        depends = [(one - number, AFTER_SUCCESS) for one in found.needs[number]]
        if sequential and number:
            depends.append((-1, BEFORE_ANY_END))
        wanted = map(_failover, opcodes) if force_failover else opcodes
        early = bool(getattr(op, "early_release", False))
        first, *others = [
            replace(_released(one, early=early), reason=op.reason, priority=op.priority)
            for one in wanted
        ]
        jobs.append([replace(first, depends=depends or None), *others])
    return jobs


def _failover(op: OpCode) -> OpCode:
    """Return the failover instead of a migration; any other opcode unchanged."""
    if not isinstance(op, OpInstanceMigrate):
        return op
    return OpInstanceFailover(
        instance_name=op.instance_name,
        target_node=op.target_node,
        ignore_ipolicy=op.ignore_ipolicy,
    )


def _released(op: OpCode, *, early: bool) -> OpCode:
    """Return the opcode with the caller's choice of when to remove old copies of disks: at the end, or early."""
    if not isinstance(op, OpInstanceReplaceDisks):
        return op
    return replace(op, early_release=early)


def say_moves(ctx: UnitContext, found: Moves) -> None:
    """Log the target of each instance."""
    for name, group, nodes in found.moved:
        ctx.info(f"{name} goes to {', '.join(nodes)} (group {group})")


def other_groups(
    snapshot: Snapshot, given: Sequence[str] | None, own: Sequence[NodeGroup]
) -> list[str]:
    """Return UUIDs of the candidate groups: the requested ones, or all others."""
    left = {group.uuid for group in own}
    found = [resolve_group(snapshot, name) for name in given or ()]
    for group in found:
        if group.uuid in left:
            raise InputError(f"{group.name} is the group to evacuate", "target_groups")
    others = [group.uuid for group in snapshot.groups.values() if group.uuid not in left]
    if not others:
        raise PrereqError(
            "no other node group exists; gnt-group add creates one", ErrorCode.WRONG_STATE
        )
    return sorted(group.uuid for group in found) or sorted(others)
