"""What becomes of each thing that does not go over just as it is: for people, and as JSON."""

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ganeti.model import wire


class Verdict(enum.StrEnum):
    """What was decided."""

    REFUSED = "refused"
    """Nothing is created until the administrator has decided."""
    CHANGED = "changed"
    """It goes over as something else."""
    KEPT = "kept"
    """It has no meaning on the other side; the file that was read still has it."""


class Decision(msgspec.Struct, frozen=True):
    """One of them."""

    verdict: Verdict
    what: str
    """`cluster`, or a kind and a name: `instance web1.example.com`."""
    field: str
    text: str
    advice: str = ""
    """What to do about it."""

    def __str__(self) -> str:
        where = ": ".join(filter(None, (self.what, self.field)))
        advice = f" ({self.advice})" if self.advice else ""
        return f"{self.verdict}: {where}: {self.text}{advice}"


class Report(msgspec.Struct):
    """Decisions in the order in which they were made, and how much went over."""

    decisions: list[Decision] = []
    counts: dict[str, int] = {}
    """Kind of objects -> how many of them are on the other side."""

    @property
    def refused(self) -> list[Decision]:
        """What has to be answered first."""
        return [one for one in self.decisions if one.verdict is Verdict.REFUSED]

    def count(self, kinds: Iterable[str]) -> None:
        """Note one object for each kind that is named."""
        for kind in kinds:
            self.counts[kind] = self.counts.get(kind, 0) + 1

    def lines(self) -> Iterator[str]:
        """For people: what is refused first."""
        order = list(Verdict)
        yield from map(str, sorted(self.decisions, key=lambda one: order.index(one.verdict)))
        yield ", ".join(f"{name}: {count}" for name, count in self.counts.items())

    def as_json(self) -> Mapping[str, Any]:
        """For programs."""
        found: Mapping[str, Any] = wire.plain(self)
        return found


class Judge:
    """Makes decisions; `keep_unknown` is the administrator's word that what is not known may stay behind."""

    def __init__(self, *, keep_unknown: bool, report: Report | None = None) -> None:
        self.keep_unknown = keep_unknown
        self.report = report or Report()

    def unknown(self, what: str, field: str, text: str) -> None:
        """Something with a meaning that the other side lacks."""
        if self.keep_unknown:
            self.keep(what, field, text)
        else:
            self.refuse(what, field, text, "--keep-unknown leaves it behind")

    def refuse(self, what: str, field: str, text: str, advice: str = "") -> None:
        """Something that nothing can be made of."""
        self._decide(Verdict.REFUSED, what, field, text, advice)

    def keep(self, what: str, field: str, text: str) -> None:
        """Something that has no meaning on the other side."""
        self._decide(Verdict.KEPT, what, field, text)

    def change(self, what: str, field: str, text: str, advice: str = "") -> None:
        """Something that is otherwise on the other side."""
        self._decide(Verdict.CHANGED, what, field, text, advice)

    def _decide(self, verdict: Verdict, what: str, field: str, text: str, advice: str = "") -> None:
        # Messages of errors begin with the name of the field, which is printed already.
        for name in (field, field.rpartition(".")[2]):
            text = text.removeprefix(f"{name}: ")
        self.report.decisions.append(Decision(verdict, what, field, text, advice))
