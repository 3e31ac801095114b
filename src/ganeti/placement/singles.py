"""The score of a cluster with one more instance, for every possible node or pair of nodes."""

import numpy as np

from ganeti.placement.places import TIE
from ganeti.placement.score import SPREAD_WEIGHTS
from ganeti.placement.spread import Chunk
from ganeti.placement.state import Floats, Indices
from ganeti.placement.weights import (
    CONFLICT_WEIGHT,
    DISK,
    DISK_LOAD_SPREAD,
    FAILING_WEIGHT,
    RESERVED,
    SPINDLES,
    SPREADS,
)

SHARED = [DISK, DISK_LOAD_SPREAD, SPINDLES]
"""What both nodes of a mirrored instance change."""
_ALONE_WEIGHTS = np.where(np.isin(np.arange(SPREADS), [*SHARED, RESERVED]), 0.0, SPREAD_WEIGHTS)
ROWS = 64


def last_of_equals(scores: Floats) -> int | None:
    """Return the index of the lowest score, the last of equal ones; None if none is possible."""
    best = scores.min(initial=np.inf)
    if not np.isfinite(best):
        return None
    return int(np.flatnonzero(scores <= best + TIE)[-1])


def _failing(chunk: Chunk) -> Floats:
    """Return the change by a new primary in the count of instances on nodes that fail N+1."""
    state, index = chunk.field.state, chunk.which[0]
    memory = state.instances.memory[index] * state.instances.uses_memory[index]
    both = state.primaries + state.secondaries
    fails = state.free - memory <= state.reserved
    change = fails * (both + 1) - state.fails * both
    return np.asarray(FAILING_WEIGHT * change * chunk.field.online)


def _primary_tags(chunk: Chunk) -> Floats | float:
    """Return the change by tags if an unplaced instance becomes primary at each node."""
    rules, online = chunk.field.state.tags, chunk.field.online
    change: Floats | float = 0.0
    if chunk.clashes is not None:
        change = CONFLICT_WEIGHT * chunk.clashes[0] * online
    if rules.has_locations:
        together = rules.location @ (rules.counts * online).T
        gained = rules.exclusive[chunk.which[0]] @ (together >= 1).T
        change = change + gained @ (rules.location * online)
    if rules.has_locations or rules.desires.any():
        change = change + rules.unmet(chunk.which)[0] * online
    return change


def _as_primary(chunk: Chunk, weights: Floats) -> Floats:
    """Return, by primary, the score with the chunk's only instance, with these weights of the spreads."""
    field = chunk.field
    spreads = field.squares[:, None] + chunk.grown
    np.maximum(spreads, 0.0, out=spreads)
    np.sqrt(spreads, out=spreads)
    total = weights / np.sqrt(field.number) @ spreads
    return np.asarray(total + field.fixed + _failing(chunk) + _primary_tags(chunk))


def added_scores(chunk: Chunk) -> Floats:
    """Return, by node, the score with the chunk's only instance as one more primary there."""
    return _as_primary(chunk, SPREAD_WEIGHTS)


def fixed_scores(chunk: Chunk) -> Floats:
    """Return, by primary, the part of the score with the chunk's only instance that no secondary changes."""
    return _as_primary(chunk, _ALONE_WEIGHTS)


def row_scores(
    chunk: Chunk, fixed: Floats, rows: Indices, columns: Indices, reserved: Floats
) -> Floats:
    """Return (rows, columns): the score on these primaries and secondaries, without tags and failing secondaries.

    `reserved` is the memory that each secondary then reserves for the primary's instances.
    """
    field = chunk.field
    part = fixed[rows, None] + _both(chunk, rows, columns)
    change = reserved - field.state.reserved[columns]
    np.maximum(change, 0.0, out=change)
    change *= field.coefficients[RESERVED, columns]
    return np.asarray(part + chunk.reserved_spread([], change, field.values[RESERVED, columns]))


def pair_scores(chunk: Chunk) -> Floats:
    """Return (primary, secondary): the score with the only instance of the chunk on each pair of nodes."""
    field = chunk.field
    fixed = fixed_scores(chunk)
    scores = np.empty((len(fixed), len(fixed)))
    shared = field.state.tags.shared_places() if field.state.tags.has_locations else None
    everyone = np.arange(len(fixed))
    for start in range(0, len(fixed), ROWS):
        rows = everyone[start : start + ROWS]
        reserved = field.peers_by_primary[rows] + float(chunk.reserve[0])
        scores[rows] = row_scores(chunk, fixed, rows, everyone, reserved)
        if shared is not None:
            scores[rows] += shared[rows]
    if field.is_risky or chunk.force:
        scores += _secondary_failing(chunk, float(chunk.reserve[0]))
    return scores


def _both(chunk: Chunk, rows: Indices, columns: Indices) -> Floats:
    """Return (rows, columns): the spreads that both nodes change."""
    field, number = chunk.field, chunk.field.number
    change, grown = chunk.changes[SHARED], chunk.grown[SHARED]
    left = np.stack(
        [
            field.squares[SHARED, None] + grown[:, rows],
            np.ones((len(SHARED), len(rows))),
            -2.0 / number * change[:, rows],
        ],
        axis=2,
    )
    left *= (SPREAD_WEIGHTS[SHARED] ** 2 / number)[:, None, None]
    right = [np.ones((len(SHARED), len(columns))), grown[:, columns], change[:, columns]]
    product: Floats = left @ np.stack(right, axis=1)
    np.maximum(product, 0.0, out=product)
    return np.asarray(np.sqrt(product, out=product).sum(axis=0))


def _secondary_failing(chunk: Chunk, reserve: float) -> Floats:
    state = chunk.field.state
    both = state.primaries + state.secondaries
    reserved = np.maximum(chunk.field.peers_by_primary + reserve, state.reserved)
    change = (state.free <= reserved) * (both + 1) - state.fails * both
    return np.asarray(FAILING_WEIGHT * change * chunk.field.online)
