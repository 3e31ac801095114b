"""The allocator's answers for each type of request; none of their content is trusted (S176-S180)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.model import wire
from ganeti.model.iallocator import AllocatorAnswer
from ganeti.model.opcode_table import parse_opcode
from ganeti.model.opcodes import OpCode

OPCODES_LIMIT = 10
"""The limit of opcodes of one job: no move needs as many."""
_ALLOWED = frozenset(
    (
        *("OP_INSTANCE_MIGRATE", "OP_INSTANCE_FAILOVER"),
        *("OP_INSTANCE_REPLACE_DISKS", "OP_INSTANCE_MOVE"),
    )
)
"""The opcodes that an allocator may return: it moves instances, and does nothing else (A22)."""

_Moved = list[tuple[str, str, list[str]]]
_Failed = list[tuple[str, str]]
_Jobs = list[list[dict[str, Any]]]


@dataclass(frozen=True)
class Moves:
    """`moved` is (instance, group, nodes), `failed` (instance, reason), `needs` earlier jobs by index for each job."""

    moved: _Moved
    failed: _Failed
    jobs: list[list[OpCode]]
    needs: list[list[int]]
    info: str = ""
    """The allocator's message beside the result."""


def succeeded(allocator: str, answer: AllocatorAnswer) -> Any:
    """Return the result; PrereqError with the allocator's own words if there is none (S182, S237)."""
    if not answer.success:
        raise PrereqError(
            f"Can't compute nodes using iallocator '{allocator}': {answer.info}",
            ErrorCode.NO_RESOURCES,
        )
    return answer.result


def moves(allocator: str, answer: AllocatorAnswer, known: Collection[str]) -> Moves:
    """Return the result of `node-evacuate`, `change-group` and `balance` (X12): jobs about `known` instances only."""
    result = succeeded(allocator, answer)
    kind = tuple[_Moved, _Failed, _Jobs]
    if isinstance(result, list) and len(result) == len(("moved", "failed", "jobs", "needs")):
        *result, needs = result
    else:
        needs = []
    moved, failed, jobs = _converted(allocator, result, kind)
    parsed = [[_opcode(allocator, one, known) for one in job] for job in jobs]
    if any(not job or len(job) > OPCODES_LIMIT for job in parsed):
        raise _nonsense(allocator, f"a job has from 1 to {OPCODES_LIMIT} opcodes")
    if unknown := [name for name, _group, _nodes in moved if name not in known]:
        raise _nonsense(allocator, f"{unknown[0]!r:.80} is not an instance of the request")
    waits: list[list[int]] = _converted(allocator, needs, list[list[int]])
    if waits and len(waits) != len(parsed):
        raise _nonsense(allocator, "it does not have one list of dependencies for each job")
    if any(not 0 <= one < number for number, earlier in enumerate(waits) for one in earlier):
        raise _nonsense(allocator, "a job depends on one that is not before it")
    return Moves(moved, failed, parsed, waits or [[] for _ in parsed], answer.info)


def _opcode(allocator: str, value: dict[str, Any], known: Collection[str]) -> OpCode:
    name = value.get("OP_ID")
    if name not in _ALLOWED:
        raise _nonsense(allocator, f"{name!r:.60} is not an opcode that an allocator may return")
    if value.get("instance_name") not in known:
        raise _nonsense(
            allocator, f"{value.get('instance_name')!r:.80} is not an instance of the request"
        )
    try:
        return parse_opcode(value)
    except InputError as err:
        raise _nonsense(allocator, err.message) from err


def placed(
    allocator: str, answer: AllocatorAnswer, wanted: dict[str, int]
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the result of `multi-allocate` (S179): nodes by instance, and unplaced names.

    `wanted` has the node counts.
    """
    done, failed = _converted(
        allocator,
        succeeded(allocator, answer),
        tuple[list[tuple[str, list[str]]], list[str]],
    )
    names = [name for name, _nodes in done] + failed
    if sorted(names) != sorted(wanted):
        raise _nonsense(allocator, "it does not name each instance exactly once")
    for name, nodes in done:
        if len(nodes) != wanted[name]:
            raise _nonsense(allocator, f"{name} has {len(nodes)} nodes but needs {wanted[name]}")
    return dict(done), failed


def fitting(allocator: str, answer: AllocatorAnswer, required_nodes: int) -> list[list[str]]:
    """Return the result of `capacity`: the nodes of each instance that fits, in order."""
    nodes: list[list[str]] = _converted(allocator, succeeded(allocator, answer), list[list[str]])
    if any(len(one) != required_nodes for one in nodes):
        raise _nonsense(allocator, f"not every instance has {required_nodes} nodes")
    return nodes


def _converted(allocator: str, value: Any, kind: Any) -> Any:
    try:
        return wire.convert(value, kind, what="result")
    except InputError as err:
        raise _nonsense(allocator, err.message) from err


def _nonsense(allocator: str, why: str) -> PrereqError:
    return PrereqError(
        f"iallocator '{allocator}' returned a wrong result: {why}", ErrorCode.ENVIRONMENT
    )
