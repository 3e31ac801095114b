"""Reasons why nodes were not chosen, grouped: nodes whose reasons differ only in figures share a line.

A cluster of 1,000 nodes has a few reasons, not 1,000 of them. An error message has one line (`summary`), an
explanation a table (`table`).
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

_FIGURE = re.compile(r"(?<![\w.:-])\d+(?:\.\d+)?(?![\w:-]|\.\w)")
MOST_NAMES = 4
"""The number of nodes that a reason names; the rest are counted."""
MOST_REASONS = 10
"""The number of reasons in an error message; a table has all."""


class Shared(NamedTuple):
    """A reason, with ranges in place of the figures that differ, and its nodes."""

    reason: str
    nodes: tuple[str, ...]

    def names(self) -> str:
        """Return the nodes: all of a few, else the first ones and the number of the others."""
        more = len(self.nodes) - MOST_NAMES
        if more <= 1:
            return ", ".join(self.nodes)
        return f"{', '.join(self.nodes[:MOST_NAMES])} and {more} more"


def grouped(reasons: Sequence[tuple[str, str]]) -> list[Shared]:
    """Group (node, reason) by reason; the reason with the most nodes first."""
    by_form: dict[str, list[tuple[str, str]]] = {}
    for node, reason in reasons:
        by_form.setdefault(_FIGURE.sub("#", reason), []).append((node, reason))
    found = [
        Shared(_ranged([reason for _node, reason in same]), tuple(node for node, _reason in same))
        for same in by_form.values()
    ]
    return sorted(found, key=lambda one: -len(one.nodes))


def _ranged(reasons: Sequence[str]) -> str:
    """Return the first reason, with a range in place of each figure that differs in another."""
    columns = zip(*(_FIGURE.findall(one) for one in reasons), strict=True)

    def spread(_found: re.Match[str]) -> str:
        figures = next(columns)
        low, high = min(figures, key=float), max(figures, key=float)
        return low if low == high else f"{low} to {high}"

    return _FIGURE.sub(spread, reasons[0])


def summary(reasons: Sequence[tuple[str, str]]) -> str:
    """Return one line: `node1, node2: reason; node3: another reason`."""
    every = grouped(reasons)
    parts = [f"{one.names()}: {one.reason}" for one in every[:MOST_REASONS]]
    if rest := sum(len(one.nodes) for one in every[MOST_REASONS:]):
        parts.append(f"{rest} nodes have other reasons")
    return "; ".join(parts)


def table(reasons: Sequence[tuple[str, str]], *, names_all: bool = False) -> list[str]:
    """Return lines with a column of reasons and one of nodes, under a heading; none without reasons."""
    if not reasons:
        return []
    found = [
        (one.reason, ", ".join(one.nodes) if names_all else one.names()) for one in grouped(reasons)
    ]
    rows = [("Reason", "Nodes not chosen"), *found]
    width = max(len(reason) for reason, _names in rows)
    return [f"{reason:<{width}}  {names}" for reason, names in rows]
