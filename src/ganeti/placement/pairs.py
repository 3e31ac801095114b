"""The best pair of nodes for one more instance, without the scores of all pairs: for large clusters.

The score of a pair is nearly a sum of a term for each node. Its concave parts lie above their chords, its convex part
above its tangent, so a sum of one term a node is a lower bound for each pair. The search drops the nodes whose bound
exceeds the best score so far. That shortens the chords and tightens the bounds of the other nodes. It then examines the
remaining primaries in the order of their term.
"""

import numpy as np

from ganeti.placement.places import SLACK, TIE
from ganeti.placement.score import SPREAD_WEIGHTS
from ganeti.placement.singles import SHARED, fixed_scores, row_scores
from ganeti.placement.spread import Chunk
from ganeti.placement.state import Bools, Floats, Indices
from ganeti.placement.weights import RESERVED, RESERVED_TOTAL_WEIGHT

FEWEST_NODES = 64
AT_ONCE, FEW, FEW_PAIRS = 64, 8, 512
WORTHWHILE = 0.5
"""The bounds are computed again if at most this share of the pairs remains."""


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
    search, reserved = _Search(chunk), _reserved_bound(chunk)
    bounds, rest = _bounds(chunk, search.fixed, reserved, rows, columns)
    best, left = np.inf, len(rows) * len(columns)
    while left > FEW_PAIRS:
        # A few promising nodes limit the search.
        best = min(best, float(search.scores(rows[_lowest(bounds)], columns[_lowest(rest)]).min()))
        limit, before = best + TIE + SLACK, left
        near, close = bounds <= limit - rest.min(), rest <= limit - bounds.min()
        rows, columns, bounds, rest = rows[near], columns[close], bounds[near], rest[close]
        left = len(rows) * len(columns)
        if left > before * WORTHWHILE:
            break
        # The bounds of fewer nodes are tighter.
        bounds, rest = _bounds(chunk, search.fixed, reserved, rows, columns)
    order = np.argsort(bounds, kind="stable")
    rows, bounds, found = rows[order], bounds[order], []
    for start in range(0, len(rows), AT_ONCE):
        close = rest <= best + TIE + SLACK - bounds[start]
        if not close.any():
            break
        part, those = rows[start : start + AT_ONCE], columns[close]
        scores = search.scores(part, those)
        found.append((part, those, scores))
        best = min(best, float(scores.min()))
    if not np.isfinite(best):
        return None
    return max(
        (int(part[row]), int(those[column]), float(scores[row, column]))
        for part, those, scores in found
        for row, column in zip(*np.nonzero(scores <= best + TIE), strict=True)
    )


def _lowest(values: Floats) -> Indices:
    """Return the indices of the few lowest values."""
    return np.argpartition(values, FEW)[:FEW] if len(values) > FEW else np.arange(len(values))


class _Search:
    """Return the scores of some pairs."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.fixed = fixed_scores(chunk)

    def scores(self, rows: Indices, columns: Indices) -> Floats:
        """Return (rows, columns): the scores with these nodes, infinite where a pair is not possible."""
        state = self.chunk.field.state
        reserved = state.peers[columns[None, :], rows[:, None]] + self.chunk.reserve[0]
        possible = state.group[rows][:, None] == state.group[columns]
        possible &= rows[:, None] != columns
        has_room = np.maximum(reserved, state.reserved[columns]) < state.free[columns]
        possible &= has_room | state.fails[columns]
        scores = row_scores(self.chunk, self.fixed, rows, columns, reserved)
        return np.where(possible, scores, np.inf)


def _bounds(
    chunk: Chunk, fixed: Floats, reserved: Floats, rows: Indices, columns: Indices
) -> tuple[Floats, Floats]:
    """Return (by row, by column): two terms whose sum is a lower bound of each pair's score."""
    field, number = chunk.field, chunk.field.number
    scale = SPREAD_WEIGHTS[SHARED] ** 2 / number
    now = scale * field.squares[SHARED]
    change, grown = np.abs(chunk.changes[SHARED]), scale[:, None] * chunk.grown[SHARED]
    first, second = grown[:, rows], grown[:, columns]
    cross = 2.0 * scale / number * change[:, rows].max(axis=1) * change[:, columns].max(axis=1)
    low = np.maximum(0.0, now + first.min(axis=1) + second.min(axis=1) - cross)
    high = np.maximum(low, now + first.max(axis=1) + second.max(axis=1) + cross)
    roots = np.sqrt(high) + np.sqrt(low)
    slope = np.where(roots > 0, 1.0 / np.where(roots > 0, roots, 1.0), 0.0)
    constant = float((np.sqrt(low) + slope * (now - low - cross)).sum())
    return fixed[rows] + constant + slope @ first, reserved[columns] + slope @ second


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
