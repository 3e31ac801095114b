"""The report about everything that an import or export changes: for people, and as JSON."""

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ganeti.model import wire


class Verdict(enum.StrEnum):
    """The kind of a decision."""

    REFUSED = "refused"
    """Nothing is created until the administrator has decided."""
    CHANGED = "changed"
    """It is converted to something else."""
    KEPT = "kept"
    """It has no meaning on the other side; the source file still contains it."""


class Decision(msgspec.Struct, frozen=True):
    """One decision."""

    verdict: Verdict
    what: str
    """`cluster`, or a kind and a name: `instance web1.example.com`."""
    field: str
    text: str
    advice: str = ""
    """The remedy."""

    def __str__(self) -> str:
        where = ": ".join(filter(None, (self.what, self.field)))
        advice = f" ({self.advice})" if self.advice else ""
        return f"{self.verdict}: {where}: {self.text}{advice}"


class Report(msgspec.Struct):
    """Decisions in the order in which they were made, and the number of converted objects."""

    decisions: list[Decision] = []
    counts: dict[str, int] = {}
    """Kind of objects -> their number on the other side."""

    @property
    def refused(self) -> list[Decision]:
        """The decisions that block."""
        return [one for one in self.decisions if one.verdict is Verdict.REFUSED]

    def count(self, kinds: Iterable[str]) -> None:
        """Count one object for each given kind."""
        for kind in kinds:
            self.counts[kind] = self.counts.get(kind, 0) + 1

    def lines(self) -> Iterator[str]:
        """Return the text for people: refusals first."""
        order = list(Verdict)
        yield from map(str, sorted(self.decisions, key=lambda one: order.index(one.verdict)))
        yield ", ".join(f"{name}: {count}" for name, count in self.counts.items())

    def as_json(self) -> Mapping[str, Any]:
        """Return the form for programs."""
        found: Mapping[str, Any] = wire.plain(self)
        return found


class Judge:
    """Makes decisions; with `keep_unknown` the administrator permits the loss of unknown data."""

    def __init__(self, *, keep_unknown: bool, report: Report | None = None) -> None:
        self.keep_unknown = keep_unknown
        self.report = report or Report()

    def unknown(self, what: str, field: str, text: str) -> None:
        """Report data with a meaning that the other side lacks."""
        if self.keep_unknown:
            self.keep(what, field, text)
        else:
            self.refuse(what, field, text, "--keep-unknown omits it")

    def refuse(self, what: str, field: str, text: str, advice: str = "") -> None:
        """Report data that cannot be converted."""
        self._decide(Verdict.REFUSED, what, field, text, advice)

    def keep(self, what: str, field: str, text: str) -> None:
        """Report data without a meaning on the other side."""
        self._decide(Verdict.KEPT, what, field, text)

    def change(self, what: str, field: str, text: str, advice: str = "") -> None:
        """Report data that is different on the other side."""
        self._decide(Verdict.CHANGED, what, field, text, advice)

    def _decide(self, verdict: Verdict, what: str, field: str, text: str, advice: str = "") -> None:
        # Messages of errors begin with the name of the field, which is printed already.
        for name in (field, field.rpartition(".")[2]):
            text = text.removeprefix(f"{name}: ")
        self.report.decisions.append(Decision(verdict, what, field, text, advice))
