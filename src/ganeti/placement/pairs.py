"""The best pair of nodes for one more instance, without the scores of all pairs: for large clusters.

The score of a pair is nearly a sum of a term for each node. Its concave parts lie above their chords, its convex part
above its tangent, so a sum of one term a node is a lower bound for each pair. The search examines primaries in the
order of their term, each with the secondaries whose term does not lift the pair above the best score so far.
"""

import numpy as np

from ganeti.placement.places import TIE
from ganeti.placement.score import SPREAD_WEIGHTS
from ganeti.placement.singles import SHARED, fixed_scores, row_scores
from ganeti.placement.spread import Chunk
from ganeti.placement.state import Bools, Floats, Indices
from ganeti.placement.weights import RESERVED, RESERVED_TOTAL_WEIGHT

FEWEST_NODES = 64
AT_ONCE, FEW = 64, 32
SLACK = 1e-9
"""The amount by which rounding may lift a bound above a score."""


def can_search(chunk: Chunk) -> bool:
    """Return whether `best_pair` knows all that decides for the chunk's only instance."""
    state = chunk.field.state
    return (
        len(state.nodes) >= FEWEST_NODES
        and not state.tags.has_locations
        and not chunk.field.is_risky
        and not chunk.force
    )


def best_pair(chunk: Chunk, primaries: Bools, secondaries: Bools) -> tuple[int, int, float] | None:
    """Return (primary, secondary, score) of one group; of equal scores the last pair. None if no pair is possible."""
    rows, columns = np.flatnonzero(primaries), np.flatnonzero(secondaries)
    if not len(rows) or not len(columns):
        return None
    search = _Search(chunk, columns)
    bounds, rest = _bounds(chunk, search.fixed, rows, columns)
    order = np.argsort(bounds, kind="stable")
    rows, bounds = rows[order], bounds[order]
    # A few promising secondaries limit the search.
    few = np.argpartition(rest, min(FEW, len(rest) - 1))[:FEW]
    best, found = float(search.scores(rows[:FEW], np.sort(few)).min()), []
    for start in range(0, len(rows), AT_ONCE):
        room = best + TIE + SLACK - bounds[start]
        near = np.flatnonzero(rest <= room)
        if not len(near):
            break
        part = rows[start : start + AT_ONCE]
        scores = search.scores(part, near)
        found.append((part, columns[near], scores))
        best = min(best, float(scores.min()))
    if not np.isfinite(best):
        return None
    return max(
        (int(part[row]), int(those[column]), float(scores[row, column]))
        for part, those, scores in found
        for row, column in zip(*np.nonzero(scores <= best + TIE), strict=True)
    )


class _Search:
    """Return the scores of some pairs."""

    def __init__(self, chunk: Chunk, columns: Indices) -> None:
        self.chunk, self.columns = chunk, columns
        self.fixed = fixed_scores(chunk)

    def scores(self, rows: Indices, near: Indices) -> Floats:
        """Return (rows, near): the scores with these primaries and columns, infinite where a pair is not possible."""
        state, columns = self.chunk.field.state, self.columns[near]
        reserved = state.peers[columns[None, :], rows[:, None]] + self.chunk.reserve[0]
        possible = state.group[rows][:, None] == state.group[columns]
        possible &= rows[:, None] != columns
        has_room = np.maximum(reserved, state.reserved[columns]) < state.free[columns]
        possible &= has_room | state.fails[columns]
        scores = row_scores(self.chunk, self.fixed, rows, columns, reserved)
        return np.where(possible, scores, np.inf)


def _bounds(chunk: Chunk, fixed: Floats, rows: Indices, columns: Indices) -> tuple[Floats, Floats]:
    """Return (by row, by column): two terms whose sum is a lower bound of each pair's score."""
    field, number = chunk.field, chunk.field.number
    bounds, rest = fixed[rows].copy(), _reserved_bound(chunk)[columns]
    for spread in SHARED:
        scale = SPREAD_WEIGHTS[spread] ** 2 / number
        change = chunk.amounts[spread, 0] * field.coefficients[spread]
        square = scale * (change * (2 * field.values[spread] + change) - change**2 / number)
        cross = 2.0 * scale / number * np.abs(change[rows]).max() * np.abs(change[columns]).max()
        now = scale * field.squares[spread]
        low = max(0.0, now + square[rows].min() + square[columns].min() - cross)
        high = max(low, now + square[rows].max() + square[columns].max() + cross)
        slope = 1.0 / (np.sqrt(high) + np.sqrt(low)) if high > 0 else 0.0
        bounds += np.sqrt(low) + slope * (now - low - cross + square[rows])
        rest = rest + slope * square[columns]
    return np.asarray(bounds), np.asarray(rest)


def _reserved_bound(chunk: Chunk) -> Floats:
    """Return, by secondary, a lower bound of the reserved memory's part, for every primary."""
    field, state, number = chunk.field, chunk.field.state, chunk.field.number
    unit, reserve = field.coefficients[RESERVED], float(chunk.reserve[0])
    least, most = np.maximum(0.0, reserve - state.reserved) * unit, reserve * unit
    value, weight = field.values[RESERVED], float(SPREAD_WEIGHTS[RESERVED] / np.sqrt(number))
    inner = field.squares[RESERVED] + least * (least * (1.0 - 1.0 / number) + 2.0 * value)
    root = np.sqrt(np.maximum(inner, 0.0))
    slope = weight * (least * (1.0 - 1.0 / number) + value) / np.maximum(root, 1e-30)
    slope = np.minimum(0.0, slope + RESERVED_TOTAL_WEIGHT)
    return np.asarray(weight * root + RESERVED_TOTAL_WEIGHT * least + slope * (most - least))
