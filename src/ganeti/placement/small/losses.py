"""The unrecoverable nodes of a small cluster, as `redundancy` defines them."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from ganeti.placement import weights
from ganeti.placement.places import NO_NODE, TIE, Excluded
from ganeti.placement.policy import policy_failure
from ganeti.placement.small.cluster import AS_PRIMARY, Row, Small, Spreads
from ganeti.placement.weights import (
    DISK,
    DISK_LOAD_SPREAD,
    FAILING_WEIGHT,
    OF_SPREADS,
    RESERVED,
    SPINDLES,
)


def unrecoverable_nodes(
    small: Small, excluded: Excluded, first: int | None = None
) -> Iterator[int]:
    """Yield nodes whose instances the cluster could not restart after a loss; `first` is examined first."""
    relevant = _relevant(small, excluded)
    # The most loaded nodes first: most callers only ask whether there is one.
    relevant.sort(key=lambda node: (node != first, -small.instance_memory[node]))
    yield from (node for node in relevant if not _Loss(small, node).is_made_good())


def unrecoverable_for_room(
    small: Small, excluded: Excluded, first: int | None = None
) -> Iterator[int]:
    """Yield those of the `unrecoverable_nodes` for whose instances the other nodes lack room in any order."""
    relevant = _relevant(small, excluded)
    relevant.sort(key=lambda node: (node != first, node))
    yield from (node for node in relevant if _Loss(small, node).lacks_room())


def _relevant(small: Small, excluded: Excluded) -> list[int]:
    gone = small.offline
    online = Counter(group for group, is_gone in zip(small.group, gone, strict=True) if not is_gone)
    return [
        node
        for node, group in enumerate(small.group)
        if group not in excluded.groups
        and not (excluded.offline and gone[node])
        and not (excluded.lone_nodes and online[group] <= 1)
    ]


class _Loss:
    """The loss of one node: its mirrored instances fail over, the others are placed elsewhere."""

    def __init__(self, small: Small, lost: int) -> None:
        self.small, self.lost = small, lost
        mine = [index for index, node in enumerate(small.primary) if node == lost]
        self.mirrored = [
            index
            for index in mine
            if small.amounts[index].is_mirrored and small.secondary[index] >= 0
        ]
        self.others = [index for index in mine if index not in self.mirrored]
        self.free, self.reserved = list(small.free), list(small.reserved)
        group = small.group[lost]
        self.targets = [
            node for node, its in enumerate(small.group) if its == group and node != lost
        ]

    def lacks_room(self) -> bool:
        """Return whether the rest of the group lacks room for some number of its largest instances."""
        small = self.small
        these = [small.amounts[index] for index in self.others]
        free = self._free_after_failover()
        return self._is_too_much([one.memory for one in these], free) or self._is_too_much(
            [one.disk for one in these], small.free_disk
        )

    def _is_too_much(self, sizes: Row, free: Row) -> bool:
        room = [max(0.0, free[node]) for node in self.targets]
        whole, total = sum(room), 0.0
        for number, size in enumerate(sorted(sizes, reverse=True), start=1):
            if size <= 0:
                break
            total += size
            if total >= whole or sum(max(0, math.ceil(one / size) - 1) for one in room) < number:
                return True
        return False

    def is_made_good(self) -> bool:
        """Return whether all of its instances would run elsewhere in its group."""
        if not self._can_fail_over():
            return False
        small = self.small
        policy = small.groups[small.group[self.lost]].policy
        different = {small.amounts[one].limited: small.descriptions[one] for one in self.others}
        if any(policy_failure(policy, one) for one in different.values()):
            return False
        return not self.others or self._has_room_for_copies() or self._find_places()

    def _has_room_for_copies(self) -> bool:
        """Return whether the group has room for as many copies of the largest instance as must move, in any order."""
        small = self.small
        these = [small.amounts[index] for index in self.others]
        free = self._free_after_failover()
        memory = max(1.0, *(one.memory for one in these))
        disk = max((one.disk for one in these if one.is_local), default=None)
        copies = 0.0
        for node in self.targets:
            here = (free[node] - memory - 1) // memory + 1
            if disk is not None:
                largest = max(1.0, disk)
                here = min(here, (small.free_disk[node] - largest - 1) // largest + 1)
            copies += max(0.0, here)
        return copies >= len(these)

    def _free_after_failover(self) -> Row:
        """Return the free memory of each node once the mirrored instances run on their secondary nodes."""
        small = self.small
        free = list(small.free)
        for index in self.mirrored:
            free[small.secondary[index]] -= small.amounts[index].memory
        return free

    def _can_fail_over(self) -> bool:
        small, lost = self.small, self.lost
        taken: dict[int, float] = {}
        for index in self.mirrored:
            to = small.secondary[index]
            taken[to] = taken.get(to, 0.0) + small.amounts[index].memory
        has_disk = small.free_disk[lost] > 0 or small.offline[lost]
        return all(
            has_disk and small.free_disk[to] > 0 and small.free[to] > memory
            for to, memory in taken.items()
        )

    def _fail_over(self, values: list[Row], units: list[Row], fails: list[bool]) -> None:
        small, lost = self.small, self.lost
        peers: dict[int, float] = {}
        own = list(small.peers[lost])
        for index in self.mirrored:
            one, to = small.amounts[index], small.secondary[index]
            self.free[lost] += one.memory
            self.free[to] -= one.memory
            peers[to] = peers.get(to, small.peers[to][lost]) - one.reserve
            own[to] += one.reserve
            for kind, change in enumerate(one.changes()):
                if kind not in _STAYING:  # the disk's load is the same for both roles
                    values[kind][lost] -= change * units[kind][lost]
                    values[kind][to] += change * units[kind][to]
        for to, rest in peers.items():
            others = (amount for node, amount in enumerate(small.peers[to]) if node != lost)
            self.reserved[to] = max(rest, *others)
        self.reserved[lost] = max(own)
        for node in (*peers, lost) if peers else ():
            fails[node] = self.free[node] <= self.reserved[node]

    def _find_places(self) -> bool:
        """Return whether each of the others, the largest first, can be placed at the lowest score."""
        small = self.small
        spreads = Spreads(small)
        values, fails = [list(row) for row in spreads.values], list(small.fails)
        self._fail_over(values, spreads.units, fails)
        queue = sorted(self.others, key=lambda index: (-small.amounts[index].memory_if_all, -index))
        changes = [small.amounts[index].changes() for index in queue]
        parts = [_Part(weight, values[kind], spreads.units[kind], [one[kind] for one in changes], spreads.number)
                 for kind, weight in _distinct(values, spreads.units, changes)]  # fmt: skip
        both = [a + b for a, b in zip(small.primaries, small.secondaries, strict=True)]
        free, disk = self.free, list(small.free_disk)
        penalty = weights.OFFLINE_WEIGHT + weights.OFFLINE_PRIMARY_WEIGHT
        for turn, index in enumerate(queue):
            one = small.amounts[index]
            best, target = math.inf, NO_NODE
            scores = []
            for node in self.targets:
                if one.memory >= free[node] or (one.is_local and one.disk >= disk[node]):
                    continue
                would_fail = free[node] - one.memory <= self.reserved[node]
                score = FAILING_WEIGHT * (would_fail * (both[node] + 1) - fails[node] * both[node])
                score += penalty * small.offline[node]
                for part in parts:
                    score += part.after(node, turn)
                scores.append((score, node))
                best = min(best, score)
            if not scores:
                return False
            target = max(node for score, node in scores if score <= best + TIE)
            for part in parts:
                part.settle(target, turn)
            free[target] -= one.memory
            disk[target] -= max(0.0, one.disk)
            both[target] += 1
            fails[target] = free[target] <= self.reserved[target]
        return True


_STAYING = (DISK, RESERVED, DISK_LOAD_SPREAD, SPINDLES)


class _Part:
    """One standard deviation while instances are placed in turn."""

    def __init__(self, weight: float, values: Row, units: Row, amounts: Row, number: int) -> None:
        self.values, self.units, self.amounts = values, units, amounts
        self.scale, self.number = weight / math.sqrt(number), number
        self.squares, self.sum = math.fsum(value * value for value in values), math.fsum(values)

    def after(self, node: int, turn: int) -> float:
        """Return the weighted deviation with one more instance on a node."""
        change = self.amounts[turn] * self.units[node]
        number = self.number
        total = (
            self.squares
            - self.sum * self.sum / number
            + change
            * (2.0 * self.values[node] + (1.0 - 1.0 / number) * change - 2.0 / number * self.sum)
        )
        return self.scale * math.sqrt(total) if total > 0.0 else 0.0

    def settle(self, node: int, turn: int) -> None:
        """Put the instance on a node."""
        change = self.amounts[turn] * self.units[node]
        self.squares += change * (2.0 * self.values[node] + change)
        self.sum += change
        self.values[node] += change


def _distinct(
    values: list[Row], units: list[Row], changes: Sequence[tuple[float, ...]]
) -> list[tuple[int, float]]:
    """Return (spread, weight) of those that differ; without reservations the reserved memory is unchanged."""
    found: dict[tuple[object, ...], tuple[int, float]] = {}
    for kind in AS_PRIMARY:
        key = (*values[kind], *units[kind], *(one[kind] for one in changes))
        known, weight = found.get(key, (kind, 0.0))
        found[key] = known, weight + OF_SPREADS[kind]
    return list(found.values())
