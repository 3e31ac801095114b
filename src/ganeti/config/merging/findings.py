"""Collects the findings of a merge, according to the administrator's choices."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from ganeti.config.merging.plan import Choice, Finding, MergeOptions, Part, Severity

_SHOWN = 3


@dataclass
class Findings:
    """The findings about one cluster, in order."""

    cluster: str
    options: MergeOptions
    all: list[Finding] = field(default_factory=list)

    def error(self, text: str) -> None:
        self.all.append(Finding(Severity.ERROR, self.cluster, text))

    def decision(self, text: str) -> None:
        self.all.append(Finding(Severity.DECISION, self.cluster, text))

    def note(self, text: str) -> None:
        self.all.append(Finding(Severity.NOTE, self.cluster, text))

    def differs(self, part: Part, text: str, *, keep: str, why_not: str = "") -> bool:
        """Record a difference and its resolution; return whether the other value is kept (by `keep`, unless `why_not`)."""
        choice = self.options.choice(part)
        if choice is Choice.OURS:
            self.decision(f"{text}; the local value applies")
        elif choice is Choice.KEEP and not why_not:
            self.decision(f"{text}; {keep}")
            return True
        elif choice is Choice.KEEP:
            self.error(
                f"{text}; the other cluster's value cannot be kept: {why_not}; choose {part}=ours to use the local value"
            )
        else:
            ways = f"{part}=ours" if why_not else f"{part}=keep or {part}=ours"
            self.error(f"{text}; choose with --parameters {ways}")
        return False


def some(names: Iterable[str]) -> str:
    """Return the first names, and the number of the others."""
    ordered = sorted(set(names))
    shown = ", ".join(islice(ordered, _SHOWN))
    more = len(ordered) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
