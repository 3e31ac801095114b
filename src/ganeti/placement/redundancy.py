"""Whether a node can be lost: its mirrored instances fail over, and all others find a place elsewhere.

That is what `hail` and `hspace` call capacity checks (global N+1). Only hard limits count. A place is
looked for as upstream does, the largest instance first and the most even cluster next, so that both agree. Mostly
it need not be looked for: if the other nodes together have room for as many of the largest instance
as must move, no order of placing them can fail.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from ganeti.placement import fit
from ganeti.placement.candidates import Options, every_move
from ganeti.placement.fit import Demands, Room
from ganeti.placement.policy_fit import policy_fits
from ganeti.placement.singles import added_scores, last_of_equals
from ganeti.placement.spread import Chunk, Field
from ganeti.placement.state import MIRROR_INTERNAL, NO_NODE, Bools, Floats, Indices, State

_ANY = Options(disk_moves=False, ignore_soft_errors=True)


def doomed_nodes(
    state: State, ignored_groups: Iterable[int] = (), first: int | None = None
) -> Iterator[int]:
    """Nodes whose loss the cluster could not make good; `first` is looked at before the others."""
    relevant = ~np.isin(state.group, list(ignored_groups))
    unclear = np.flatnonzero(relevant & ~_surely_evacuable(state))
    if first is not None and first in unclear:
        unclear = np.concatenate([[first], unclear[unclear != first]])
    for node in unclear:
        if not can_be_lost(state, int(node)):
            yield int(node)


def is_redundant(state: State, ignored_groups: Iterable[int] = ()) -> bool:
    """Whether any one node may fail."""
    return next(doomed_nodes(state, ignored_groups), None) is None


def _surely_evacuable(state: State) -> Bools:
    """By node, True where counting is enough; False means "look closely"."""
    size = len(state.nodes)
    there = state.primary >= 0
    mirrored = (state.instances.mirror == MIRROR_INTERNAL) & there & (state.secondary >= 0)
    sure = _mirrored_fit(state, mirrored)
    others = there & ~mirrored
    if state.tags.forbidden is not None or state.exclusive.any():
        sure &= np.bincount(state.primary[others], minlength=size) == 0
        return sure
    wrong = others & ~policy_fits(state) & ~state.instances.is_movable
    sure[state.primary[wrong]] = False
    taken = _most_taken_over(state, mirrored)
    return sure & _rooms_suffice(state, np.flatnonzero(others), state.free - taken)


def _mirrored_fit(state: State, mirrored: Bools) -> Bools:
    """By node: each secondary of its instances has the memory to run all of them, and a disk that is not full."""
    primary, secondary = state.primary[mirrored], state.secondary[mirrored]
    size = len(state.nodes)
    pairs, place = np.unique(secondary * size + primary, return_inverse=True)
    memory = state.instances.memory[mirrored] * state.instances.uses_memory[mirrored]
    taken = np.bincount(place, weights=memory, minlength=len(pairs))
    takers, losers = np.divmod(pairs, size)
    fits = state.free[takers] > taken
    fits &= (state.free_disk[takers] > 0) & ((state.free_disk[losers] > 0) | state.offline[losers])
    sure = np.ones(size, dtype=bool)
    sure[losers[~fits]] = False
    return sure


def _most_taken_over(state: State, mirrored: Bools) -> Floats:
    """By node: the memory that it takes over at most if one other node is lost."""
    size = len(state.nodes)
    taken = np.zeros(size)
    pairs, place = np.unique(
        state.secondary[mirrored] * size + state.primary[mirrored], return_inverse=True
    )
    memory = state.instances.memory[mirrored] * state.instances.uses_memory[mirrored]
    np.maximum.at(taken, pairs // size, np.bincount(place, weights=memory, minlength=len(pairs)))
    return taken


def _rooms_suffice(state: State, others: Indices, free: Floats) -> Bools:
    """By node: the rest of its group has rooms for its instances, were they all as large as the largest."""
    size, these = len(state.nodes), state.instances
    where = state.primary[others]
    number = np.bincount(where, minlength=size)
    memory, disk = np.zeros(size), np.zeros(size)
    np.maximum.at(memory, where, these.memory[others] * these.uses_memory[others])
    np.maximum.at(disk, where, these.disk[others] * these.is_local[others])
    sure = number == 0
    for group in range(len(state.groups)):
        members = state.group == group
        open_ = members & ~state.offline
        asked = members & ~sure
        if not asked.any():
            continue
        rooms = _rooms(free, state.free_disk, memory[asked].max(), disk[asked].max()) * open_
        sure |= asked & (rooms.sum() - rooms >= number)
        for node in np.flatnonzero(members & ~sure):
            rooms = _rooms(free, state.free_disk, memory[node], disk[node]) * open_
            sure[node] = rooms.sum() - rooms[node] >= number[node]
    return sure


def _rooms(free: Floats, free_disk: Floats, memory: float, disk: float) -> Floats:
    """How many instances of that size each node surely takes; something must remain."""
    many = float(len(free)) * 1e6
    by_memory = np.ceil(free / memory) - 1 if memory else np.where(free > 0, many, 0.0)
    by_disk = np.ceil(free_disk / disk) - 1 if disk else np.full(len(free), many)
    return np.maximum(0.0, np.minimum(by_memory, by_disk))


def can_be_lost(state: State, node: int) -> bool:
    """Whether the instances of `node` find places, tried as described above."""
    mine = np.flatnonzero(state.primary == node)[::-1]
    these = state.instances
    mirrored = mine[(these.mirror[mine] == MIRROR_INTERNAL) & (state.secondary[mine] >= 0)]
    others = mine[~np.isin(mine, mirrored)]
    after = state.copy()
    for index in mirrored:
        if not _fail_over(after, int(index), node):
            return False
    scope = after.group == after.group[node]
    for index in others[these.is_movable[others]]:
        if not _move_away(after, int(index), scope):
            return False
    fixed = others[~these.is_movable[others]]
    if not policy_fits(state)[fixed].all():
        return False
    largest_first = fixed[np.argsort(-these.memory[fixed], kind="stable")]
    return all(_recreate(after, int(index), scope) for index in largest_first)


def _fail_over(state: State, index: int, node: int) -> bool:
    other = int(state.secondary[index])
    forbidden = state.tags.forbidden
    memory = state.instances.memory[index] * state.instances.uses_memory[index]
    if forbidden is not None and forbidden[node, other]:
        return False
    has_disk = state.free_disk[other] > 0 and (state.free_disk[node] > 0 or state.offline[node])
    if not has_disk or state.free[other] <= memory:
        return False
    state.settle_at(index, other, node)
    return True


def _move_away(state: State, index: int, scope: Bools) -> bool:
    field = Field(state, scope)
    for _which, kinds in every_move(field, np.array([index]), _ANY):
        target = last_of_equals(kinds[0].scores[0])
        if target is None:
            target = _drained_refuge(state, index, scope)
        if target is not None:
            state.settle_at(index, target, NO_NODE)
            return True
    return False


def _drained_refuge(state: State, index: int, scope: Bools) -> int | None:
    """A node that takes no instances else but has room: better than losing the instance."""
    room = fit.hard(Demands.of(state, np.array([index])), Room.of(state))[0]
    room &= scope & state.offline
    room[state.primary[index]] = False
    return int(np.flatnonzero(room)[-1]) if room.any() else None


def _recreate(state: State, index: int, scope: Bools) -> bool:
    """Put a copy elsewhere; the lost one stays on its node, whose score it is part of."""
    field = Field(state, np.ones(len(state.nodes), dtype=bool))
    which = np.array([index])
    chunk = Chunk(field, which, force=True)
    fits = fit.hard(Demands.of(state, which), Room.of(state)) & chunk.targets & scope
    target = last_of_equals(np.where(fits, added_scores(chunk), np.inf)[0])
    if target is None:
        target = _drained_refuge(state, index, scope)
    if target is None:
        return False
    state.add_primary(index, target)
    return True
