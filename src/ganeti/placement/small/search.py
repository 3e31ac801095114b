"""The choice of nodes for a new instance in a small cluster."""

import math
from collections.abc import Sequence

from ganeti.placement import weights
from ganeti.placement.description import (
    Failure,
)
from ganeti.placement.places import CAPACITY_TRIES, NO_NODE, TIE, Rules, SearchResult
from ganeti.placement.policy import policy_failure
from ganeti.placement.small.cluster import AS_PRIMARY, Row, Small, Spreads
from ganeti.placement.small.losses import unrecoverable_for_room, unrecoverable_nodes
from ganeti.placement.weights import (
    DISK,
    DISK_LOAD_SPREAD,
    FAILING_WEIGHT,
    RESERVED,
    RESERVED_TOTAL_WEIGHT,
    SPINDLES,
)

_SHARED = (DISK, DISK_LOAD_SPREAD, SPINDLES)
"""The values that both nodes of a mirrored instance change."""
_ALONE = tuple(one for one in AS_PRIMARY if one not in _SHARED)


class Search:
    """One search for the last instance of the lists, which is on no node.

    For `suspects` see `SearchResult.blockers`.
    """

    def __init__(
        self,
        small: Small,
        open_: Sequence[bool],
        rules: Rules,
        suspects: dict[int, int] | None = None,
    ) -> None:
        self.small, self.open, self.rules = small, open_, rules
        self.index = len(small.descriptions) - 1
        self.wanted, self.amounts = small.descriptions[-1], small.amounts[-1]
        self.place = SearchResult(0, blockers={} if suspects is None else suspects)
        self.spreads = Spreads(small)
        self.changes = self.amounts.changes()
        self.is_hopeless = False
        """The cluster is not redundant even without the instance, so every placement fails."""

    def run(self) -> tuple[SearchResult, list[Row]]:
        """Return (the best placement, the score of each: by node, or by primary and secondary)."""
        small, place = self.small, self.place
        is_pair = self.amounts.is_mirrored
        forbidden = [policy_failure(group.policy, self.wanted) for group in small.groups]
        fits = []
        for node, is_open in enumerate(self.open):
            if not is_open:
                continue
            cause = forbidden[small.group[node]] or self._against_primary(node)
            if cause is None:
                if self.rules.only_primary in (None, node):
                    fits.append(node)
            else:
                place.failures[cause] += len(self._partners(node)) if is_pair else 1
        scores = self._pairs(fits) if is_pair else self._singles(fits)
        self._choose(scores)
        if place.nodes:
            place.group = small.group[place.nodes[0]]
        return place, scores

    def _partners(self, node: int) -> list[int]:
        group = self.small.group
        return [
            other
            for other, is_open in enumerate(self.open)
            if is_open and other != node and group[other] == group[node]
        ]

    def _singles(self, fits: Sequence[int]) -> list[Row]:
        scores = [[math.inf] for _ in self.open]
        base = self._base()
        for node in fits:
            scores[node][0] = base + self._as_primary(node, AS_PRIMARY)
        return scores

    def _base(self) -> float:
        """Return the parts of the score that a new primary does not change."""
        small, live = self.small, self.spreads.live
        total = weights.RESERVED_TOTAL_WEIGHT * self.spreads.reserved_total
        for node, is_live in enumerate(live):
            both = small.primaries[node] + small.secondaries[node]
            if is_live:
                total += FAILING_WEIGHT * both * small.fails[node]
            else:
                total += weights.OFFLINE_WEIGHT * both
                total += weights.OFFLINE_PRIMARY_WEIGHT * small.primaries[node]
        if not self.amounts.is_mirrored:
            total += self.spreads.deviation(RESERVED, 0.0)
        return total

    def _as_primary(self, node: int, kinds: Sequence[int]) -> float:
        spreads, small = self.spreads, self.small
        total = 0.0
        for kind in kinds:
            change = self.changes[kind] * spreads.units[kind][node]
            total += spreads.deviation(kind, spreads.grown(kind, node, change))
        if spreads.live[node]:
            fails = small.free[node] - self.amounts.memory <= small.reserved[node]
            total += self._failing(node, fails=fails)
        return total

    def _failing(self, node: int, *, fails: bool) -> float:
        small = self.small
        both = small.primaries[node] + small.secondaries[node]
        return FAILING_WEIGHT * (fails * (both + 1) - small.fails[node] * both)

    def _pairs(self, fits: Sequence[int]) -> list[Row]:
        scores = [[math.inf] * len(self.open) for _ in self.open]
        base = self._base()
        for first in fits:
            alone: float | None = None
            for second in self._partners(first):
                cause = self._against_secondary(first, second)
                if cause is not None:
                    self.place.failures[cause] += 1
                    continue
                if alone is None:
                    alone = base + self._as_primary(first, _ALONE)
                scores[first][second] = alone + self._as_secondary(first, second)
        return scores

    def _as_secondary(self, first: int, second: int) -> float:
        """Return the part that depends on the secondary node."""
        spreads, small = self.spreads, self.small
        total = 0.0
        for kind in _SHARED:
            unit = spreads.units[kind]
            one, other = self.changes[kind] * unit[first], self.changes[kind] * unit[second]
            added = spreads.grown(kind, first, one) + spreads.grown(kind, second, other)
            total += spreads.deviation(kind, added - 2.0 / spreads.number * one * other)
        reserved = max(small.peers[second][first] + self.amounts.reserve, small.reserved[second])
        change = (reserved - small.reserved[second]) * spreads.units[RESERVED][second]
        total += spreads.deviation(RESERVED, spreads.grown(RESERVED, second, change))
        total += RESERVED_TOTAL_WEIGHT * change
        if spreads.live[second]:
            total += self._failing(second, fails=small.free[second] <= reserved)
        return total

    def _against_primary(self, node: int) -> Failure | None:
        """Return the first reason against the node as primary."""
        small, one, force = self.small, self.amounts, self.rules.ignore_soft_errors
        limit = small.cpu_ratio[node] * small.total_cpus[node] - small.used_cpus[node]
        free, disk = small.free[node], small.free_disk[node]
        reserved = 0.0 if small.fails[node] else small.reserved[node]
        if one.memory >= free:
            return Failure.MEMORY
        if one.is_local and one.disk >= disk:
            return Failure.DISK
        if force:
            return None
        if one.is_local and (one.disk > disk - small.low_disk[node] or self._lacks_spindles(node)):
            return Failure.DISK
        if one.memory >= free - reserved:
            return Failure.MEMORY
        # `used / total` may exceed the ratio by a rounding error where the product does not.
        if small.cpu_ratio[node] >= 0 and one.vcpus > math.floor(limit + 1e-9):
            return Failure.CPU
        return Failure.MEMORY if one.memory_if_all >= small.free_if_all[node] else None

    def _lacks_spindles(self, node: int) -> bool:
        small = self.small
        return self.amounts.spindle_use > small.most_spindles[node] - small.used_spindles[node]

    def _against_secondary(self, first: int, node: int) -> Failure | None:
        small, one, force = self.small, self.amounts, self.rules.ignore_soft_errors
        disk, free = small.free_disk[node], small.free[node]
        if one.disk >= disk:
            return Failure.DISK
        if force:
            return None
        if one.disk > disk - small.low_disk[node] or self._lacks_spindles(node):
            return Failure.DISK
        reserved = max(small.peers[node][first] + one.reserve, small.reserved[node])
        too_little = (free <= reserved and not small.fails[node]) or (
            one.reserve >= small.free_if_all[node]
        )
        return Failure.MEMORY if one.reserve >= free or too_little else None

    def _choose(self, scores: list[Row]) -> None:
        """Choose the lowest score whose placement leaves the cluster redundant; of equal scores the last."""
        place = self.place
        possible = {
            (first, second): score
            for first, row in enumerate(scores)
            for second, score in enumerate(row)
            if score < math.inf
        }
        place.successes = len(possible)
        for _ in range(CAPACITY_TRIES):
            if not possible:
                return
            best = min(possible.values())
            chosen = max(key for key, score in possible.items() if score <= best + TIE)
            nodes = chosen if self.amounts.is_mirrored else chosen[:1]
            if not self.rules.capacity or self._allows(nodes):
                place.nodes, place.score = nodes, possible[chosen]
                return
            del possible[chosen]
            place.successes -= 1
            place.failures[Failure.REDUNDANCY] += 1
            if self.is_hopeless:
                place.failures[Failure.REDUNDANCY] += place.successes
                place.successes = 0
                return

    def _allows(self, nodes: tuple[int, ...]) -> bool:
        """Return whether any one node may fail once the instance is placed."""
        primary, blockers = nodes[0], self.place.blockers
        after = self.small.copy()
        after.place(self.index, primary, nodes[1] if len(nodes) > 1 else NO_NODE)
        suspect = blockers.get(primary, blockers.get(NO_NODE))
        blocked_by = unrecoverable_for_room if self.rules.by_room else unrecoverable_nodes
        found = next(blocked_by(after, self.rules.excluded, suspect), None)
        if found is None:
            return True
        if not blockers:
            before = next(blocked_by(self.small, self.rules.excluded, found), None)
            self.is_hopeless = before is not None
        blockers[primary] = blockers[NO_NODE] = found
        return False
