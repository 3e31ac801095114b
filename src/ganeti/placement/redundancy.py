"""Whether a node can be lost: its mirrored instances fail over, and all others find a place elsewhere.

That is what `hail` and `hspace` call capacity checks (global N+1). Only hard limits count. A place is
looked for as upstream does, so that both agree: instances that any node can start go first, in their order, then
the others, the largest first; each goes where the cluster is most even. Mostly
it need not be looked for: if the other nodes together have room for as many of the largest instance
as must move, no order of placing them can fail.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from ganeti.placement import fit
from ganeti.placement.candidates import Options, every_move
from ganeti.placement.fit import Demands, Room
from ganeti.placement.policy_fit import policy_fits
from ganeti.placement.score import (
    DISK,
    FAILING_WEIGHT,
    OFFLINE_PRIMARY_WEIGHT,
    OFFLINE_WEIGHT,
    RESERVED,
    SPREAD_WEIGHTS,
)
from ganeti.placement.singles import added_scores, last_of_equals
from ganeti.placement.spread import Chunk, Field
from ganeti.placement.state import MIRROR_EXTERNAL, MIRROR_INTERNAL, NO_NODE, Bools, Floats, Indices, State

_ANY = Options(disk_moves=False, ignore_soft_errors=True)


def doomed_nodes(
    state: State,
    ignored_groups: Iterable[int] = (),
    first: int | None = None,
    *,
    spare_lone_nodes: bool = False,
) -> Iterator[int]:
    """Nodes whose loss the cluster could not make good; `first` is looked at before the others.

    With `spare_lone_nodes` nothing is asked of a group with one online node, which cannot be redundant.
    """
    relevant = ~np.isin(state.group, list(ignored_groups))
    if spare_lone_nodes:
        online = np.bincount(state.group[~state.offline], minlength=len(state.groups))
        relevant &= online[state.group] > 1
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
    wrong = others & ~policy_fits(state) & (state.instances.mirror != MIRROR_EXTERNAL)
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
    """By node: whatever the order, the rest of its group has room for its instances."""
    size, these = len(state.nodes), state.instances
    where = state.primary[others]
    number = np.bincount(where, minlength=size)
    memory = these.memory[others] * these.uses_memory[others]
    disk = these.disk[others] * these.is_local[others]
    sure = number == 0
    for group in range(len(state.groups)):
        members = state.group == group
        mine = members[where]
        if not mine.any():
            continue
        room = np.where(members & ~state.offline, free, -np.inf)
        most = number[members].max()
        rooms = _rooms(room, state.free_disk, memory[mine].max(), disk[mine].max())
        sure |= members & (rooms.sum() - rooms >= most)
        for node in np.flatnonzero(members & ~sure):
            own = np.flatnonzero(where == node)[::-1]
            order = own[_turns(these.mirror[others[own]] == MIRROR_EXTERNAL, memory[own])]
            sure[node] = _surely_fit(
                _without(room, int(node)), state.free_disk, memory[order], disk[order]
            )
    return np.asarray(sure)


def _without(room: Floats, node: int) -> Floats:
    rest = room.copy()
    rest[node] = -np.inf
    return rest


def _rooms(free: Floats, free_disk: Floats, memory: float, disk: float) -> Floats:
    """How many instances of that size each node surely takes; something must remain."""
    many = float(len(free)) * 1e6
    by_memory = np.ceil(free / memory) - 1 if memory else np.where(free > 0, many, 0.0)
    by_disk = np.ceil(free_disk / disk) - 1 if disk else np.full(len(free), many)
    return np.asarray(np.maximum(0.0, np.minimum(by_memory, by_disk)))


def _surely_fit(free: Floats, free_disk: Floats, memory: Floats, disk: Floats) -> bool:
    """Whether instances find a place one after the other, wherever earlier ones went.

    A node is out for an instance only after it took some earlier ones, each of the largest size at most.
    """
    memory, disk = memory[:, None], disk[:, None]
    takes = np.floor((free - memory - 1) / max(1.0, float(memory.max()))) + 1
    if disk.any():
        most = max(1.0, float(disk.max()))
        takes = np.minimum(takes, np.floor((free_disk - disk - 1) / most) + 1)
    needed = np.arange(1, len(memory) + 1)
    return bool((np.maximum(takes, 0.0).sum(axis=1) >= needed).all())


def _turns(is_shared: Bools, memory: Floats) -> Indices:
    """The order in which instances look for a place: shared ones as they come, then the largest of the others."""
    return np.lexsort((np.where(is_shared, 0.0, -memory), ~is_shared))


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
    is_shared = these.mirror[others] == MIRROR_EXTERNAL
    others = others[_turns(is_shared, these.memory[others])]
    shared, fixed = np.split(others, [int(is_shared.sum())])
    for index in shared:
        if not _move_away(after, int(index), scope):
            return False
    if not policy_fits(state)[fixed].all():
        return False
    return not len(fixed) or _Refuge(after, scope, node).takes(fixed)


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


class _Refuge:
    """Copies of lost instances on other nodes, one after the other; the lost ones stay in the score."""

    def __init__(self, state: State, scope: Bools, lost: int) -> None:
        self.state = state
        field = self.field = Field(state, np.ones(len(state.nodes), dtype=bool))
        self.values, self.squares = field.values.copy(), field.squares.copy()
        self.sums = np.zeros(len(self.squares))
        self.free, self.free_disk = state.free.copy(), state.free_disk.copy()
        self.free_spindles = np.where(state.exclusive, state.free_spindles, np.inf)
        self.both, self.fails = state.primaries + state.secondaries, state.fails.copy()
        self.open = scope.copy()
        self.open[lost] = False

    def takes(self, which: Indices) -> bool:
        """Whether all of them find a place."""
        rules = self.state.tags
        if rules.has_exclusion or rules.has_locations:
            return all(self._take_by_all_rules(int(index)) for index in which)
        return all(self._take(int(index), chunk) for index, chunk in self._each(which))

    def _each(self, which: Indices) -> Iterator[tuple[int, int]]:
        self.chunk = Chunk(self.field, which, force=True)
        return ((int(index), row) for row, index in enumerate(which))

    def _take(self, index: int, row: int) -> bool:
        state, chunk, number = self.state, self.chunk, self.field.number
        demands = chunk.demands
        memory = max(0.0, float(demands.memory[row, 0]))
        fits = (memory < self.free) & (demands.disk[row] < self.free_disk) & self.open
        fits &= demands.spindles[row] <= self.free_spindles
        if not fits.any():
            return False
        amounts = chunk.amounts[:, row, None]
        change = amounts * self.field.coefficients
        if state.exclusive.any():
            own = chunk.spindle_amount[row] * self.field.coefficients[DISK]
            change[DISK] = np.where(state.exclusive, own, change[DISK])
        change[RESERVED] = 0.0
        square = change * (2 * self.values + change)
        spread = (self.squares[:, None] + square) / number
        spread -= ((self.sums[:, None] + change) / number) ** 2
        scores = SPREAD_WEIGHTS @ np.sqrt(np.maximum(spread, 0.0))
        failing = self.free - memory <= state.reserved
        scores += FAILING_WEIGHT * (failing * (self.both + 1) - self.fails * self.both)
        scores += (OFFLINE_WEIGHT + OFFLINE_PRIMARY_WEIGHT) * state.offline
        target = last_of_equals(np.where(fits, scores, np.inf))
        if target is None:
            return False
        self.values[:, target] += change[:, target]
        self.squares += square[:, target]
        self.sums += change[:, target]
        self.free[target] -= memory
        self.free_disk[target] -= max(0.0, float(demands.disk[row, 0]))
        self.free_spindles[target] -= max(
            0.0, float(np.nan_to_num(state.instances.spindles[index]))
        )
        self.both[target] += 1
        self.fails[target] = failing[target]
        return True

    def _take_by_all_rules(self, index: int) -> bool:
        state, which = self.state, np.array([index])
        field = Field(state, self.field.scope)
        chunk = Chunk(field, which, force=True)
        fits = fit.hard(Demands.of(state, which), Room.of(state)) & self.open
        penalty = (OFFLINE_WEIGHT + OFFLINE_PRIMARY_WEIGHT) * state.offline
        target = last_of_equals(np.where(fits, added_scores(chunk) + penalty, np.inf)[0])
        if target is None:
            return False
        state.add_primary(index, target)
        return True
