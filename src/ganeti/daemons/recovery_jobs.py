"""The jobs of automatic recovery: what an administrator would submit, with a reason of their own."""

from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from ganeti.base.clock import Clock
from ganeti.base.errors import ErrorCode, JobQueueDrained, JobQueueFull
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.view import JobView
from ganeti.model.iallocator import RequestType
from ganeti.model.names import JobStatus, RebootType
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.instance import OpInstanceReboot, OpInstanceStartup
from ganeti.model.opcodes.moving import OpInstanceFailover
from ganeti.model.opcodes.node import OpNodeSetParams
from ganeti.model.recovery import GuestFault
from ganeti.recovery.messages import JobKind, Outcome
from ganeti.units.allocation import allocators_for
from ganeti.units.instance.disks import is_mirrored

SOURCE = "gnt:recovery"
"""The source in the reason trail of each job; a new master recognises the jobs of an older one by it."""
HIGH = -10
BUILT_IN = "hail"
"""Chooses the target if the cluster has no default allocator."""
_NO_ROOM = frozenset({ErrorCode.NO_RESOURCES.value, ErrorCode.TEMP_NO_RESOURCES.value})


class Queue(Protocol):
    """The part of `ganeti.jobs.queue.JobQueue` that recovery uses."""

    def ids(self) -> list[int]: ...
    def view(self, job_id: int) -> JobView | None: ...
    async def submit(self, ops: Sequence[OpCode]) -> int: ...
    async def ended(self, job_id: int) -> JobView | None: ...


def opcode_for(
    snapshot: Snapshot, kind: JobKind, about: str, fault: GuestFault | None
) -> OpCode | None:
    """Return the job that carries out a decision; None if there is nothing to do.

    `fault` is the last fault of the instance's guest: a guest that hangs or has panicked is reset, one that has ended
    is started, unless it runs again.
    """
    if kind in (JobKind.MARK_OFFLINE, JobKind.REJOIN):
        node = snapshot.nodes.get(NodeUuid(about))
        return None if node is None else _of_node(node, kind)
    instance = snapshot.instances.get(InstanceUuid(about))
    if instance is None:
        return None
    if kind is JobKind.FAIL_OVER:
        return _failover(snapshot, instance)
    if fault in (GuestFault.HUNG, GuestFault.PANICKED):
        return OpInstanceReboot(
            instance_name=instance.name, instance_uuid=instance.uuid, reboot_type=RebootType.HARD
        )
    return OpInstanceStartup(
        instance_name=instance.name, instance_uuid=instance.uuid, if_wanted=True
    )


def _of_node(node: Node, kind: JobKind) -> OpCode | None:
    """Return the change of the mark; `force` because a lost candidate cannot be kept."""
    goes = kind is JobKind.MARK_OFFLINE
    if node.offline == goes:
        return None
    return OpNodeSetParams(
        node_name=node.name,
        node_uuid=node.uuid,
        offline=goes,
        awaits_return=goes,
        force=goes,
        end_misplaced=not goes,
    )


def _failover(snapshot: Snapshot, instance: Instance) -> OpCode:
    has_allocator = allocators_for(snapshot.cluster, RequestType.RELOCATE, None)
    needs_none = bool(has_allocator) or is_mirrored(instance)
    return OpInstanceFailover(
        instance_name=instance.name,
        instance_uuid=instance.uuid,
        iallocator=None if needs_none else BUILT_IN,
    )


class RecoveryJobs:
    """Submits jobs, and tells how they end."""

    def __init__(self, queue: Queue, clock: Clock) -> None:
        self._queue, self._clock = queue, clock
        self._inherited = dict(self._unended())

    async def run(self, op: OpCode, why: str) -> tuple[Outcome, str]:
        """Submit a job, or find the one that an older master has submitted, and return how it ends."""
        job_id = self._inherited.pop(_purpose(op), None)
        if job_id is None:
            reason = [*op.reason, (SOURCE, why, int(self._clock.time() * 1e9))]
            try:
                job_id = await self._queue.submit([replace(op, priority=HIGH, reason=reason)])
            except (JobQueueDrained, JobQueueFull) as err:
                return Outcome.NOT_ACCEPTED, err.message
        view = await self._queue.ended(job_id)
        return (Outcome.FAILED, f"job {job_id} is lost") if view is None else outcome_of(view)

    def _unended(self) -> list[tuple[tuple[str, bool], int]]:
        """Return the jobs of older masters, by their purpose."""
        found = []
        for job_id in self._queue.ids():
            view = self._queue.view(job_id)
            if view is None or view.status.is_final or not view.ops:
                continue
            op = view.ops[0].op
            if any(source == SOURCE for source, _, _ in op.reason):
                found.append((_purpose(op), job_id))
        return found


def outcome_of(view: JobView) -> tuple[Outcome, str]:
    """Return how an ended job counts for recovery, and its error."""
    if view.status is JobStatus.SUCCESS:
        return Outcome.DONE, ""
    for state in view.ops:
        match state.result if state.status is JobStatus.ERROR else None:
            case [str(), [str(message), code]] if code in _NO_ROOM:
                return Outcome.NO_ROOM, f"job {view.id}: {message}"
            case [str(), [message, *_]]:
                return Outcome.FAILED, f"job {view.id}: {message}"
    return Outcome.FAILED, f"job {view.id}: {view.status.value}"


def _purpose(op: OpCode) -> tuple[str, bool]:
    """Return what two jobs for the same purpose share."""
    return op.summary(), isinstance(op, OpNodeSetParams) and bool(op.offline)
