"""Decide whether a node can be lost: mirrored instances fail over, all others must be placed elsewhere.

`hail` and `hspace` call this the capacity check (global N+1). Only hard limits count. A lost node migrates no
instance, so migration tags do not bind. Placement follows upstream Ganeti, so that both agree: instances that any node
can start come first, in their order, then the others, the largest first; each gets the node with the lowest score.
The search is usually unnecessary: if the other nodes together have room for as many copies of the largest instance
as must move, no order of placement can fail.
"""

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property

import numpy as np

from ganeti.placement import fit
from ganeti.placement.candidates import Options, every_move
from ganeti.placement.fit import Demands, Room
from ganeti.placement.losses import ROWS, Queues, find_places
from ganeti.placement.places import NO_NODE, NOTHING_EXCLUDED, Excluded
from ganeti.placement.policy_fit import policy_fits
from ganeti.placement.score import everywhere
from ganeti.placement.singles import added_scores, last_of_equals
from ganeti.placement.small import losses as small
from ganeti.placement.small.cluster import Small
from ganeti.placement.spread import Chunk, Field
from ganeti.placement.state import MIRROR_EXTERNAL, MIRROR_INTERNAL, Bools, Floats, Indices, State
from ganeti.placement.weights import OFFLINE_PRIMARY_WEIGHT, OFFLINE_WEIGHT

_ANY = Options(disk_moves=False, ignore_soft_errors=True, is_loss=True)


def unrecoverable_nodes(
    state: State, excluded: Excluded = NOTHING_EXCLUDED, first: int | None = None
) -> Iterator[int]:
    """Yield nodes whose instances the cluster could not restart after a loss; `first` is examined first."""
    lists = Small.of(state)
    if lists is not None:
        return small.unrecoverable_nodes(lists, excluded, first)
    return unrecoverable_in_arrays(state, excluded, first)


def unrecoverable_in_arrays(
    state: State, excluded: Excluded = NOTHING_EXCLUDED, first: int | None = None
) -> Iterator[int]:
    """Yield the same as `unrecoverable_nodes`, for clusters of any size."""
    relevant = relevant_nodes(state, excluded)
    if first is not None and relevant[first]:
        alone = _Losses(state, first)
        lacks = _lacks_room(state, np.array([first]), alone.queues, alone.mirrored)
        if lacks[0] or not can_be_lost(state, first, alone):
            yield first
        relevant[first] = False
    losses = _Losses(state)
    unclear = np.flatnonzero(relevant & ~_surely_evacuable(losses))
    # The most loaded nodes first: most callers only ask whether there is one.
    unclear = unclear[np.argsort(-state.instance_memory[unclear], kind="stable")]
    for start in range(0, len(unclear), ROWS):
        portion = unclear[start : start + ROWS]
        portion = portion[~_rooms_suffice(losses, portion)]
        if needs_all_rules(state):
            yield from (int(node) for node in portion if not can_be_lost(state, int(node)))
        else:
            yield from (int(node) for node in portion[~_can_be_lost(losses, portion)])


def unrecoverable_for_room(
    state: State, excluded: Excluded = NOTHING_EXCLUDED, first: int | None = None
) -> Iterator[int]:
    """Yield those of the `unrecoverable_nodes` for whose instances the other nodes lack room in any order.

    A node in the result remains there if an instance becomes larger.
    """
    lists = Small.of(state)
    if lists is not None:
        return small.unrecoverable_for_room(lists, excluded, first)
    return unrecoverable_for_room_in_arrays(state, excluded, first)


def unrecoverable_for_room_in_arrays(
    state: State, excluded: Excluded = NOTHING_EXCLUDED, first: int | None = None
) -> Iterator[int]:
    """Yield the same as `unrecoverable_for_room`, for clusters of any size."""
    relevant = relevant_nodes(state, excluded)
    if first is not None and relevant[first]:
        alone = _Losses(state, first)
        if _lacks_room(state, np.array([first]), alone.queues, alone.mirrored)[0]:
            yield first
        relevant[first] = False
    losses = _Losses(state)
    nodes = np.flatnonzero(relevant & ~losses.clear)
    for start in range(0, len(nodes), ROWS):
        portion = nodes[start : start + ROWS]
        lacks = _lacks_room(state, portion, losses.queues, losses.mirrored)
        yield from (int(node) for node in portion[lacks])


class _Losses:
    """The instances that the loss of nodes affects: of all nodes, or of `only` one."""

    def __init__(self, state: State, only: int | None = None) -> None:
        self.state = state
        there = state.primary >= 0 if only is None else state.primary == only
        self.mirrored = (state.instances.mirror == MIRROR_INTERNAL) & there & (state.secondary >= 0)
        self.others = there & ~self.mirrored
        """The instances that must be placed elsewhere."""

    @cached_property
    def queues(self) -> Queues:
        return Queues.from_state(self.state, np.flatnonzero(self.others))

    @cached_property
    def forbidden(self) -> Bools:
        """By instance: the policy of its group forbids it on every node."""
        return np.asarray(self.others & ~policy_fits(self.state, self.others))

    @cached_property
    def fails_over(self) -> Bools:
        """By node: its mirrored instances can run on their secondary nodes."""
        return _mirrored_fit(self.state, self.mirrored)

    @cached_property
    def placeable(self) -> Bools:
        """By node: its mirrored instances can fail over, and the policy allows the others to start."""
        sure = self.fails_over.copy()
        wrong = self.forbidden & (self.state.instances.mirror != MIRROR_EXTERNAL)
        sure[self.state.primary[wrong]] = False
        return sure

    @cached_property
    def clear(self) -> Bools:
        """By node, a fast form of `_a_node_each`: all at once, with the largest disk of the group for all.

        A node takes over from few others, so the effect of that is counted for those pairs of nodes only, and only where
        it can matter.
        """
        state, queues = self.state, self.queues
        these, size = state.instances, len(state.nodes)
        which = queues.order
        node = state.primary[which]
        turn = np.arange(len(which)) - queues.starts[node]
        least = (these.memory * these.uses_memory)[which] + 1.0
        disk = (these.disk * these.is_local)[which]
        room, number = np.full(size, -np.inf), np.zeros(len(which), dtype=np.intp)
        for group in np.flatnonzero(np.bincount(state.group[node], minlength=len(state.groups))):
            mine, members = state.group[node] == group, state.group == group
            members &= ~state.offline & (state.free_disk > disk[mine].max())
            room[members] = state.free[members]
            number[mine] = members.sum() - np.searchsorted(np.sort(room[members]), least[mine])
        number -= room[node] >= least
        falls = (np.diff(least, prepend=np.inf) <= 0) | (turn == 0)
        most = np.bincount(state.primary[self.mirrored], minlength=size)
        clear = _all_but(size, node[(number - most[node] <= turn) | ~falls])
        if clear.all():
            return clear
        moving = np.flatnonzero(self.mirrored & ~clear[state.primary])
        pairs, place = distinct(state.primary[moving] * size + state.secondary[moving])
        memory = these.memory[moving] * these.uses_memory[moving]
        losers, takers = np.divmod(pairs, size)
        before, turns = room[takers], queues.counts[losers]
        after = before - np.bincount(place, weights=memory, minlength=len(pairs))
        touches = np.isfinite(before) & (state.group[losers] == state.group[takers]) & (turns > 0)
        losers, before, after, turns = (one[touches] for one in (losers, before, after, turns))
        flat = np.repeat(queues.starts[losers] - np.cumsum(turns) + turns, turns)
        flat += np.arange(len(flat))
        gone = (np.repeat(before, turns) >= least[flat]) & (np.repeat(after, turns) < least[flat])
        number -= np.bincount(flat[gone], minlength=len(number))
        return _all_but(size, node[(number <= turn) | ~falls])


def _all_but(size: int, nodes: Indices) -> Bools:
    """Return, by node, False for these nodes."""
    result = np.ones(size, dtype=bool)
    result[nodes] = False
    return result


def _lacks_room(state: State, nodes: Indices, queues: Queues, mirrored: Bools) -> Bools:
    """Return, by node, whether the rest of its group lacks room for some number of its largest instances."""
    lacks = np.zeros(len(nodes), dtype=bool)
    open_rows = np.flatnonzero(~_a_node_each(state, nodes, queues, mirrored))
    if len(open_rows):
        lacks[open_rows] = _rows_lacking(state, nodes[open_rows], queues, mirrored)
    return lacks


def _a_node_each(state: State, nodes: Indices, queues: Queues, mirrored: Bools) -> Bools:
    """Return, by node, whether more online nodes of its group have room for each instance than larger instances exist.

    Then no instance lacks room, and earlier instances cannot have filled all of these nodes. This test is much
    cheaper than counting the instances that fit on each node, and in large clusters it usually suffices.
    """
    these = state.instances
    which, counts = queues.of(nodes)
    if not which.size:
        return np.ones(len(nodes), dtype=bool)
    least = (these.memory * these.uses_memory)[which] + 1.0
    disk = (these.disk * these.is_local)[which].max()
    taken = _taken(state, nodes, mirrored)
    rows, takers = np.nonzero(taken)
    number = np.zeros(least.shape, dtype=np.intp)
    for group in set(state.group[nodes].tolist()):
        mine = state.group[nodes] == group
        room = np.where(
            (state.group == group) & ~state.offline & (state.free_disk > disk), state.free, -np.inf
        )
        number[mine] = len(room) - np.searchsorted(np.sort(room), least[mine])
        number[mine] -= room[nodes[mine]][:, None] >= least[mine]
        those = mine[rows]
        row, node = rows[those], takers[those]
        before = room[node][:, None] >= least[row]
        after = (room[node] - taken[row, node])[:, None] >= least[row]
        np.subtract.at(number, row, (before & ~after).astype(np.intp))
    turns = np.arange(least.shape[1])
    falls = (np.diff(least, axis=1, prepend=np.inf) <= 0) | (turns >= counts[:, None])
    return np.asarray(
        ((number > turns) | (turns >= counts[:, None])).all(axis=1) & falls.all(axis=1)
    )


def _rows_lacking(state: State, nodes: Indices, queues: Queues, mirrored: Bools) -> Bools:
    """Return the full count of `_lacks_room`."""
    these = state.instances
    which, counts = queues.of(nodes)
    open_ = state.group[nodes][:, None] == state.group
    open_[np.arange(len(nodes)), nodes] = False
    memory = these.memory * these.uses_memory
    taken = _taken(state, nodes, mirrored)
    used = np.arange(which.shape[1]) < counts[:, None]
    lacks = np.zeros(len(nodes), dtype=bool)
    for sizes, free in (
        (memory, state.free - taken),
        (these.disk * these.is_local, np.broadcast_to(state.free_disk, open_.shape)),
    ):
        wanted = -np.sort(-np.where(used, sizes[which], 0.0), axis=1)
        room = np.where(open_, np.maximum(free, 0.0), 0.0)
        each = np.ceil(room[:, None] / np.maximum(wanted, 1e-9)[:, :, None]) - 1
        many = np.maximum(each, 0.0).sum(axis=2)
        needed = np.minimum(np.arange(1, which.shape[1] + 1), counts[:, None])
        lacks |= ((many < needed) & (wanted > 0)).any(axis=1)
        lacks |= ((wanted.cumsum(axis=1) >= room.sum(axis=1)[:, None]) & (wanted > 0)).any(axis=1)
    return lacks


def needs_all_rules(state: State) -> bool:
    """Return whether nodes must be examined one by one: because of tags, or because shared instances move first."""
    rules = state.tags
    is_shared = (state.instances.mirror == MIRROR_EXTERNAL) & (state.primary >= 0)
    return rules.has_exclusion or rules.has_locations or bool(is_shared.any())


def _can_be_lost(losses: _Losses, nodes: Indices) -> Bools:
    """Return the result by node, for clusters without tags and shared storage."""
    state, fine = losses.state, losses.fails_over.copy()
    fine[state.primary[losses.forbidden]] = False
    found = fine[nodes]
    found[found] = find_places(state, nodes[found], losses.queues)
    return found


def relevant_nodes(state: State, excluded: Excluded) -> Bools:
    """Return the nodes whose loss the cluster must survive."""
    relevant = ~state.in_groups(excluded.groups)
    if excluded.offline:
        relevant &= ~state.offline
    if excluded.lone_nodes:
        online = np.bincount(state.group[~state.offline], minlength=len(state.groups))
        relevant &= online[state.group] > 1
    return np.asarray(relevant)


def is_redundant(state: State, excluded: Excluded = NOTHING_EXCLUDED) -> bool:
    """Return whether any single node may fail."""
    return next(unrecoverable_nodes(state, excluded), None) is None


def _surely_evacuable(losses: _Losses) -> Bools:
    """Return, by node, True where one count for all nodes is enough; False requires a closer look."""
    state = losses.state
    if state.exclusive.any():
        return np.asarray(losses.placeable & (losses.queues.counts == 0))
    sure = losses.placeable & _has_room_for_copies(losses)
    if not sure.all():
        sure |= losses.placeable & losses.clear
    return np.asarray(sure)


def _has_room_for_copies(losses: _Losses) -> Bools:
    """Return, by node, whether its group has room for as many copies of the cluster's largest instance as must move.

    Every other node is counted as if it had taken over its mirrored instances of all nodes.
    """
    state, others, mirrored = losses.state, losses.others, losses.mirrored
    these, size = state.instances, len(state.nodes)
    memory, disk = these.memory * these.uses_memory, (these.disk * these.is_local)[others]
    number = np.bincount(state.primary[others], minlength=size)
    taken = np.bincount(state.secondary[mirrored], memory[mirrored], minlength=size)
    largest = max(1.0, memory[others].max(initial=0.0))
    copies = np.floor((state.free - taken - largest - 1) / largest) + 1
    if disk.any():
        largest = max(1.0, disk.max())
        copies = np.minimum(copies, np.floor((state.free_disk - largest - 1) / largest) + 1)
    copies = np.maximum(copies, 0.0) * ~state.offline
    by_group = np.bincount(state.group, copies, minlength=len(state.groups))
    return np.asarray((number == 0) | (by_group[state.group] - copies >= number))


def _mirrored_fit(state: State, mirrored: Bools) -> Bools:
    """Return, by node, whether each secondary of its instances has memory for all of them and a free disk."""
    size, these = len(state.nodes), state.instances
    memory = these.memory * these.uses_memory
    # A node mostly has the memory to take over from any other one, and those that have not are few.
    unreserved = np.maximum(0.0, memory - these.reserve * these.is_local)[mirrored]
    most = np.bincount(state.secondary[mirrored], weights=unreserved, minlength=size)
    takes = (state.free > state.reserved + most) & (state.free_disk > 0)
    goes = (state.free_disk > 0) | state.offline
    close = mirrored & ~(takes[state.secondary] & goes[state.primary])
    primary, secondary = state.primary[close], state.secondary[close]
    pairs, place = distinct(secondary * size + primary)
    memory = memory[close]
    taken = np.bincount(place, weights=memory, minlength=len(pairs))
    takers, losers = np.divmod(pairs, size)
    fits = (state.free[takers] > taken) & (state.free_disk[takers] > 0) & goes[losers]
    return _all_but(size, losers[~fits])


def distinct(keys: Indices) -> tuple[Indices, Indices]:
    """Return (the distinct keys in order, the position of each key); numpy's own function loads masked arrays first."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    is_first = np.ones(len(keys), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    place = np.empty(len(keys), dtype=np.intp)
    place[order] = np.cumsum(is_first) - 1
    return ordered[is_first], place


def _rooms_suffice(losses: _Losses, nodes: Indices) -> Bools:
    """Return, by node, whether the rest of its group certainly has room for its instances in any order."""
    state, queues, mirrored = losses.state, losses.queues, losses.mirrored
    if state.exclusive.any():
        return np.zeros(len(nodes), dtype=bool)
    sure = _a_node_each(state, nodes, queues, mirrored)
    rows = np.flatnonzero(~sure)
    if len(rows):
        part = nodes[rows]
        open_ = (state.group[part][:, None] == state.group) & ~state.offline
        open_[np.arange(len(part)), part] = False
        rest = np.where(open_, state.free - _taken(state, part, mirrored), -np.inf)
        sure[rows] = _surely_fit(state, rest, *queues.of(part))
    return np.asarray(sure & losses.placeable[nodes])


def _taken(state: State, nodes: Indices, mirrored: Bools) -> Floats:
    """Return (nodes, all nodes): the memory that each takes over if one of `nodes` is lost."""
    row_of = np.full(len(state.nodes), -1, dtype=np.intp)
    row_of[nodes] = np.arange(len(nodes))
    failing = np.flatnonzero(mirrored & (row_of[state.primary] >= 0))
    memory = state.instances.memory[failing] * state.instances.uses_memory[failing]
    taken = np.zeros((len(nodes), len(state.nodes)))
    np.add.at(taken, (row_of[state.primary[failing]], state.secondary[failing]), memory)
    return taken


def _surely_fit(state: State, free: Floats, which: Indices, counts: Indices) -> Bools:
    """Return, by row, whether the instances of its queue can be placed in turn, wherever earlier ones went.

    A node is full for an instance only after it took some earlier ones, each of the largest size at most.
    """
    these = state.instances
    memory = (these.memory * these.uses_memory)[which]
    disk = (these.disk * these.is_local)[which]
    takes = np.floor((free[:, None] - memory[:, :, None] - 1) / _largest(memory)) + 1
    if disk.any():
        left = state.free_disk - disk[:, :, None] - 1
        takes = np.minimum(takes, np.floor(left / _largest(disk)) + 1)
    np.maximum(takes, 0.0, out=takes)
    needed = np.minimum(np.arange(1, which.shape[1] + 1), counts[:, None])
    return np.asarray((takes.sum(axis=2) >= needed).all(axis=1))


def _largest(sizes: Floats) -> Floats:
    return np.asarray(np.maximum(1.0, sizes.max(axis=1))[:, None, None])


def can_be_lost(state: State, node: int, losses: _Losses | None = None) -> bool:
    """Return whether all instances of `node` can be placed by the search above."""
    if not needs_all_rules(state):
        return bool(_can_be_lost(losses or _Losses(state, node), np.array([node]))[0])
    return next(_unplaced(state, node), None) is None


class Unplaced(StrEnum):
    """Why an instance would be unplaced if its node were lost."""

    FAILOVER = "cannot fail over to its secondary node"
    SHARED = "finds no other node to start on"
    POLICY = "is not allowed by the policy of its group"
    ROOM = "finds no room for a copy"


def unplaced_by_loss(state: State, node: int) -> Counter[Unplaced]:
    """Return how many instances would be unplaced if `node` were lost, by cause; empty if it can be lost."""
    return Counter(cause for _index, cause in _unplaced(state, node))


def _unplaced(state: State, node: int) -> Iterator[tuple[int, Unplaced]]:
    """Yield (instance, cause) in turn; an unplaced instance does not block the later ones."""
    mine = np.flatnonzero(state.primary == node)
    these = state.instances
    mirrored = mine[(these.mirror[mine] == MIRROR_INTERNAL) & (state.secondary[mine] >= 0)]
    others = mine[~np.isin(mine, mirrored)]
    after = state.copy()
    for index in mirrored[::-1]:
        if not fail_over(after, int(index), node):
            yield int(index), Unplaced.FAILOVER
    scope = after.group == after.group[node]
    others = Queues.from_state(state, others).order
    is_shared = these.mirror[others] == MIRROR_EXTERNAL
    shared, fixed = others[is_shared], others[~is_shared]
    for index in shared:
        if not move_away(after, int(index), scope):
            yield int(index), Unplaced.SHARED
    fits = policy_fits(state)
    yield from ((int(index), Unplaced.POLICY) for index in fixed if not fits[index])
    scope[node] = False
    for index in fixed[fits[fixed]]:
        if not _place_copy(after, int(index), scope):
            yield int(index), Unplaced.ROOM


class Violations:
    """The N+1 violations before a change: the unrecoverable nodes, and the causes; `state` must not change."""

    def __init__(self, state: State, excluded: Excluded = NOTHING_EXCLUDED) -> None:
        self._state = state
        self._excluded = excluded
        self.nodes = frozenset(unrecoverable_nodes(state, excluded))
        self._unplaced_by_node: dict[int, Counter[Unplaced]] = {}

    def of(self, node: int) -> Counter[Unplaced]:
        """Return how many instances the loss of a node would have left unplaced before, by cause."""
        if node not in self._unplaced_by_node:
            self._unplaced_by_node[node] = unplaced_by_loss(self._state, node)
        return self._unplaced_by_node[node]

    def grown(self, after: State, group: int, first: int | None = None) -> Iterator[int]:
        """Yield nodes of the changed group whose loss leaves more instances unplaced than before, for any cause."""
        others = set(range(len(after.groups))) - {group}
        excluded = self._excluded._replace(groups=others)
        for node in unrecoverable_nodes(after, excluded, first):
            if node not in self.nodes or not unplaced_by_loss(after, node) <= self.of(node):
                yield node


def fail_over(state: State, index: int, node: int) -> bool:
    """Make the secondary node the primary one, if `node` is lost and the other has room."""
    other = int(state.secondary[index])
    memory = state.instances.memory[index] * state.instances.uses_memory[index]
    has_disk = state.free_disk[other] > 0 and (state.free_disk[node] > 0 or state.offline[node])
    if not has_disk or state.free[other] <= memory:
        return False
    state.settle_at(index, other, node)
    return True


def move_away(state: State, index: int, scope: Bools) -> bool:
    """Start an instance on shared storage on the best other node of the scope, if one has room."""
    field = Field(state, scope)
    for _which, kinds in every_move(field, np.array([index]), _ANY):
        target = last_of_equals(kinds[0].scores[0])
        if target is None:
            target = _drained_node_with_room(state, index, scope)
        if target is not None:
            state.settle_at(index, target, NO_NODE)
            return True
    return False


def _drained_node_with_room(state: State, index: int, scope: Bools) -> int | None:
    """Return a drained node with room: a last resort that is better than the loss of the instance."""
    room = fit.hard(Demands.of(state, np.array([index])), Room.of(state))[0]
    room &= scope & state.offline
    room[state.primary[index]] = False
    return int(np.flatnonzero(room)[-1]) if room.any() else None


def _place_copy(state: State, index: int, open_: Bools) -> bool:
    """Place a copy of a lost instance at the lowest score; the lost one still counts in the score."""
    which = np.array([index])
    chunk = Chunk(Field(state, everywhere(state)), which, force=True)
    fits = fit.hard(Demands.of(state, which), Room.of(state)) & open_
    penalty = (OFFLINE_WEIGHT + OFFLINE_PRIMARY_WEIGHT) * state.offline
    target = last_of_equals(np.where(fits[0], added_scores(chunk) + penalty, np.inf))
    if target is None:
        return False
    state.add_primary(index, target)
    return True
