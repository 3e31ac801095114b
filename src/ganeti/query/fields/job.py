"""Fields of jobs; those of their opcodes are lists with a value for each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ganeti.model import wire
from ganeti.model.job import OpState
from ganeti.model.opcodes import OpCode
from ganeti.query.context import JobRow
from ganeti.query.fields.field import UNAVAILABLE, Field, ValueKind, split_time
from ganeti.query.fields.field import field_table as table

REDACTED = "<redacted>"


@dataclass(frozen=True)
class JobContext:
    """One job, and whether it is archived."""

    job: JobRow
    is_archived: bool = False


def shown_opcode(op: OpCode) -> dict[str, Any]:
    """Return an opcode as plain values, without secrets (G23)."""
    shown: dict[str, Any] = wire.plain(op)
    for name in (*op.secret_fields, "osparams_private"):
        if shown.get(name):
            shown[name] = dict.fromkeys(shown[name], REDACTED)
    if op.nested_field is not None:
        shown[op.nested_field] = [shown_opcode(one) for one in getattr(op, op.nested_field)]
    return shown


def _per_opcode(
    name: str, title: str, doc: str, value: Callable[[OpState], Any]
) -> Field[JobContext]:
    return Field(
        name, title, ValueKind.OTHER, doc, lambda row: [value(state) for state in row.job.ops]
    )


def _time(
    name: str, title: str, doc: str, value: Callable[[JobRow], float | None]
) -> Field[JobContext]:
    return Field(name, title, ValueKind.OTHER, doc, lambda row: split_time(value(row.job)))


JOB_FIELDS = table(
    (
        Field("id", "ID", ValueKind.NUMBER, "Number of the job", lambda r: r.job.id),
        Field("status", "Status", ValueKind.TEXT, "State of the job", lambda r: r.job.status.value),
        Field(
            "priority",
            "Priority",
            ValueKind.NUMBER,
            "Urgency, from -20 (first) to 19",
            lambda r: r.job.priority,
        ),
        Field(
            "source",
            "Source",
            ValueKind.TEXT,
            "Who submitted the job: local (the master's own socket), or a user of the REST interface",
            lambda r: r.job.source,
        ),
        Field(
            "dry_run",
            "DryRun",
            ValueKind.BOOL,
            "Whether the job only checks, and changes nothing",
            lambda r: all(state.op.dry_run for state in r.job.ops),
        ),
        Field(
            "archived",
            "Archived",
            ValueKind.BOOL,
            "Whether the job is in the archive",
            lambda r: r.is_archived,
        ),
        Field(
            "oplog",
            "OpCode_log",
            ValueKind.OTHER,
            "What each opcode said: serial, time, type, content",
            lambda r: [list(entries) for entries in r.job.log],
        ),
        Field(
            "waiting_for",
            "WaitingFor",
            ValueKind.TEXT,
            "What the job waits for, and who has it",
            lambda r: UNAVAILABLE if r.job.waiting_for is None else r.job.waiting_for,
        ),
        Field(
            "progress",
            "Progress",
            ValueKind.OTHER,
            "What a running job processes, and how far it is: percent, bytes a second, seconds left",
            lambda r: UNAVAILABLE if r.job.progress is None else wire.plain(r.job.progress),
        ),
        Field(
            "depends",
            "Depends",
            ValueKind.OTHER,
            "Jobs whose end the job waits for, or has waited for",
            lambda r: sorted(
                {abs(one) for state in r.job.ops for one, _ in state.op.depends or ()}
            ),
        ),
        _time("received_ts", "Received", "When the job was submitted", lambda j: j.received),
        _time("start_ts", "Start", "When the job began", lambda j: j.start),
        _time("end_ts", "End", "When the job ended", lambda j: j.end),
        _per_opcode(
            "summary", "Summary", "Name and object of each opcode", lambda s: s.op.summary()
        ),
        _per_opcode("ops", "OpCodes", "All opcodes", lambda s: shown_opcode(s.op)),
        _per_opcode("opresult", "OpCode_result", "Result of each opcode", lambda s: s.result),
        _per_opcode("opstatus", "OpCode_status", "State of each opcode", lambda s: s.status.value),
        _per_opcode("oppriority", "OpCode_prio", "Urgency of each opcode", lambda s: s.op.priority),
        _per_opcode(
            "opstart",
            "OpCode_start",
            "When each opcode began and asked for its locks",
            lambda s: split_time(s.start),
        ),
        _per_opcode(
            "opexec", "OpCode_exec", "When each opcode had its locks", lambda s: split_time(s.exec)
        ),
        _per_opcode("opend", "OpCode_end", "When each opcode ended", lambda s: split_time(s.end)),
    )
)
