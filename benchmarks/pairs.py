"""Judge the figures of two versions that were measured in turn. Pure.

The two runs of a round are a pair: the machine was about the same for both. Of each figure the ratios of the pairs
count, not the figures themselves: a machine that becomes slower in the middle changes both sides of a pair.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Figures = Mapping[str, object]
"""What one run of a benchmark has printed."""

NOTED = 0.05
"""A change of less than this share is not marked."""
OF_THE_MACHINE = frozenset({"spin_ms", "mean_spin_ms", "sync_ms"})
"""Figures about the machine itself, which no version makes better or worse."""


@dataclass(frozen=True)
class Comparison:
    """One figure: the medians of both versions, and the median of the ratios new to old."""

    name: str
    old: float
    new: float
    ratio: float
    noise: float
    """How far the median of so many ratios may be from the true one, with 95 % certainty."""

    @property
    def verdict(self) -> str:
        """Return `WORSE`, `better`, or nothing for a change that is small or may be noise."""
        change = self.ratio - 1
        if self.name in OF_THE_MACHINE or abs(change) <= max(NOTED, self.noise):
            return ""
        return "better" if (change > 0) == is_greater_better(self.name) else "WORSE"


def is_greater_better(name: str) -> bool:
    """Return whether the figure is a rate of work; all others are costs."""
    return name.endswith("_per_second") and not name.endswith("wakeups_per_second")


def compare(pairs: Sequence[tuple[Figures, Figures]]) -> list[Comparison]:
    """Compare the figures that both versions printed in every pair (old, new), in the order of the first."""
    shared = [name for name in (pairs[0][0] if pairs else {}) if _is_in_all(name, pairs)]
    return [_compared(name, pairs) for name in shared]


def one_sided(pairs: Sequence[tuple[Figures, Figures]]) -> tuple[list[str], list[str]]:
    """Return the names that only the old version prints, and those that only the new one prints."""
    old = {name for pair in pairs for name in pair[0]}
    new = {name for pair in pairs for name in pair[1]}
    return sorted(old - new), sorted(new - old)


def table(comparisons: Sequence[Comparison]) -> list[str]:
    """Return lines for a person."""
    width = max((len(one.name) for one in comparisons), default=0)
    lines = [f"{'':{width}}  {'old':>10}  {'new':>10}  {'ratio':>6}  {'noise':>6}"]
    for one in comparisons:
        figures = f"{one.old:10.4g}  {one.new:10.4g}  {one.ratio:6.3f}  {one.noise:6.3f}"
        lines.append(f"{one.name:{width}}  {figures}  {one.verdict}".rstrip())
    return lines


def _is_in_all(name: str, pairs: Sequence[tuple[Figures, Figures]]) -> bool:
    return all(_is_number(figures.get(name)) for pair in pairs for figures in pair)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _compared(name: str, pairs: Sequence[tuple[Figures, Figures]]) -> Comparison:
    old, new = ([float(str(pair[side][name])) for pair in pairs] for side in (0, 1))
    ratios = [_ratio(before, after) for before, after in zip(old, new, strict=True)]
    middle = statistics.median(ratios)
    return Comparison(
        name, statistics.median(old), statistics.median(new), middle, _noise(ratios, middle)
    )


def _ratio(old: float, new: float) -> float:
    if old == new:
        return 1.0
    return new / old if old else math.inf


def _noise(ratios: Sequence[float], middle: float) -> float:
    """Two standard errors of the median, from the median deviation: a single bad pair does not count."""
    if not math.isfinite(middle):
        return 0.0
    deviation = 1.4826 * statistics.median(abs(ratio - middle) for ratio in ratios)
    return 2 * math.sqrt(math.pi / 2) * deviation / math.sqrt(len(ratios))
