"""Writes the trace of one mastership: jobs, marks of nodes, and what automatic recovery thinks of them."""

from typing import Any

import msgspec

from ganeti.base.clock import Timer, TimerClock
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.record import LiveJob
from ganeti.model.names import JobStatus
from ganeti.simulation.master import SimulatedMaster
from ganeti.simulation.trace import Kind, Trace

LOOK_S = 0.5
"""How often the states of nodes are looked at while one may be lost."""
_KINDS = {
    JobStatus.QUEUED: Kind.JOB_QUEUED,
    JobStatus.WAITING: Kind.JOB_WAITS,
    JobStatus.RUNNING: Kind.JOB_RUNS,
}


class _Job(msgspec.Struct):
    """A job that has not ended."""

    status: JobStatus | None
    """None: not seen yet."""
    detail: str
    instances: tuple[str, ...]


class Observer:
    """Follows a master until `close`."""

    def __init__(self, master: SimulatedMaster, trace: Trace, time: TimerClock) -> None:
        """`time` is that of heartbeats."""
        self._master, self._trace, self._time = master, trace, time
        self._jobs: dict[int, _Job] = {}
        self._nodes = master.config.snapshot.nodes
        self._states: dict[str, str] = {}
        self._looking: Timer | None = None
        self._unsubscribe = master.config.subscribe(self._configured)
        master.queue.on_change = self._job_changed

    def close(self) -> None:
        """Follow no more."""
        self._unsubscribe()
        if self._looking is not None:
            self._looking.cancel()

    def look(self, *, again: bool) -> None:
        """Record the states of nodes that have changed; `again`: and soon once more."""
        for one in self._master.recovery.node_statuses():
            if self._states.get(one.name, "healthy") != one.state.value:
                self._states[one.name] = one.state.value
                why = f": {one.why}" if one.why else ""
                self._trace.add(Kind.NODE_STATE, one.name, f"{one.state.value}{why}")
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if again:
            # Nothing changes while the time of heartbeats stands still.
            self._looking = self._time.call_later(LOOK_S, lambda: self.look(again=True))

    def _configured(self, snapshot: Snapshot) -> None:
        if snapshot.nodes is self._nodes:
            return
        for uuid, node in snapshot.nodes.items():
            before = self._nodes.get(uuid)
            if before is not None and before.offline != node.offline:
                kind = Kind.NODE_OFFLINE if node.offline else Kind.NODE_ONLINE
                self._trace.add(kind, node.name)
        self._nodes = snapshot.nodes

    def _job_changed(self, job: LiveJob) -> None:
        status, known = job.status, self._jobs.get(job.id)
        if known is None:
            ops = [state.op for state in job.ops]
            detail = ", ".join(op.summary() for op in ops)
            known = self._jobs[job.id] = _Job(None, detail, _instances_of(ops))
            if status is not JobStatus.QUEUED:  # it started while it was being written
                self._trace.add(Kind.JOB_QUEUED, str(job.id), detail, instances=known.instances)
        if known.status is status:
            return
        known.status, detail = status, known.detail
        kind = _KINDS.get(status, Kind.JOB_ENDED if status.is_final else None)
        if kind is None:
            return
        if kind is Kind.JOB_ENDED:
            detail = f"{status.value}: {detail}{_error_of(job)}"
            del self._jobs[job.id]
        self._trace.add(kind, str(job.id), detail, instances=known.instances)


def _error_of(job: LiveJob) -> str:
    for state in job.ops:
        match state.result if state.status is JobStatus.ERROR else None:
            case [str(), [message, *_]]:
                return f": {message}"
    return ""


def _instances_of(ops: list[Any]) -> tuple[str, ...]:
    """Return the names of the instances in the opcodes."""
    found: dict[str, None] = {}
    for op in ops:
        name = getattr(op, "instance_name", None)
        for one in [name] if isinstance(name, str) else []:
            found[one] = None
    return tuple(found)
