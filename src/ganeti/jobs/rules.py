"""The effect of job filters and `--reason rate-limit:N:LABEL` on a job. Pure.

Queries implement the language of predicates; the queue gets a `Rulebook` for each configuration
(`ganeti.query.job_filters`).
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from ganeti.config.snapshot import Snapshot
from ganeti.model.job_filter import FREE, Limit, Ruling
from ganeti.model.opcodes import OpCode

RATE_LIMIT_PREFIX = "rate-limit:"
LABEL_LIMIT = 1_000
"""Number of characters of a bucket's name that are significant."""


class Rulebook(Protocol):
    """The job filters of one configuration."""

    @property
    def is_empty(self) -> bool:
        """Return whether the filters affect no job."""
        ...

    def ruling(self, job_id: int, ops: Sequence[OpCode]) -> Ruling:
        """Return the effect on a job, whose opcodes are without secrets."""
        ...


MakeRulebook = Callable[[Snapshot], Rulebook]


class NoRules:
    """The rulebook without filters."""

    is_empty = True

    def ruling(self, job_id: int, ops: Sequence[OpCode]) -> Ruling:
        del job_id, ops
        return FREE


def no_rules(_snapshot: Snapshot) -> Rulebook:
    """Return the rulebook of a queue without filters."""
    return NoRules()


def reason_limits(ops: Sequence[OpCode]) -> tuple[Limit, ...]:
    """Return the buckets that the reasons of a job name: `rate-limit:N:LABEL`."""
    found: dict[str, Limit] = {}
    for op in ops:
        for _source, text, _when in op.reason:
            if text.startswith(RATE_LIMIT_PREFIX) and (limit := _limit_of(text)) is not None:
                found[limit.bucket] = limit
    return tuple(found.values())


def _limit_of(text: str) -> Limit | None:
    number, colon, _label = text.removeprefix(RATE_LIMIT_PREFIX).partition(":")
    if not (colon and number.isascii() and number.isdecimal() and int(number[:9]) > 0):
        return None
    return Limit(text[:LABEL_LIMIT], int(number[:9]), f"the reason {text[:60]!r}")
