"""The loss of many nodes at once: whether the instances that exist only there can be placed elsewhere.

Each lost node is a row. In it the node's mirrored instances have failed over; then the lost instances are placed in
turn, the same turn of all rows in one step. As in upstream Ganeti the score still includes the lost instances.
"""

from typing import NamedTuple

import numpy as np

from ganeti.placement.fit import Demands
from ganeti.placement.places import TIE
from ganeti.placement.score import SPREAD_WEIGHTS, everywhere
from ganeti.placement.spread import AS_PRIMARY, Field, amounts_of
from ganeti.placement.state import MIRROR_EXTERNAL, MIRROR_INTERNAL, Bools, Floats, Indices, State
from ganeti.placement.weights import (
    CPU,
    DISK,
    DISK_LOAD_SPREAD,
    FAILING_WEIGHT,
    LOAD,
    LOADS,
    MEMORY,
    MEMORY_IF_ALL,
    OFFLINE_PRIMARY_WEIGHT,
    OFFLINE_WEIGHT,
    SPREADS,
)

ROWS = 32
"""Lost nodes that are computed together: their arrays stay in the processor's cache."""


class Queues(NamedTuple):
    """The instances of each node, in the order in which they are placed once the node is lost.

    Those on shared storage are first, in reverse order; then the rest, the largest first.
    """

    order: Indices
    starts: Indices
    counts: Indices

    @classmethod
    def from_state(cls, state: State, which: Indices) -> "Queues":
        """Return the queues of these instances, all of which have a primary node."""
        which = which[::-1]  # the sort keeps this order of equal ones
        these, where = state.instances, state.primary[which]
        is_shared = these.mirror[which] == MIRROR_EXTERNAL
        keys = [-np.where(is_shared, 0.0, these.memory[which]), where]
        if is_shared.any():
            keys.insert(1, ~is_shared)
        counts = np.bincount(where, minlength=len(state.nodes))
        return cls(which[np.lexsort(keys)], np.cumsum(counts) - counts, counts)

    def of(self, nodes: Indices) -> tuple[Indices, Indices]:
        """Return ((nodes, turns) instances, padded with the last one; the lengths). No queue is empty."""
        counts = self.counts[nodes]
        turns = np.minimum(np.arange(counts.max(initial=0)), counts[:, None] - 1)
        return self.order[self.starts[nodes][:, None] + turns], counts


def find_places(state: State, lost: Indices, queues: Queues) -> Bools:
    """Return, by lost node, whether all instances of its queue can be placed in its group, in their order.

    Its mirrored instances must be able to fail over. Clusters with exclusion or location tags are not supported.
    """
    field = Field(state, everywhere(state))
    found = np.ones(len(lost), dtype=bool)
    longest_first = np.argsort(-queues.counts[lost], kind="stable")
    busy = longest_first[queues.counts[lost[longest_first]] > 0]
    for start in range(0, len(busy), ROWS):
        rows = busy[start : start + ROWS]
        found[rows] = Rows(field, lost[rows], *queues.of(lost[rows])).run()
    return found


_BY_ROW = (
    *("free", "free_disk", "free_spindles", "reserved", "both", "fails", "open"),
    *("which", "counts"),
)


class Rows:
    """Some lost nodes, those with the most instances first."""

    def __init__(self, field: Field, lost: Indices, which: Indices, counts: Indices) -> None:
        state = self.state = field.state
        self.field, self.counts = field, counts
        self.number = field.number
        rows = len(lost)
        self.free = np.repeat(state.free[None], rows, axis=0)
        self.free_disk = np.repeat(state.free_disk[None], rows, axis=0)
        self.free_spindles = np.repeat(state.free_spindles[None], rows, axis=0)
        self.reserved = np.repeat(state.reserved[None], rows, axis=0)
        self.values = np.repeat(field.values[:, None], rows, axis=1)
        self.both = np.repeat((state.primaries + state.secondaries)[None], rows, axis=0)
        self.fails = np.repeat(state.fails[None], rows, axis=0)
        self.open = state.group[lost][:, None] == state.group
        self.open[np.arange(rows), lost] = False
        self._fail_over(lost)
        self.penalty = (OFFLINE_WEIGHT + OFFLINE_PRIMARY_WEIGHT) * state.offline
        self.which = which

    def _fail_over(self, lost: Indices) -> None:
        state, these = self.state, self.state.instances
        there = (these.mirror == MIRROR_INTERNAL) & (state.secondary >= 0) & (state.primary >= 0)
        row_of = np.full(len(state.nodes), -1, dtype=np.intp)
        row_of[lost] = np.arange(len(lost))
        which = np.flatnonzero(there & (row_of[state.primary] >= 0))
        if not len(which):
            return
        where, old, new = row_of[state.primary[which]], state.primary[which], state.secondary[which]
        memory = these.memory[which] * these.uses_memory[which]
        np.add.at(self.free, (where, old), memory)
        np.subtract.at(self.free, (where, new), memory)
        self._reserve(lost, which, where)
        for spread, amount in (
            (MEMORY, -memory),
            (MEMORY_IF_ALL, -these.memory[which]),
            (CPU, these.vcpus[which] * these.counts[which]),
            *((LOAD + kind, these.loads[kind, which]) for kind in range(LOADS)),
        ):
            if spread != DISK_LOAD_SPREAD:  # the disk's load is the same for both roles
                unit = self.field.coefficients[spread]
                np.subtract.at(self.values[spread], (where, old), amount * unit[old])
                np.add.at(self.values[spread], (where, new), amount * unit[new])
        for place in ((where, old), (where, new)):
            self.fails[place] = self.free[place] <= self.reserved[place]

    def _reserve(self, lost: Indices, which: Indices, where: Indices) -> None:
        """Return what nodes reserve: the lost node has no reservation left and reserves for its partners instead."""
        state = self.state
        new, reserve = state.secondary[which], state.instances.reserve[which]
        rest = state.peers[:, lost].T.copy()
        np.subtract.at(rest, (where, new), reserve)
        # Only the entries that change: floats may leave a remainder where the whole reservation is gone.
        touched = np.zeros(rest.shape, dtype=bool)
        touched[where, new] = True
        changed = np.nonzero(touched)
        others = state.peers[changed[1]]
        others[np.arange(len(others)), lost[changed[0]]] = 0.0
        self.reserved[changed] = np.maximum(others.max(axis=1), rest[changed])
        own = state.peers[lost].copy()
        np.add.at(own, (where, new), reserve)
        rows = np.arange(len(lost))
        self.reserved[rows, lost] = own.max(axis=1, initial=0.0)

    def _read(self, which: Indices) -> None:
        """Return (rows, turns): the demands of the instances."""
        shape = which.shape
        demands = Demands.of(self.state, which.ravel())
        amounts, spindle_amounts = amounts_of(self.state, which.ravel())
        self.memory = np.maximum(0.0, demands.memory[:, 0]).reshape(shape)
        self.disk = demands.disk[:, 0].reshape(shape)
        self.spindles = demands.spindles[:, 0].reshape(shape)
        self.amounts = amounts.reshape(SPREADS, *shape)
        self.spindle_amounts = spindle_amounts.reshape(shape)
        self.parts = self._distinct()

    def _distinct(self) -> list[tuple[int, float]]:
        """Return (spread, weight) of those that differ; without reservations the reserved memory is unchanged."""
        parts: dict[int, float] = {}
        alike: dict[tuple[bytes, bytes], list[int]] = {}
        for spread in AS_PRIMARY:
            key = self.field.coefficients[spread].tobytes(), self.amounts[spread].tobytes()
            known = alike.setdefault(key, [])
            same = next((one for one in known if self._are_alike(one, spread)), None)
            if same is None:
                known.append(spread)
            first = spread if same is None else same
            parts[first] = parts.get(first, 0.0) + float(SPREAD_WEIGHTS[spread])
        return list(parts.items())

    def _are_alike(self, one: int, other: int) -> bool:
        return np.array_equal(self.values[one], self.values[other])

    def repeat(self, number: int, which: Indices, counts: Indices) -> None:
        """Copy the only row `number` times, with queues of its own; the queues with the most instances first."""
        for name in _BY_ROW[:-2]:
            setattr(self, name, np.repeat(getattr(self, name), number, axis=0))
        self.values = np.repeat(self.values, number, axis=1)
        self.which, self.counts = which, counts

    def keep(self, wanted: Bools) -> None:
        """Drop the other rows."""
        for name in _BY_ROW:
            setattr(self, name, getattr(self, name)[wanted])
        self.values = self.values[:, wanted]

    def has_room(self) -> Bools:
        """Return, by row, whether there is memory for each number of its largest instances, in any order."""
        these = self.state.instances
        wanted = (these.memory * these.uses_memory)[self.which]
        wanted[np.arange(wanted.shape[1]) >= self.counts[:, None]] = 0.0
        wanted = -np.sort(-wanted, axis=1)
        room = np.where(self.open, np.maximum(self.free, 0.0), 0.0)
        fits = (wanted.cumsum(axis=1) < room.sum(axis=1)[:, None]) | (wanted == 0)
        for turn in range(wanted.shape[1]):
            size = wanted[:, turn]
            each = np.ceil(room / np.maximum(size, 1.0)[:, None]) - 1
            fits[:, turn] &= (np.maximum(each, 0.0).sum(axis=1) > turn) | (size == 0)
        return np.asarray(fits.all(axis=1))

    def run(self) -> Bools:
        """Return, by row, whether all of its instances could be placed."""
        self.squares = (self.values**2).sum(axis=2)
        self.sums = self.values.sum(axis=2)
        self._read(self.which)
        alive = np.ones(len(self.counts), dtype=bool)
        for turn in range(self.amounts.shape[2]):
            rows = slice(0, int((self.counts > turn).sum()))
            alive[rows] &= self._place(rows, turn)
            if not alive[rows].any():
                break
        return alive

    def _place(self, rows: slice, turn: int) -> Bools:
        """Do one turn of these rows; return whether each instance could be placed."""
        memory, disk = self.memory[rows, turn, None], self.disk[rows, turn, None]
        free = self.free[rows]
        fits = (memory < free) & (disk < self.free_disk[rows]) & self.open[rows]
        exclusive = self.state.exclusive
        if exclusive.any():
            room = np.where(exclusive, self.free_spindles[rows], np.inf)
            fits &= self.spindles[rows, turn, None] <= room
        failing = free - memory <= self.reserved[rows]
        both = self.both[rows]
        scores = FAILING_WEIGHT * (failing * (both + 1) - self.fails[rows] * both) + self.penalty
        changes = {}
        for spread, weight in self.parts:
            changes[spread] = self._change(spread, rows, turn)
            scores += self._deviation(spread, rows, changes[spread], weight)
        scores[~fits] = np.inf
        best = scores.min(axis=1)
        # The last of equal scores; if no node fits, the index is not used.
        close = scores <= best[:, None] + TIE
        target = scores.shape[1] - 1 - np.argmax(close[:, ::-1], axis=1)
        self._settle(rows, target, turn, changes, failing)
        return np.asarray(np.isfinite(best))

    def _deviation(self, spread: int, rows: slice, change: Floats, weight: float) -> Floats:
        """Return (rows, nodes): the weighted standard deviation once each node has changed by `change`."""
        number = self.number
        squares, sums = self.squares[spread, rows, None], self.sums[spread, rows, None]
        part = 2.0 * self.values[spread, rows]
        part += (1.0 - 1.0 / number) * change
        part -= 2.0 / number * sums
        part *= change
        part += squares - sums**2 / number
        np.maximum(part, 0.0, out=part)
        np.sqrt(part, out=part)
        part *= weight / np.sqrt(number)
        return part

    def _change(self, spread: int, rows: slice, turn: int) -> Floats:
        change = self.amounts[spread, rows, turn, None] * self.field.coefficients[spread]
        if spread == DISK and self.state.exclusive.any():
            own = self.spindle_amounts[rows, turn, None] * self.field.coefficients[DISK]
            change = np.where(self.state.exclusive, own, change)
        return np.asarray(change)

    def _settle(
        self,
        rows: slice,
        target: Indices,
        turn: int,
        changes: dict[int, Floats],
        failing: Bools,
    ) -> None:
        here = np.arange(len(target))
        for spread, change in changes.items():
            moved, values = change[here, target], self.values[spread]
            self.squares[spread, rows] += moved * (2 * values[here, target] + moved)
            self.sums[spread, rows] += moved
            values[here, target] += moved
        self.free[here, target] -= self.memory[rows, turn]
        self.free_disk[here, target] -= np.maximum(0.0, self.disk[rows, turn])
        self.free_spindles[here, target] -= np.maximum(0.0, -self.spindle_amounts[rows, turn])
        self.both[here, target] += 1
        self.fails[here, target] = failing[here, target]
