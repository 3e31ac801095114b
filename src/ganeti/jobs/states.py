"""The states of a job, as a table (G6). Pure."""

import enum
from collections.abc import Sequence

from ganeti.base.transitions import IllegalTransition
from ganeti.model.job import OpState, StoredJob
from ganeti.model.names import JobStatus


class Event(enum.Enum):
    """The events of a job."""

    START = "its first opcode was started"
    GO = "its opcode has its locks"
    CANCEL = "a client cancels it"
    SUCCEED = "its last opcode succeeded"
    FAIL = "an opcode failed"
    STOP = "it ends because it was cancelled"

    # A member is equal to itself only, and the hash of `Enum` is a Python function.
    __hash__ = object.__hash__


_S = JobStatus
TRANSITIONS: dict[tuple[JobStatus, Event], JobStatus] = {
    (_S.QUEUED, Event.START): _S.WAITING,
    (_S.QUEUED, Event.STOP): _S.CANCELED,
    (_S.QUEUED, Event.FAIL): _S.ERROR,  # by a dependency, or for lost secrets
    (_S.WAITING, Event.GO): _S.RUNNING,
    (_S.WAITING, Event.CANCEL): _S.CANCELING,
    (_S.WAITING, Event.FAIL): _S.ERROR,
    (_S.RUNNING, Event.START): _S.RUNNING,  # the next opcode: a job stays running in between
    (_S.RUNNING, Event.GO): _S.RUNNING,
    (_S.RUNNING, Event.CANCEL): _S.CANCELING,
    (_S.RUNNING, Event.SUCCEED): _S.SUCCESS,
    (_S.RUNNING, Event.FAIL): _S.ERROR,
    (_S.RUNNING, Event.STOP): _S.CANCELED,  # found between two opcodes by the next master
    (_S.CANCELING, Event.GO): _S.CANCELING,
    (_S.CANCELING, Event.CANCEL): _S.CANCELING,
    (_S.CANCELING, Event.SUCCEED): _S.SUCCESS,
    (_S.CANCELING, Event.FAIL): _S.ERROR,
    (_S.CANCELING, Event.STOP): _S.CANCELED,
}


_SUCCESS_ONLY = frozenset((_S.SUCCESS,))


def after(status: JobStatus, event: Event) -> JobStatus:
    """Return the state after an event; IllegalTransition for a pair that is not in the table."""
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        raise IllegalTransition(
            f"a job that is {status} does not accept the event: {event.value}"
        ) from None


def status_of(job: StoredJob) -> JobStatus:
    """Return the state of a stored job; transient states are not stored."""
    states = {op.status for op in job.ops}
    for final in (_S.ERROR, _S.CANCELED):
        if final in states:
            return final
    if states <= _SUCCESS_ONLY:
        return _S.SUCCESS if job.ops or job.end is not None else _S.QUEUED
    if _S.RUNNING in states or _S.SUCCESS in states:
        return _S.RUNNING
    return _S.QUEUED


def next_opcode(ops: Sequence[OpState]) -> int:
    """Return the position of the first opcode that has not ended; the number of opcodes if all have."""
    for index, op in enumerate(ops):
        if not op.status.is_final:
            return index
    return len(ops)
