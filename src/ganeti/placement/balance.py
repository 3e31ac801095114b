"""Balancing: the moves that make a cluster more even, the best one first, while each gains enough."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import numpy as np

from ganeti.placement.candidates import Options, best_move
from ganeti.placement.moves import Step, apply
from ganeti.placement.places import NO_NODE, TIE
from ganeti.placement.score import best_possible, everywhere, score
from ganeti.placement.state import Bools, Indices, State


@dataclass(frozen=True)
class Goals:
    """When to stop, and which instances may move; the defaults are those of `hbal`."""

    options: Options = field(default_factory=Options)
    max_moves: int = -1
    """No limit if negative."""
    min_score: float = 1e-9
    """How far above the best possible score is good enough."""
    min_gain: float = 0.01
    min_gain_limit: float = 0.1
    """Below this score a move must gain at least `min_gain`."""
    only_evacuate: bool = False
    """Move only instances with a node that is offline or drained."""
    selected: Collection[str] = ()
    excluded: Collection[str] = ()


def movable(state: State, scope: Bools, goals: Goals) -> Indices:
    """Return the instances that may move: by template and flag, not split over groups, within the scope."""
    these = state.instances
    primary, secondary = state.primary, state.secondary
    may = these.is_movable & these.auto_balance & (primary >= 0) & scope[primary]
    mirrored = secondary != NO_NODE
    may &= ~mirrored | (state.group[primary] == state.group[secondary])
    if goals.only_evacuate:
        may &= state.offline[primary] | (mirrored & state.offline[secondary])
    if goals.selected:
        may &= np.isin(np.array(state.names), list(goals.selected))
    if goals.excluded:
        may &= ~np.isin(np.array(state.names), list(goals.excluded))
    return np.flatnonzero(may)


def balance(state: State, goals: Goals, scope: Bools | None = None) -> Iterator[Step]:
    """Make and yield the best move, repeatedly; this changes `state`."""
    scope = everywhere(state) if scope is None else scope
    enough = best_possible(state, scope) + goals.min_score
    current, made = score(state, scope), 0
    while (goals.max_moves < 0 or made < goals.max_moves) and current > enough:
        move = best_move(state, scope, movable(state, scope, goals), goals.options)
        if move is None or not _is_worth(current, move.score, goals):
            return
        step = apply(state, move)
        current, made = score(state, scope), made + 1
        yield step._replace(move=move._replace(score=current))


def _is_worth(before: float, after: float, goals: Goals) -> bool:
    """The smallest gain that counts. Rounding alone can produce less, and moves could then alternate without end."""
    gain = before - after
    return gain > TIE and (before > goals.min_gain_limit or gain >= goals.min_gain)
