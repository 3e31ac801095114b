"""The number of further instances that fit: of one size, or of sizes that shrink as resources become scarce.

Instances are placed in turn, as `allocate` would place them. Redundancy is checked for many of them at once: if it
holds after the last, it held before. Mirrored instances are checked as well, as in `hail`: they may use memory
that a failover needs.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

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
FEWEST_AT_ONCE, SMALL_STEP, FIRST_AT_ONCE = 20, 10, 4
MOST_WALKED, WALKED_BY_NODES = 200, 2000
SHRINKING = frozenset({"memory-size", "cpu-count", "spindle-use", "disk-size"})
"""What policies bound and sizes shrink in."""


class Filled(msgspec.Struct):
    """The placed instances, their nodes, the state then, and the failures of the next instance."""

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
    """Return the nodes of groups that accept allocations."""
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
    """Place instances like `wanted`, named new-0 and so on, until one does not fit; `state` is unchanged."""
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
    """Return a number of instances that certainly fit, a rough lower bound."""
    spare = float(state.free.sum() - state.total_memory.max(initial=0.0))
    return max(FEWEST_AT_ONCE, int(spare // max(1.0, wanted.memory)) - len(state.nodes))


def _add(filled: Filled, wanted: Instance, rules: Rules, open_: Bools, number: int) -> bool:
    """Place up to `number` at once; return False, and place none, if some node could not be lost then."""
    trial = Filled(filled.state.copy(), list(filled.instances), list(filled.nodes), Counter())
    at_once = FIRST_AT_ONCE
    while True:
        _place(trial, wanted, rules, open_, min(at_once, number))
        number, at_once = number - at_once, 2 * at_once
        if number <= 0 or trial.failures:
            break
        # Further instances would not free resources.
        if next(unrecoverable_for_room(trial.state, rules.excluded), None) is not None:
            return False
    if not is_redundant(trial.state, rules.excluded):
        return False
    filled.state, filled.instances = trial.state, trial.instances
    filled.nodes, filled.failures = trial.nodes, trial.failures
    return True


def _place(
    filled: Filled, wanted: Instance, rules: Rules, open_: Bools, number: int | None
) -> None:
    """Place instances until `number` is reached or the next does not fit; the latter sets `failures`."""
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
    """Place up to `number` instances without a check, record them together, and return their number."""
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
    """Fill with the first size, then with ever smaller sizes, then with the next size; `state` is unchanged."""
    open_ = open_nodes(state) if open_ is None else open_
    filled = Filled(state.copy(), [], [], Counter({Failure.INTERNAL: 1}))
    for one in wanted:
        if limit is None or len(filled.nodes) < limit:
            filled = _Tiers(state, rules, limit, open_).run(filled, one)
    return filled


class _Tiers:
    """A sequence of ever smaller instances. A reduction without gain is reverted, and the next resource is tried."""

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
        """Return the different policies of open nodes, each with whether the storage is exclusive."""
        self.bounds = _bounds(policy for policy, _exclusive in self.policies)

    def run(self, filled: Filled, wanted: Instance) -> Filled:
        """Fill with `wanted`, then with the sizes that it shrinks to."""
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
        """Return the placements that would be possible if redundancy were not required."""
        return tally_on(filled.state, wanted, self.open, self.rules)

    def _shrunk(self, filled: Filled, wanted: Instance) -> tuple[Instance, Instance | None]:
        """Return the last size, reduced in the scarcest resource, that changes nothing, or the first that does.

        Until then the same number of placements lack the resource, and none is possible.
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
        """Return the index of the first size with a placement."""
        return self._first_in_runs(sizes, lambda run: self._first_of_run(filled, run))

    def _first_in_runs(
        self, sizes: Sequence[Instance], search: Callable[[Sequence[Instance]], int | None]
    ) -> int | None:
        """Return the first index with a placement, searched in runs of sizes that the same policies allow.

        Only within a run does a smaller size fit wherever a larger one does: policies may allow several intervals.
        """
        start = 0
        for same in self._runs(sizes):
            found = search(same)
            if found is not None:
                return start + found
            start += len(same)
        return None

    def _runs(self, sizes: Sequence[Instance]) -> Iterator[Sequence[Instance]]:
        """Yield the sizes in runs of those about which all policies say the same."""
        between = [list(same) for _key, same in itertools.groupby(sizes, self._among_bounds)]
        for _verdict, runs in itertools.groupby(between, lambda same: self._verdict(same[0])):
            yield [one for same in runs for one in same]

    def _among_bounds(self, one: Instance) -> tuple[int, ...]:
        """Return where its amounts lie among the bounds of all policies: between two bounds the verdict is the same."""
        amounts = [
            ("memory-size", one.memory),
            ("cpu-count", one.vcpus),
            ("spindle-use", one.spindles or 0),
            *(("disk-size", disk) for disk in one.disks),
        ]
        return tuple(
            bisect_left(self.bounds[key], amount) + bisect_right(self.bounds[key], amount)
            for key, amount in amounts
        )

    def _verdict(self, one: Instance) -> tuple[Failure | None, ...]:
        return tuple(
            policy_failure(policy, one, exclusive=exclusive) for policy, exclusive in self.policies
        )

    def _first_of_run(self, filled: Filled, sizes: Sequence[Instance]) -> int | None:
        """Return the index of the first size of a run with a placement.

        A smaller size may leave the cluster less redundant than a larger one. So the sizes are tried in turn, as in
        `hspace`, from the first size for which the other nodes have room after any single loss. After some sizes
        (fewer in larger clusters) a binary search covers the rest, if the last size fits at all.
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
        """Yield smaller sizes that some policy allows, if necessary with other resources reduced as well."""
        least = [
            bounds["min"] for policy, _exclusive in self.policies for bounds in policy["minmax"]
        ]
        return list(
            itertools.takewhile(
                lambda one: any(_is_above(one, bounds) for bounds in least), shrinks(wanted, scarce)
            )
        )

    def _other(self, filled: Filled, wanted: Instance) -> Instance | None:
        """Return the first size that fits when one resource is reduced: the scarcest that helps."""
        for scarce in _by_number(filled.failures):
            sizes = self._allowed(wanted, scarce)
            fits = self._first_fitting(filled, sizes)
            if fits is None:
                continue
            before = sizes[fits - 1] if fits else wanted
            if not fits or self._unchecked(filled, before).failures[scarce]:
                return sizes[fits]
        return None


def _bounds(policies: Iterable[Mapping[str, Any]]) -> Mapping[str, list[float]]:
    """Return, by resource, the bounds of all intervals in ascending order."""
    found: dict[str, list[float]] = {key: [] for key in SHRINKING}
    for policy in policies:
        for interval in policy.get("minmax", ()):
            for ends in interval.values():
                for key in SHRINKING & ends.keys():
                    found[key].append(ends[key])
    return {key: sorted(ends) for key, ends in found.items()}


def _is_above(one: Instance, least: Mapping[str, float]) -> bool:
    """Return whether every resource is at least the minimum of a policy's interval."""
    return (
        one.memory >= least["memory-size"]
        and one.vcpus >= least["cpu-count"]
        and min(one.disks, default=np.inf) >= least["disk-size"]
    )


def _by_number(failures: Counter[Failure]) -> list[Failure]:
    """Return the most frequent kind; of equally frequent kinds the last."""
    return sorted(Failure, key=lambda kind: failures[kind])[::-1]


def shrinks(wanted: Instance, scarce: Failure) -> Iterator[Instance]:
    """Yield ever smaller instances, a unit of one resource at a time; none if the resource cannot shrink."""
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
    """Return the same as `_first`, fast if the very first index is the answer."""
    if not given or holds(given[0]):
        return 0 if given else None
    found = _first(given[1:], holds)
    return None if found is None else found + 1


def _first(given: Sequence[Instance], holds: Callable[[Instance], bool]) -> int | None:
    """Return the index of the first element for which `holds`; it then holds for all later ones."""
    low, high = 0, len(given)
    while low < high:
        middle = (low + high) // 2
        if holds(given[middle]):
            high = middle
        else:
            low = middle + 1
    return low if low < len(given) else None
