"""How many more instances fit: of one size, or of sizes that shrink as room gets scarce.

Instances are placed one after the other as `allocate` would. Whether any one node may still fail is
checked for many of them at once: if it holds after the last, it held before. Mirrored instances are checked, too,
as `hail` does: their memory may be what others would need.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from ganeti.placement.allocate import (
    allocate_on,
    needs_arrays,
    place_repeatedly,
    tally_on,
)
from ganeti.placement.description import Failure, Instance
from ganeti.placement.places import Rules, SearchResult
from ganeti.placement.policy import policy_failure
from ganeti.placement.redundancy import is_redundant, unrecoverable_for_room
from ganeti.placement.state import Bools, State
from ganeti.placement.trials import can_try, first_size

MEMORY_UNIT_MIB, DISK_UNIT_MIB = 64, 256
FEWEST_AT_ONCE, SMALL_STEP = 20, 10
MOST_WALKED, WALKED_BY_NODES = 200, 2000


@dataclass
class Filled:
    """The instances that were placed, their nodes, the state then, and why the next one found no place."""

    state: State
    instances: list[Instance]
    nodes: list[tuple[int, ...]]
    failures: Counter[Failure]

    @property
    def main_failure(self) -> Failure:
        return ranked(self.failures)[0]


def ranked(failures: Counter[Failure]) -> list[Failure]:
    """All kinds of failure, the most frequent first."""
    return sorted(Failure, key=lambda kind: -failures[kind])


def open_nodes(state: State, closed_groups: Sequence[int] = ()) -> Bools:
    """The nodes of groups that may be allocated to."""
    groups = np.array([one.alloc_policy != "unallocable" for one in state.groups], dtype=bool)
    groups[list(closed_groups)] = False
    return np.asarray(~state.offline & groups[state.group])


def fill(
    state: State,
    wanted: Instance,
    rules: Rules,
    limit: int | None = None,
    open_: Bools | None = None,
) -> Filled:
    """SearchResult instances like `wanted`, named new-0 and so on, until one finds no place; `state` stays."""
    open_ = open_nodes(state) if open_ is None else open_
    rules = msgspec.structs.replace(rules, dedicated=False, best_only=True)
    filled = Filled(state.copy(), [], [], Counter())
    unchecked = msgspec.structs.replace(rules, capacity=False)
    at_once = rules.capacity and rules.before is None
    steps = [_guess(state, wanted), SMALL_STEP] if at_once else []
    for size in steps:
        while _add(filled, wanted, unchecked, open_, _least(size, _left(filled, limit))):
            if filled.failures or _left(filled, limit) == 0:
                return filled
    _place(filled, wanted, rules, open_, _left(filled, limit))
    return filled


def _left(filled: Filled, limit: int | None) -> int | None:
    return None if limit is None else limit - len(filled.nodes)


def _least(size: int, left: int | None) -> int:
    return size if left is None else min(size, left)


def _guess(state: State, wanted: Instance) -> int:
    """A number of instances that surely fit, roughly."""
    spare = float(state.free.sum() - state.total_memory.max(initial=0.0))
    return max(FEWEST_AT_ONCE, int(spare // max(1.0, wanted.memory)) - len(state.nodes))


def _add(filled: Filled, wanted: Instance, rules: Rules, open_: Bools, number: int) -> bool:
    """SearchResult up to `number` at once; False, and nothing placed, if not every node could be lost then."""
    trial = Filled(filled.state.copy(), list(filled.instances), list(filled.nodes), Counter())
    at_once = 1
    while number > 0 and not trial.failures:
        _place(trial, wanted, rules, open_, min(at_once, number))
        # Further ones would not make room.
        if next(unrecoverable_for_room(trial.state, rules.excluded), None) is not None:
            return False
        number, at_once = number - at_once, 2 * at_once
    if not is_redundant(trial.state, rules.excluded):
        return False
    filled.state, filled.instances = trial.state, trial.instances
    filled.nodes, filled.failures = trial.nodes, trial.failures
    return True


def _place(
    filled: Filled, wanted: Instance, rules: Rules, open_: Bools, number: int | None
) -> None:
    """SearchResult instances until `number` or none fits, which sets `failures`."""
    state = filled.state
    if not rules.capacity and needs_arrays(state, wanted, rules):
        placed = _place_at_once(filled, wanted, rules, open_, number)
        number = None if number is None else number - placed
    suspects: dict[int, int] = {}
    while number is None or number > 0:
        one = _named(wanted, len(filled.nodes))
        place = allocate_on(state, one, open_, rules, suspects)
        if not place.nodes:
            filled.failures = place.failures or Counter({Failure.INTERNAL: 1})
            return
        state.append(one, *place.pair)
        filled.instances.append(one)
        filled.nodes.append(place.nodes)
        number = None if number is None else number - 1


def _place_at_once(
    filled: Filled, wanted: Instance, rules: Rules, open_: Bools, number: int | None
) -> int:
    """SearchResult up to `number` instances without a check, recorded together at the end; how many."""
    places = place_repeatedly(filled.state, wanted, open_, rules, number)
    first = len(filled.nodes)
    placed = [_named(wanted, first + index) for index in range(len(places))]
    filled.state.record(placed, places)
    filled.instances += placed
    filled.nodes += [place[: wanted.nodes_needed] for place in places]
    return len(places)


def _named(wanted: Instance, number: int) -> Instance:
    return msgspec.structs.replace(wanted, name=f"new-{number}")


def tiers(
    state: State,
    wanted: Sequence[Instance],
    rules: Rules,
    limit: int | None = None,
    open_: Bools | None = None,
) -> Filled:
    """Fill with the first size, then with ever smaller ones, then with the next; `state` stays."""
    open_ = open_nodes(state) if open_ is None else open_
    filled = Filled(state.copy(), [], [], Counter({Failure.INTERNAL: 1}))
    for one in wanted:
        if limit is None or len(filled.nodes) < limit:
            filled = _Tiers(state, rules, limit, open_).run(filled, one)
    return filled


class _Tiers:
    """Going on with ever smaller instances; what gains nothing is taken back, and another resource is shrunk."""

    def __init__(self, state: State, rules: Rules, limit: int | None, open_: Bools) -> None:
        self.rules, self.limit, self.open = (
            msgspec.structs.replace(rules, dedicated=False, best_only=True),
            limit,
            open_,
        )
        kinds = zip(state.group[open_].tolist(), state.exclusive[open_].tolist(), strict=True)
        self.policies = [
            (state.groups[group].policy, exclusive) for group, exclusive in sorted(set(kinds))
        ]
        """The different policies of open nodes, each with whether the storage is exclusive."""

    def run(self, filled: Filled, wanted: Instance) -> Filled:
        """Fill with `wanted` and what it shrinks to."""
        tried: list[tuple[Filled, Instance]] = []
        while True:
            filled = self._fill(filled, wanted)
            if self.limit is not None and len(filled.nodes) >= self.limit:
                return filled
            wanted, smaller = self._shrunk(filled, wanted)
            if smaller is not None:
                tried.append((filled, wanted))
                wanted = smaller
                continue
            other = self._other(filled, wanted)
            while other is None:
                while tried and len(filled.nodes) > len(tried[-1][0].nodes):
                    tried.pop()
                if not tried:
                    return filled
                filled, wanted = tried.pop()
                other = self._other(filled, wanted)
            wanted = other

    def _fill(self, filled: Filled, wanted: Instance) -> Filled:
        left = None if self.limit is None else self.limit - len(filled.nodes)
        more = fill(filled.state, wanted, self.rules, left, self.open)
        start = len(filled.nodes)
        names = [_named(one, start + number) for number, one in enumerate(more.instances)]
        first = len(more.state.names) - len(names)
        more.state.names[first:] = [one.name for one in names]
        more.state.descriptions[first:] = names
        return Filled(
            more.state, filled.instances + names, filled.nodes + more.nodes, more.failures
        )

    def _unchecked(self, filled: Filled, wanted: Instance) -> SearchResult:
        """The places that it would have if the cluster need not be redundant."""
        return tally_on(filled.state, wanted, self.open, self.rules)

    def _shrunk(self, filled: Filled, wanted: Instance) -> tuple[Instance, Instance | None]:
        """The last size, smaller in what most places lack, that changes nothing; the first that does, if any.

        As many places lack it, and none is good.
        """
        scarce = _by_number(filled.failures)[0]
        sizes = [wanted, *self._allowed(wanted, scarce)]
        counted = filled.failures[scarce]

        def differs(one: Instance) -> bool:
            return self._unchecked(filled, one).failures[scarce] != counted

        index = self._first_in_runs(sizes[1:], lambda run: _first(run, differs))
        alike = sizes[1:] if index is None else sizes[1 : index + 1]
        found = self._first_fitting(filled, alike) if counted < int(self.open.sum()) else None
        index = index if found is None else found
        return (sizes[-1], None) if index is None else (sizes[index], sizes[index + 1])

    def _first_fitting(self, filled: Filled, sizes: Sequence[Instance]) -> int | None:
        """The index of the first size that finds a place."""
        return self._first_in_runs(sizes, lambda run: self._first_of_run(filled, run))

    def _first_in_runs(
        self, sizes: Sequence[Instance], search: Callable[[Sequence[Instance]], int | None]
    ) -> int | None:
        """The first index found, run by run of sizes that the same policies allow.

        Only within one do smaller sizes fit where larger ones do: policies may allow several intervals.
        """
        start = 0
        for _verdict, run in itertools.groupby(sizes, self._verdict):
            same = list(run)
            found = search(same)
            if found is not None:
                return start + found
            start += len(same)
        return None

    def _verdict(self, one: Instance) -> tuple[Failure | None, ...]:
        return tuple(
            policy_failure(policy, one, exclusive=exclusive) for policy, exclusive in self.policies
        )

    def _first_of_run(self, filled: Filled, sizes: Sequence[Instance]) -> int | None:
        """The index of the first size of a run that finds a place.

        A smaller size may leave the cluster less redundant than a larger one, so they are tried in turn, as
        `hspace` does, from the first on for which the others have room whichever node is lost. After
        some (fewer in larger clusters) the rest is halved, if the last size fits at all.
        """
        if can_try(filled.state, sizes[0], self.rules):
            return first_size(filled.state, sizes, self.open, self.rules)
        suspects: dict[int, int] = {}

        def fits(one: Instance, rules: Rules) -> bool:
            return bool(allocate_on(filled.state, one, self.open, rules, suspects).nodes)

        by_room = msgspec.structs.replace(self.rules, by_room=True)
        least = _first(sizes, lambda one: self._unchecked(filled, one).successes > 0)
        if least is None:
            return None
        more = _first_of_few(sizes[least:], lambda one: fits(one, by_room))
        if more is None:
            return None
        start = least + more
        end = min(start + min(MOST_WALKED, WALKED_BY_NODES // len(self.open)), len(sizes))
        for index in range(start, end):
            if fits(sizes[index], self.rules):
                return index
        if end == len(sizes) or not fits(sizes[-1], self.rules):
            return None
        index = _first(sizes[end:], lambda one: fits(one, self.rules)) or 0
        return end + index

    def _allowed(self, wanted: Instance, scarce: Failure) -> list[Instance]:
        """Smaller sizes that some policy allows, perhaps once other resources have shrunk as well."""
        least = [
            bounds["min"] for policy, _exclusive in self.policies for bounds in policy["minmax"]
        ]
        return list(
            itertools.takewhile(
                lambda one: any(_is_above(one, bounds) for bounds in least), shrinks(wanted, scarce)
            )
        )

    def _other(self, filled: Filled, wanted: Instance) -> Instance | None:
        """The first size that fits when one resource is shrunk, the scarcest that helps."""
        for scarce in _by_number(filled.failures):
            sizes = self._allowed(wanted, scarce)
            fits = self._first_fitting(filled, sizes)
            if fits is None:
                continue
            before = sizes[fits - 1] if fits else wanted
            if not fits or self._unchecked(filled, before).failures[scarce]:
                return sizes[fits]
        return None


def _is_above(one: Instance, least: Mapping[str, float]) -> bool:
    """Whether no resource is smaller than an interval of a policy begins."""
    return (
        one.memory >= least["memory-size"]
        and one.vcpus >= least["cpu-count"]
        and min(one.disks, default=np.inf) >= least["disk-size"]
    )


def _by_number(failures: Counter[Failure]) -> list[Failure]:
    """The most frequent kind first; of equally frequent ones the last."""
    return sorted(Failure, key=lambda kind: failures[kind])[::-1]


def shrinks(wanted: Instance, scarce: Failure) -> Iterator[Instance]:
    """Ever smaller instances, a unit of one resource at a time; none for what cannot shrink."""
    one = wanted
    while True:
        if scarce is Failure.MEMORY and one.memory >= 2 * MEMORY_UNIT_MIB:
            one = msgspec.structs.replace(one, memory=one.memory - MEMORY_UNIT_MIB)
        elif scarce is Failure.DISK and one.disks and min(one.disks) >= 2 * DISK_UNIT_MIB:
            disks = tuple(disk - DISK_UNIT_MIB for disk in one.disks)
            size = one.disk - len(disks) * DISK_UNIT_MIB
            one = msgspec.structs.replace(one, disks=disks, disk=size)
        elif scarce is Failure.CPU and one.vcpus > 1:
            one = msgspec.structs.replace(one, vcpus=one.vcpus - 1)
        elif scarce is Failure.SPINDLES and (one.spindles or 0) > 1:
            one = msgspec.structs.replace(one, spindles=(one.spindles or 0) - 1)
        else:
            return
        yield one


def _first_of_few(given: Sequence[Instance], holds: Callable[[Instance], bool]) -> int | None:
    """As `_first`, where the very first mostly is the one."""
    if not given or holds(given[0]):
        return 0 if given else None
    found = _first(given[1:], holds)
    return None if found is None else found + 1


def _first(given: Sequence[Instance], holds: Callable[[Instance], bool]) -> int | None:
    """The index of the first for which `holds`, which holds for all later ones, too."""
    low, high = 0, len(given)
    while low < high:
        middle = (low + high) // 2
        if holds(given[middle]):
            high = middle
        else:
            low = middle + 1
    return low if low < len(given) else None
