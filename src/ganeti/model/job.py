"""The stored form of a job: its opcodes, their progress, and their output."""

from typing import Any

import msgspec

from ganeti.model.names import JobStatus
from ganeti.model.opcode_table import AnyOpCode
from ganeti.model.scope import Scope

Timestamp = tuple[int, int]
"""Return seconds and microseconds since the epoch, as LUXI shows them."""

JOB_BYTES = 512 * 1024
"""The limit of a submitted job, encoded, in bytes: it must fit into one transaction, with room for its output."""

LOCAL_SOURCE = "local"
"""The source of jobs from the master's own socket, whose users are administrators."""
REMOTE_PREFIX = "rest:"


def remote_source(user: str) -> str:
    """Return the source of jobs that a user of the REST interface submits."""
    return REMOTE_PREFIX + user


class Submitter(msgspec.Struct, frozen=True):
    """The submitter of a job: the job's source, and the scope to which a user of the REST interface is limited."""

    source: str = LOCAL_SOURCE
    scope: Scope | None = None


LOCAL = Submitter()


def is_remote(source: str) -> bool:
    """Return whether a job came from elsewhere than the master's own socket; an unknown source counts as remote."""
    return source != LOCAL_SOURCE


LogEntry = tuple[int, Timestamp, str, Any]
"""Serial within the job, time, type (`message` mostly), content."""


class UndoStep(msgspec.Struct, frozen=True):
    """The undo of one act: a named procedure with arguments, run by the master of that time.

    A step must succeed if there is nothing to undo.
    """

    procedure: str
    arguments: dict[str, Any]


class OpState(msgspec.Struct, frozen=True, kw_only=True):
    """One opcode of a job and its progress; times in seconds since the epoch."""

    op: AnyOpCode
    status: JobStatus = JobStatus.QUEUED
    result: Any = None
    start: float | None = None
    """The time at which it began (and waited for locks)."""
    exec: float | None = None
    """The time at which it got its locks."""
    end: float | None = None


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job, in the state store under (`job`, id in 20 digits)."""

    id: int
    ops: tuple[OpState, ...]
    received: float
    start: float | None = None
    end: float | None = None
    epoch: int = 0
    """The epoch that started it; 0 while it is queued."""
    undo: tuple[UndoStep, ...] = ()
    """The undo of the running opcode's acts: the next master's first action if this one dies."""
    pending: tuple[UndoStep, ...] = ()
    """Undo steps that finished opcodes left: run when the job has ended, under locks of their own."""
    cancel_requested: bool = False
    source: str = LOCAL_SOURCE
    """The submitter; jobs that a job submits inherit its source."""
    scope: Scope | None = None
    """The submitter's scope; None if the submitter is not limited."""
    format: int = 2
    """1: `undo` contains pending steps, too."""
