"""Evaluation of job filters: predicates in the language of queries, and their result for a job.

| predicate | is about | its fields |
|---|---|---|
| `jobid` | the job | `id`; the value `watermark` stands for the filter's |
| `opcode` | one opcode, whichever | `OP_ID` and all that the opcode has |
| `reason` | one reason of one opcode, whichever | `source`, `reason`, `timestamp` |
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ganeti.base.errors import InputError
from ganeti.config.snapshot import Snapshot
from ganeti.model import wire
from ganeti.model.job_filter import FREE, FilterAction, JobFilter, Limit, Ruling
from ganeti.model.opcodes import OpCode
from ganeti.query.fields.field import UNAVAILABLE, Field, ValueKind, field_table
from ganeti.query.filter import DEPTH_LIMIT, compile_filter

BYTES_LIMIT = 16 * 1024
"""The limit of operators in all predicates of one filter together."""
PREDICATES_LIMIT = 64
REASONS_LIMIT = 64

_log = logging.getLogger(__name__)


class JobFacts:
    """The facts that predicates test; made once for all filters."""

    def __init__(self, job_id: int, ops: Sequence[OpCode]) -> None:
        self.job_id = job_id
        self.ops = ops
        self._opcodes: list[Mapping[str, Any]] | None = None

    @property
    def opcodes(self) -> list[Mapping[str, Any]]:
        """The opcodes as plain values."""
        if self._opcodes is None:
            self._opcodes = [wire.plain(op) for op in self.ops]
        return self._opcodes

    @property
    def reasons(self) -> Iterator[tuple[str, str, int]]:
        return (reason for op in self.ops for reason in op.reason)


Test = Callable[[JobFacts], bool]


class _AnyField(Mapping[str, Field[Mapping[str, Any]]]):
    """A table in which every name is a field: opcodes differ, and a filter may test a field that few have."""

    def __getitem__(self, name: str) -> Field[Mapping[str, Any]]:
        return Field(
            name, name, ValueKind.OTHER, "of an opcode", lambda op: op.get(name, UNAVAILABLE)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


_JOB: dict[str, Field[JobFacts]] = field_table(
    [Field("id", "id", ValueKind.NUMBER, "its id", lambda job: job.job_id)]
)
_REASON: dict[str, Field[Any]] = field_table(
    [
        Field("source", "source", ValueKind.TEXT, "who", lambda reason: reason[0]),
        Field("reason", "reason", ValueKind.TEXT, "why", lambda reason: reason[1]),
        Field("timestamp", "timestamp", ValueKind.NUMBER, "when", lambda reason: reason[2]),
    ]
)
_OPCODE = _AnyField()


def check_predicates(raw: Any) -> tuple[Any, ...]:
    """Return predicates in their stored form; InputError names the fault (A23)."""
    if not isinstance(raw, list) or len(raw) > PREDICATES_LIMIT:
        raise InputError(f"must be a list of at most {PREDICATES_LIMIT}", "predicates")
    if len(wire.encode(raw)) > BYTES_LIMIT:
        raise InputError(f"are longer than {BYTES_LIMIT} bytes", "predicates")
    for number, predicate in enumerate(raw):
        try:
            _compiled(predicate, 0)
        except InputError as err:
            raise InputError(err.message, f"predicates[{number}]") from err
    return tuple(raw)


def check_reasons(raw: Any) -> tuple[Any, ...]:
    """Return a reason trail in its stored form; InputError."""
    if not isinstance(raw, list) or len(raw) > REASONS_LIMIT:
        raise InputError(f"must be a list of at most {REASONS_LIMIT}", "reason_trail")
    for number, reason in enumerate(raw):
        match reason:
            case [str(), str(), int()]:
                continue
        raise InputError("must be source, reason and time", f"reason_trail[{number}]")
    if len(wire.encode(raw)) > BYTES_LIMIT:
        raise InputError(f"is longer than {BYTES_LIMIT} bytes", "reason_trail")
    return tuple(raw)


def _compiled(predicate: Any, watermark: int) -> Test:
    match predicate:
        case ["jobid", raw]:
            return compile_filter(_with_watermark(raw, watermark, 0), _JOB, "id").passes
        case ["opcode", raw]:
            of_opcode = compile_filter(raw, _OPCODE, "OP_ID").passes
            return lambda job: any(map(of_opcode, job.opcodes))
        case ["reason", raw]:
            of_reason = compile_filter(raw, _REASON, "source").passes
            return lambda job: any(map(of_reason, job.reasons))
    raise InputError(
        f"{predicate!r:.60} must be jobid, opcode or reason with a filter", "predicate"
    )


def _with_watermark(raw: Any, watermark: int, depth: int) -> Any:
    """Return the filter with the number in place of the word, in positions of values."""
    match raw:
        case ["&" | "|" | "!", *_] if depth <= DEPTH_LIMIT:
            return [raw[0], *(_with_watermark(one, watermark, depth + 1) for one in raw[1:])]
        case [operator, name, "watermark"]:
            return [operator, name, watermark]
    return raw


class JobRules:
    """The compiled filters of one configuration."""

    def __init__(self, filters: Iterable[JobFilter]) -> None:
        self._rules: list[tuple[JobFilter, list[Test]]] = []
        for one in sorted(filters, key=lambda one: one.order):
            if one.action is FilterAction.CONTINUE:
                continue  # such a filter never has an effect
            try:
                tests = [_compiled(predicate, one.watermark) for predicate in one.predicates]
            except InputError as err:
                _log.error("the job filter %s is ignored: %s", one.uuid, err)
                continue
            self._rules.append((one, tests))

    @property
    def is_empty(self) -> bool:
        return not self._rules

    def ruling(self, job_id: int, ops: Sequence[OpCode]) -> Ruling:
        """Return the decision of the first matching filter about a job."""
        job = JobFacts(job_id, ops)
        for one, tests in self._rules:
            if all(test(job) for test in tests):
                return _ruling(one)
        return FREE


def _ruling(one: JobFilter) -> Ruling:
    what = f"the job filter {one.uuid}"
    if one.action is FilterAction.PAUSE:
        return Ruling(paused=what)
    if one.action is FilterAction.REJECT:
        return Ruling(rejected=what)
    if one.action is FilterAction.RATE_LIMIT:
        return Ruling(limits=(Limit(one.uuid, one.most, what),))
    return FREE


def job_rules(snapshot: Snapshot) -> JobRules:
    """Return the filters of a configuration."""
    return JobRules(snapshot.table(JobFilter).values())
