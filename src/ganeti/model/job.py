"""A job as it is stored: its opcodes, how far they got, and what they said."""

from typing import Any

import msgspec

from ganeti.model.names import JobStatus
from ganeti.model.opcode_table import AnyOpCode
from ganeti.model.scope import Scope

Timestamp = tuple[int, int]
"""Seconds and microseconds since the epoch, as LUXI shows them."""

JOB_BYTES = 512 * 1024
"""Bytes of a job as it is submitted, encoded: it must fit into one transaction, with room for what it will say."""

LOCAL_SOURCE = "local"
"""The source of jobs from the master's own socket, whose users are administrators."""
REMOTE_PREFIX = "rest:"


def remote_source(user: str) -> str:
    """The source of jobs that a user of the REST interface submits."""
    return REMOTE_PREFIX + user


class Submitter(msgspec.Struct, frozen=True):
    """Who submits a job: the job's source, and the scope to which a user of the REST interface is limited."""

    source: str = LOCAL_SOURCE
    scope: Scope | None = None


LOCAL = Submitter()


def is_remote(source: str) -> bool:
    """Return whether a job came from elsewhere than the master's own socket; the unknown counts as remote."""
    return source != LOCAL_SOURCE


LogEntry = tuple[int, Timestamp, str, Any]
"""Serial within the job, time, type (`message` mostly), content."""


class UndoStep(msgspec.Struct, frozen=True):
    """How to undo one act: a named procedure with arguments, run by the master of that time.

    A step must succeed when there is nothing to undo.
    """

    procedure: str
    arguments: dict[str, Any]


class OpState(msgspec.Struct, frozen=True, kw_only=True):
    """One opcode of a job and how far it got; times in seconds since the epoch."""

    op: AnyOpCode
    status: JobStatus = JobStatus.QUEUED
    result: Any = None
    start: float | None = None
    """When it began (and waited for locks)."""
    exec: float | None = None
    """When it had its locks."""
    end: float | None = None


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as the state store has it under (`job`, id in 20 digits)."""

    id: int
    ops: tuple[OpState, ...]
    received: float
    start: float | None = None
    end: float | None = None
    epoch: int = 0
    """The epoch that started it; 0 while it is queued."""
    undo: tuple[UndoStep, ...] = ()
    """How to undo what the running opcode has done so far: the next master's first act if this one dies."""
    pending: tuple[UndoStep, ...] = ()
    """What opcodes that have ended left to be undone: run when the job has ended, under locks of its own."""
    cancel_requested: bool = False
    source: str = LOCAL_SOURCE
    """Who submitted it; jobs that a job submits have the source of that one."""
    scope: Scope | None = None
    """Of its submitter; None if that is not limited."""
    format: int = 2
    """1: `undo` has what is pending, too."""
