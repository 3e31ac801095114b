"""Choose nodes for a new instance: the node or pair of nodes that leaves the cluster most even.

The search looks at each group separately. Of the groups with a possible placement the preferred ones win, then the
lowest score. A placement is valid only if any single node may still fail afterwards (`redundancy`). If all nodes
have exclusive storage, the placement that costs the fewest further instances wins; see `dedicated`.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.placement.dedicated import Costs, decided
from ganeti.placement.description import Failure, Instance
from ganeti.placement.pairs import best_pair, can_search
from ganeti.placement.places import (
    CAPACITY_TRIES,
    NO_NODE,
    TIE,
    Rules,
    SearchResult,
    describe_group,
    winner,
)
from ganeti.placement.policy import policy_failure
from ganeti.placement.redundancy import distinct, unrecoverable_for_room, unrecoverable_nodes
from ganeti.placement.score import everywhere
from ganeti.placement.singles import added_scores, pair_scores
from ganeti.placement.small.cluster import Small
from ganeti.placement.small.search import Search
from ganeti.placement.spread import Chunk, Field
from ganeti.placement.state import Bools, Floats, Indices, State

Causes = npt.NDArray[np.str_]


def allocate(
    state: State, wanted: Instance, rules: Rules
) -> tuple[SearchResult, list[SearchResult]]:
    """Return (the best result, the best of each group); PrereqError if no group has one."""
    places = []
    rules = decided(state, rules)
    for number, group in enumerate(state.groups):
        if rules.groups is not None and number not in rules.groups:
            continue
        if missing := [one for one in wanted.networks if one not in group.networks]:
            note = f"not connected to network {missing[0]}, which the instance needs"
            places.append(SearchResult(number, note=note))
        else:
            places.append(allocate_in(state, wanted, number, rules))
    best = winner(state, places, rules)
    if best is None:
        raise PrereqError(
            ", ".join(describe_group(state, one) for one in places)
            or "the cluster has no node group",
            ErrorCode.NO_RESOURCES,
        )
    return best, places


def allocate_in(state: State, wanted: Instance, group: int, rules: Rules) -> SearchResult:
    """Return the best placement in one group; its `nodes` are empty if none is possible."""
    open_ = (state.group == group) & ~state.offline
    if rules.only_nodes is not None:
        open_ &= np.array([node.name in rules.only_nodes for node in state.nodes], dtype=bool)
    place = allocate_on(state, wanted, open_, rules)
    place.group = group
    return place


def allocate_on(
    state: State,
    wanted: Instance,
    open_: Bools,
    rules: Rules,
    suspects: dict[int, int] | None = None,
) -> SearchResult:
    """Return the best placement on the open nodes of any group; its `nodes` are empty if none is possible.

    `suspects` are the blocking nodes of an earlier size (`SearchResult.blockers`). The cluster must be redundant
    before.
    """
    if int(open_.sum()) < wanted.nodes_needed:
        few = "Not enough online nodes" if wanted.nodes_needed > 1 else "No online nodes"
        return SearchResult(0, note=few)
    suspects = {} if suspects is None else suspects
    if (place := _found_in_lists(state, wanted, open_, rules, suspects)) is not None:
        return place
    state.admit([wanted])
    try:
        return ArraySearch(state, wanted, open_, rules, suspects).run()
    finally:
        state.dismiss()


def _found_in_lists(
    state: State, wanted: Instance, open_: Bools, rules: Rules, suspects: dict[int, int]
) -> SearchResult | None:
    """Return what a search in lists finds; None if the cluster needs the arrays."""
    lists = None if rules.before is not None else Small.of(state, wanted)
    if lists is None:
        return None
    place, scores = Search(lists, open_.tolist(), rules, suspects).run()
    place.scores = np.array(scores)
    return place


def needs_arrays(state: State, wanted: Instance, rules: Rules) -> bool:
    """Return whether the cluster is too large, or has too many features in use, for the search in lists (`small`)."""
    return rules.before is not None or Small.of(state, wanted) is None


def place_repeatedly(
    state: State, wanted: Instance, open_: Bools, rules: Rules, limit: int | None
) -> list[tuple[int, int]]:
    """Return the nodes of up to `limit` instances like the last one, without the capacity check.

    The state of the nodes then includes these instances; the caller records the instances themselves.
    """
    state.admit([wanted])
    placed = ArraySearch(state, wanted, open_, rules, {}).repeat(limit)
    state.dismiss()
    return placed


def tally_on(state: State, wanted: Instance, open_: Bools, rules: Rules) -> SearchResult:
    """Count the placements that the limits of nodes allow, and the failures of others, without the capacity check."""
    rules = msgspec.structs.replace(rules, capacity=False)
    if int(open_.sum()) < wanted.nodes_needed:
        return SearchResult(0)
    if (place := _found_in_lists(state, wanted, open_, rules, {})) is not None:
        return place
    state.admit([wanted])
    try:
        return ArraySearch(state, wanted, open_, rules, {}).tally()
    finally:
        state.dismiss()


class ArraySearch:
    """One search; the requested instance is the last one of the state and on no node."""

    def __init__(
        self, state: State, wanted: Instance, open_: Bools, rules: Rules, suspects: dict[int, int]
    ) -> None:
        self.state, self.wanted, self.open, self.rules = state, wanted, open_, rules
        self.place = SearchResult(0, blockers=suspects)
        self.index = len(state.names) - 1
        self.check = _Capacity(state, self.index, rules, suspects)
        self.refused: tuple[int, ...] | None = None
        """A placement that the check has refused already."""
        field, which = Field(state, everywhere(state)), np.array([self.index])
        self.chunk = Chunk(field, which, force=rules.ignore_soft_errors)

    def repeat(self, limit: int | None) -> list[tuple[int, int]]:
        """Place the instance repeatedly, at most `limit` times.

        Return the nodes of each copy, none of which is recorded.

        Only the free resources of nodes change, so the capacity check must be off.
        """
        field, placed = self.chunk.field, list[tuple[int, int]]()
        while limit is None or len(placed) < limit:
            primary, secondary = pair = self.run().pair
            if primary == NO_NODE:
                break
            self.state.add_primary(self.index, primary)
            if secondary != NO_NODE:
                self.state.add_secondary(self.index, secondary, primary)
            placed.append(pair)
            field.touch(np.array([primary, secondary][: self.wanted.nodes_needed]))
            self.chunk.touch()
            self.place = SearchResult(0)
        return placed

    @cached_property
    def partners(self) -> Bools:
        """Return (primary, secondary): the open nodes of the primary's group."""
        return np.asarray(self.open & (self.state.group[:, None] == self.state.group))

    @property
    def _is_dedicated(self) -> bool:
        return self.rules.dedicated and bool(self.state.exclusive[self.open].all())

    @property
    def is_pair(self) -> bool:
        return self.wanted.nodes_needed > 1

    def run(self) -> SearchResult:
        """Return the best placement, and why others are impossible."""
        fits = self._fits()
        if self.is_pair:
            self._pairs(fits)
        else:
            scores = added_scores(self.chunk)
            self._decide(np.where(fits, scores, np.inf)[:, None])
        if self.place.nodes:
            self.place.group = int(self.state.group[self.place.nodes[0]])
        if not (self.rules.best_only and self.place.nodes) and not fits[self.open].all():
            self._count()
        return self.place

    def tally(self) -> SearchResult:
        """Count the placements that the limits of nodes allow, and the failures of others; choose none."""
        fits = self._fits()
        self._count()
        self.place.successes = int(fits.sum())
        if self.is_pair:
            self.place.successes = self._count_seconds(fits)
        return self.place

    def _fits(self) -> Bools:
        """By node: whether it can be the primary."""
        fits: Bools = self._allowed & self.chunk.hard_primary[0]
        if not self.rules.ignore_soft_errors:
            fits &= self.chunk.soft_primary[0]
        if self.rules.only_primary is not None:
            fits &= np.arange(len(fits)) == self.rules.only_primary
        return fits

    def _causes(self) -> Causes:
        """Return the reason against each node as primary."""
        causes = primary_causes(self.chunk, force=self.rules.ignore_soft_errors)
        return np.where(self._forbidden == "", causes, self._forbidden)

    def _count(self) -> None:
        """Count the placements that fail because of their primary node."""
        weight = np.ones(len(self.open), dtype=np.intp)
        if self.is_pair:
            group = self.state.group
            weight = np.bincount(group[self.open], minlength=len(self.state.groups))[group] - 1
        causes = self._causes()
        for cause in set(causes[self.open].tolist()) - {""}:
            these = self.open & (causes == cause)
            self.place.failures[Failure(cause)] += int(weight[these].sum())

    def _count_seconds(self, fits: Bools) -> int:
        """Count the pairs that fail because of their secondary node; return the number of the others."""
        if not fits.any():
            return 0
        force = self.rules.ignore_soft_errors
        possible, *counted = count_pairs(self.chunk, fits, self.open, force=force).tolist()
        for cause, number in zip(CAUSES[1:], counted, strict=True):
            self.place.failures[cause] += number
        return int(possible)

    @cached_property
    def _allowed(self) -> Bools:
        """Return, by node, whether it is open and the policy of its group allows the instance."""
        return np.asarray(self.open & (self._forbidden == ""))

    @cached_property
    def _forbidden(self) -> Causes:
        """Return, by node, what the policy of its group forbids."""
        state = self.state
        causes = np.full(len(self.open), "", dtype="U16")
        kinds = set(
            zip(state.group[self.open].tolist(), state.exclusive[self.open].tolist(), strict=True)
        )
        for group, exclusive in kinds:
            mine = self.open & (state.group == group) & (state.exclusive == exclusive)
            policy = state.groups[group].policy
            causes[mine] = policy_failure(policy, self.wanted, exclusive=exclusive) or ""
        return causes

    def _pairs(self, fits: Bools) -> None:
        """Return the pairs of different nodes of one group."""
        if not (self.rules.all_scores or self._is_dedicated) and can_search(self.chunk):
            found = self._best_pair(fits)
            if found is None or self.check.allows(found[:2]):
                self._take(found)
                if found is None or not self.rules.best_only:
                    self.place.successes = self._count_seconds(fits)
                return
            self.refused = found[:2]
        rows, columns = np.flatnonzero(fits), np.flatnonzero(self.open)
        scores = np.full((len(fits),) * 2, np.inf)
        self._count_seconds(fits)
        if len(rows):
            part = np.ix_(rows, columns)
            possible = secondary_causes(self.chunk, force=self.rules.ignore_soft_errors)[part] == 0
            possible &= self.partners[part] & (rows[:, None] != columns[None, :])
            if possible.any():
                scores[part] = np.where(possible, pair_scores(self.chunk)[part], np.inf)
        self._decide(scores)

    def _take(self, found: tuple[int, int, float] | None) -> None:
        if found is not None:
            *nodes, self.place.score = found
            self.place.nodes = tuple(nodes)

    def _best_pair(self, fits: Bools) -> tuple[int, int, float] | None:
        demands, state = self.chunk.demands, self.state
        seconds = self.open & self.chunk.hard_disk[0] & self.chunk.soft_disk[0]
        seconds &= (demands.reserve < state.free)[0] & (demands.reserve < state.free_if_all)[0]
        return best_pair(self.chunk, fits, seconds)

    def _decide(self, scores: Floats) -> None:
        """Choose a placement that has a score: by the scores, or on exclusive storage by the lost allocations."""
        if not (self._is_dedicated and np.isfinite(scores).any()):
            self._choose(scores)
            return
        costs = Costs(self.chunk, int(self.state.group[self.open][0]), is_pair=self.is_pair)
        # Debian's hail allocates on exclusive storage even if the cluster is not redundant then.
        self.check.rules = msgspec.structs.replace(self.rules, capacity=False)
        ranks = costs.ranks.reshape(scores.shape)
        self._choose(np.where(np.isfinite(scores), ranks, np.inf))
        self.place.costs, self.place.scores = costs, scores
        if self.place.nodes:
            self.place.score = float(
                scores[self.place.nodes if self.is_pair else (*self.place.nodes, 0)]
            )

    def _choose(self, scores: Floats) -> None:
        """Choose the lowest score whose placement leaves the cluster redundant; of equal scores the last."""
        place = self.place
        place.scores = scores
        place.successes = int(np.isfinite(scores).sum())
        left = scores.copy()
        for _ in range(CAPACITY_TRIES):
            best = left.min(initial=np.inf)
            if not np.isfinite(best):
                return
            row, column = divmod(int(np.flatnonzero(left.ravel() <= best + TIE)[-1]), left.shape[1])
            nodes = (row, column) if self.wanted.nodes_needed > 1 else (row,)
            if nodes != self.refused and self.check.allows(nodes):
                place.nodes, place.score = nodes, float(scores[row, column])
                return
            left[row, column] = np.inf
            place.successes -= 1
            place.failures[Failure.REDUNDANCY] += 1
            if self.check.is_hopeless:
                place.failures[Failure.REDUNDANCY] += place.successes
                place.successes = 0
                return


class _Capacity:
    """The check that any single node may fail once the instance is placed."""

    def __init__(self, state: State, index: int, rules: Rules, blockers: dict[int, int]) -> None:
        self.state, self.index, self.rules = state, index, rules
        self.blockers = blockers
        self.group = 0
        self.is_hopeless = False
        """The cluster is not redundant even without the instance, so every placement fails."""

    def allows(self, nodes: Sequence[int]) -> bool:
        if not self.rules.capacity:
            return True
        primary, secondary = nodes[0], nodes[1] if len(nodes) > 1 else NO_NODE
        self.group = int(self.state.group[primary])
        suspect = self.blockers.get(primary, self.blockers.get(NO_NODE))
        with self.state.placed(self.index, primary, secondary):
            blocking = next(self._blocking(suspect), None)
        if blocking is None:
            return True
        if not self.blockers and self.rules.before is None:
            self.is_hopeless = next(self._blocking(blocking), None) is not None
        self.blockers[primary] = self.blockers[NO_NODE] = blocking
        return False

    def _blocking(self, suspect: int | None) -> Iterator[int]:
        return _newly_unrecoverable(self.state, self.group, self.rules, suspect)


def _newly_unrecoverable(
    state: State, group: int, rules: Rules, suspect: int | None = None
) -> Iterator[int]:
    """Return the nodes whose loss forbids a state in which `group` was changed."""
    if rules.before is not None:
        return rules.before.grown(state, group, suspect)
    unrecoverable = unrecoverable_for_room if rules.by_room else unrecoverable_nodes
    return unrecoverable(state, rules.excluded, suspect)


def is_no_worse(state: State, group: int, rules: Rules) -> bool:
    """Return whether the rules allow a state in which `group` was changed."""
    return not rules.capacity or next(_newly_unrecoverable(state, group, rules), None) is None


CAUSES = (Failure.INTERNAL, Failure.DISK, Failure.SPINDLES, Failure.MEMORY)
"""Why a node cannot be the secondary, by the numbers of `secondary_causes`; 0 means that it can."""
_SHORT = np.int8(CAUSES.index(Failure.MEMORY))


def primary_causes(chunk: Chunk, *, force: bool) -> Causes:
    """Return, by node, the first reason why the chunk's only instance cannot have it as primary, or None."""
    demands, room = chunk.demands, chunk.field.room
    soft = [
        (demands.disk <= room.disk_above_low, Failure.DISK),
        (demands.spindle_use <= room.spindle_use, Failure.DISK),
        (demands.memory < room.memory_and_reserve, Failure.MEMORY),
        (demands.vcpus <= room.vcpus, Failure.CPU),
    ]
    if chunk.clashes is not None:
        soft.append((chunk.clashes == 0, Failure.TAGS))
    soft.append((demands.memory_if_all < room.memory_if_all, Failure.MEMORY))
    rules = [
        (demands.memory < room.memory, Failure.MEMORY),
        (demands.disk < room.disk, Failure.DISK),
        *([] if force else soft[:1]),
        (demands.spindles <= room.spindles, Failure.SPINDLES),
        *([] if force else soft[1:]),
    ]
    causes = np.full(len(chunk.field.live), "", dtype="U16")
    for fits, failure in reversed(rules):
        causes = np.where(fits[0], causes, failure.value)
    return causes


def secondary_causes(chunk: Chunk, *, force: bool = False) -> npt.NDArray[np.int8]:
    """Return (primary, secondary): the number in CAUSES of the first reason against the secondary."""
    field, state = chunk.field, chunk.field.state
    alone = _alone_causes(chunk, force=force)
    if force:
        return np.broadcast_to(alone, (len(alone),) * 2)
    reserved = field.peers_by_primary + float(chunk.reserve[0])
    np.maximum(reserved, state.reserved, out=reserved)
    too_little = (state.free <= reserved) & ~state.fails
    return np.where((alone == 0) & too_little, _SHORT, alone)


def _alone_causes(chunk: Chunk, *, force: bool) -> npt.NDArray[np.int8]:
    """Return, by secondary, the number in CAUSES of the first reason that holds for every primary."""
    demands, field = chunk.demands, chunk.field
    state, room = field.state, field.room
    alone = np.zeros(len(field.live), dtype=np.int8)
    rules = [
        (
            (demands.disk < room.disk) & (force | (demands.disk <= room.disk_above_low)),
            Failure.DISK,
        ),
        (demands.spindles <= room.spindles, Failure.SPINDLES),
        (force | (demands.spindle_use <= room.spindle_use), Failure.DISK),
        (force | (demands.reserve < state.free), Failure.MEMORY),
        (force | (demands.reserve < state.free_if_all), Failure.MEMORY),
    ]
    for fits, cause in reversed(rules):
        alone = np.where(fits[0], alone, CAUSES.index(cause)).astype(np.int8)
    return alone


def count_pairs(chunk: Chunk, primaries: Bools, open_: Bools, *, force: bool) -> Indices:
    """Count, by number in CAUSES, the pairs of these primaries and other open nodes of their groups.

    The result equals that of `secondary_causes`, but most pairs are not examined: most nodes reserve nothing for each
    other.
    """
    state, reserve = chunk.field.state, float(chunk.reserve[0])
    causes = _alone_causes(chunk, force=force)
    if not force:
        too_little = (state.free <= np.maximum(reserve, state.reserved)) & ~state.fails
        causes[(causes == 0) & too_little] = _SHORT
    by_group = np.bincount(state.group[primaries], minlength=len(state.groups))
    counted = np.bincount(
        causes[open_],
        weights=(by_group[state.group] - primaries)[open_],
        minlength=len(CAUSES),
    ).astype(np.intp)
    if force:
        return counted
    there = state.secondary >= 0
    first, second = state.primary[there], state.secondary[there]
    holds = primaries[first] & open_[second] & (causes[second] == 0)
    holds &= (state.group[first] == state.group[second]) & (first != second)
    pairs, _place = distinct(first[holds] * len(open_) + second[holds])
    first, second = np.divmod(pairs, len(open_))
    reserved = np.maximum(state.peers[second, first] + reserve, state.reserved[second])
    short = int(((state.free[second] <= reserved) & ~state.fails[second]).sum())
    counted[0] -= short
    counted[_SHORT] += short
    return counted
