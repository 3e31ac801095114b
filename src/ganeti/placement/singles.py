"""The score of a cluster with one more instance, for every possible node or pair of nodes."""

import numpy as np

from ganeti.placement.places import TIE
from ganeti.placement.score import SPREAD_WEIGHTS
from ganeti.placement.spread import AS_PRIMARY, Chunk
from ganeti.placement.state import Floats, Indices
from ganeti.placement.weights import (
    CONFLICT_WEIGHT,
    DISK,
    DISK_LOAD_SPREAD,
    FAILING_WEIGHT,
    RESERVED,
    SPINDLES,
)

SHARED = (DISK, DISK_LOAD_SPREAD, SPINDLES)
"""The values that both nodes of a mirrored instance change."""
ROWS = 64


def last_of_equals(scores: Floats) -> int | None:
    """Return the index of the lowest score, the last of equal ones; None if none is possible."""
    best = scores.min(initial=np.inf)
    if not np.isfinite(best):
        return None
    return int(np.flatnonzero(scores <= best + TIE)[-1])


def _failing(chunk: Chunk, memory: Floats) -> Floats:
    """Return a new primary's change to the count of instances on nodes that fail N+1."""
    state = chunk.field.state
    both = state.primaries + state.secondaries
    fails = state.free - memory <= state.reserved
    change = fails * (both + 1) - state.fails * both
    return np.asarray(FAILING_WEIGHT * change * chunk.field.online)


def _primary_tags(chunk: Chunk) -> Floats | float:
    """Return the change by tags if an unplaced instance becomes primary at each node."""
    rules, online = chunk.field.state.tags, chunk.field.online
    change: Floats | float = 0.0
    if chunk.clashes is not None:
        change = CONFLICT_WEIGHT * chunk.clashes * online
    if rules.has_locations:
        together = rules.location @ (rules.counts * online).T
        gained = rules.exclusive[chunk.which] @ (together >= 1).T
        change = change + gained @ (rules.location * online)
    if rules.has_locations or rules.desires.any():
        change = change + rules.unmet(chunk.which) * online
    return change


def added_scores(chunk: Chunk) -> Floats:
    """Return (instances, nodes): the score with the instance as one more primary at each node."""
    field, these = chunk.field, chunk.field.state.instances
    memory = (these.memory[chunk.which] * these.uses_memory[chunk.which])[:, None]
    total = chunk.spread([], AS_PRIMARY) + (field.fixed + field.reserved_now)
    total += _failing(chunk, memory)
    total += _primary_tags(chunk)
    return total


def fixed_scores(chunk: Chunk) -> Floats:
    """Return, by primary, the part of the score that is independent of the secondary (the chunk's only instance)."""
    field, these = chunk.field, chunk.field.state.instances
    memory = (these.memory[chunk.which] * these.uses_memory[chunk.which])[:, None]
    alone = [spread for spread in AS_PRIMARY if spread not in SHARED]
    fixed = chunk.spread([], alone)[0] - _still(chunk)
    fixed += field.fixed + _failing(chunk, memory)[0]
    tags = _primary_tags(chunk)
    return np.asarray(fixed + (tags if isinstance(tags, float) else tags[0]))


def row_scores(
    chunk: Chunk, fixed: Floats, rows: Indices, columns: Indices, reserved: Floats
) -> Floats:
    """Return (rows, columns): the score on these primaries and secondaries, without tags and failing secondaries.

    `reserved` is the memory that each secondary then reserves for the primary's instances.
    """
    field = chunk.field
    part = fixed[rows, None] + sum(_both(chunk, spread, rows, columns) for spread in SHARED)
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


def _still(chunk: Chunk) -> float:
    """Return the present spreads that both nodes change: `spread` counts them as fixed."""
    field = chunk.field
    now = SPREAD_WEIGHTS * np.sqrt(field.squares / field.number)
    return float(now[list(SHARED)].sum())


def _both(chunk: Chunk, spread: int, rows: Indices, columns: Indices) -> Floats:
    field, number = chunk.field, chunk.field.number
    amount = np.full(len(field.live), chunk.amounts[spread, 0])
    if spread == DISK:
        amount = np.where(field.state.exclusive, chunk.spindle_amount[0], amount)
    change = amount * field.coefficients[spread]
    square = change * (2 * field.values[spread] + change) - change**2 / number
    scale = SPREAD_WEIGHTS[spread] ** 2 / number
    left = np.stack(
        [
            scale * (field.squares[spread] + square[rows]),
            np.full(len(square[rows]), scale),
            -2.0 * scale / number * change[rows],
        ],
        axis=1,
    )
    product = left @ np.stack([np.ones(len(columns)), square[columns], change[columns]])
    np.maximum(product, 0.0, out=product)
    return np.asarray(np.sqrt(product, out=product))


def _secondary_failing(chunk: Chunk, reserve: float) -> Floats:
    state = chunk.field.state
    both = state.primaries + state.secondaries
    reserved = np.maximum(chunk.field.peers_by_primary + reserve, state.reserved)
    change = (state.free <= reserved) * (both + 1) - state.fails * both
    return np.asarray(FAILING_WEIGHT * change * chunk.field.online)
