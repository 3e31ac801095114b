"""Many sizes of one instance at once: the first size with a placement after which any node may still be lost.

Each (size, placement) is a row. The rows are checked against the loss of one node after the other; the last node that
eliminated rows is checked first, so most rows end there. This works for clusters that `losses.Rows` supports and
that are small enough for all placements of some sizes at once.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ganeti.placement.description import Instance
from ganeti.placement.losses import Queues, Rows
from ganeti.placement.places import NO_NODE, Rules
from ganeti.placement.policy import policy_failure
from ganeti.placement.policy_fit import policy_fits
from ganeti.placement.redundancy import needs_all_rules, relevant_nodes
from ganeti.placement.score import everywhere
from ganeti.placement.spread import AS_PRIMARY, AS_SECONDARY, Chunk, Field
from ganeti.placement.state import MIRROR_INTERNAL, Bools, Floats, Indices, State
from ganeti.placement.weights import DISK

FIRST_ROWS, MOST_ROWS = 256, 8192
"""Few rows take about as long as one."""
MOST_NODES, MOST_NODES_OF_PAIRS = 40, 12
FEWEST_SIZES = 8


def can_try(state: State, wanted: Instance, rules: Rules) -> bool:
    """Return whether `first_size` gives the same answer as the trial of one size after the other."""
    most = MOST_NODES_OF_PAIRS if wanted.nodes_needed > 1 else MOST_NODES
    return (
        len(state.nodes) <= most
        and not needs_all_rules(state)
        and not state.tags.desires.any()
        and not (wanted.tags and state.cluster.tags)
        and rules.capacity
        and rules.before is None
        and rules.only_primary is None
    )


def first_size(state: State, sizes: Sequence[Instance], open_: Bools, rules: Rules) -> int | None:
    """Return the index of the first size with a placement on the open nodes; None if no size has one.

    The policies of all groups say the same about all sizes.
    """
    places = len(state.nodes) ** sizes[0].nodes_needed
    start, count = 0, max(FEWEST_SIZES, FIRST_ROWS // places)
    suspects = [int(node) for node in np.flatnonzero(relevant_nodes(state, rules.excluded))]
    while start < len(sizes):
        part = sizes[start : start + count]
        state.admit(part)
        try:
            found = _Trials(state, len(part), open_, rules).first(suspects)
        finally:
            state.dismiss(len(part))
        if found is not None:
            return start + found
        start += len(part)
        count = max(1, min(2 * count, MOST_ROWS // places))
    return None


class _Trials:
    """The last `number` instances of the state, which are on no node, in every possible placement."""

    def __init__(self, state: State, number: int, open_: Bools, rules: Rules) -> None:
        self.state, self.open = state, open_
        self.which = np.arange(len(state.names) - number, len(state.names))
        self.is_pair = int(state.instances.mirror[self.which[0]]) == MIRROR_INTERNAL
        self.field = Field(state, everywhere(state))
        self.chunk = Chunk(self.field, self.which, force=rules.ignore_soft_errors)
        self.force = rules.ignore_soft_errors
        there = np.arange(len(state.names)) < self.which[0]
        self.mirrored = there & (state.instances.mirror == MIRROR_INTERNAL) & (state.secondary >= 0)
        self.queues = Queues.from_state(state, np.flatnonzero(there & ~self.mirrored))
        self.is_wrong = np.zeros(len(state.nodes), dtype=bool)
        """By node: the policy would forbid one of its instances on every node."""
        wrong = there & ~self.mirrored & ~policy_fits(state)
        self.is_wrong[state.primary[wrong]] = True

    def first(self, suspects: list[int]) -> int | None:
        """Return the index of the first size with a placement that keeps every suspect losable.

        This sorts the suspects.
        """
        size, primary, secondary = self._places()
        for node in list(suspects):
            if not size.size:
                return None
            alive = self._survive(node, size, primary, secondary)
            if not alive.all():
                suspects.remove(node)
                suspects.insert(0, node)
            size, primary, secondary = size[alive], primary[alive], secondary[alive]
        return int(size.min()) if size.size else None

    def _places(self) -> tuple[Indices, Indices, Indices]:
        """Return (size, primary, secondary) of all placements that the limits of nodes allow."""
        state, chunk = self.state, self.chunk
        fits = chunk.hard_primary & self.open
        if not self.force:
            fits &= chunk.soft_primary
        one = state.descriptions[self.which[0]]
        for group, exclusive in set(
            zip(state.group.tolist(), state.exclusive.tolist(), strict=True)
        ):
            if policy_failure(state.groups[group].policy, one, exclusive=exclusive) is not None:
                fits[:, (state.group == group) & (state.exclusive == exclusive)] = False
        if not self.is_pair:
            size, primary = np.nonzero(fits)
            return size, primary, np.full(len(size), NO_NODE, dtype=np.intp)
        pairs = fits[:, :, None] & self._seconds()
        size, primary, secondary = np.nonzero(pairs)
        return size, primary, secondary

    def _seconds(self) -> Bools:
        """Return (sizes, primary, secondary): whether the second has room for a copy of the disks."""
        state, chunk, demands = self.state, self.chunk, self.chunk.demands
        alone = chunk.hard_disk & self.open
        reserve = demands.reserve
        if not self.force:
            alone &= chunk.soft_disk & (reserve < state.free) & (reserve < state.free_if_all)
        together = (state.group[:, None] == state.group) & ~np.eye(len(state.nodes), dtype=bool)
        seconds = alone[:, None, :] & together
        if not self.force:
            reserved = self.field.peers_by_primary + reserve[:, :, None]
            np.maximum(reserved, state.reserved, out=reserved)
            seconds &= (reserved < state.free) | state.fails
        return np.asarray(seconds)

    def _survive(self, lost: int, size: Indices, primary: Indices, secondary: Indices) -> Bools:
        """Return, by placement, whether `lost` can be lost once the instance is there."""
        if self.is_wrong[lost]:
            return np.zeros(len(size), dtype=bool)
        alive = np.ones(len(size), dtype=bool)
        rows, counts = self._queues(lost, size, primary)
        order = np.argsort(-counts, kind="stable")
        size, primary, secondary = size[order], primary[order], secondary[order]
        trial = Rows(self.field, np.array([lost]), rows[:1], counts[:1])
        trial.repeat(len(size), rows[order], counts[order])
        _Added(self, trial, lost, size).place(primary, secondary)
        alive[order] = fits = self._fails_over(trial, lost, primary, secondary) & trial.has_room()
        trial.keep(fits)
        alive[order[fits]] = trial.run()
        return alive

    def _queues(self, lost: int, size: Indices, primary: Indices) -> tuple[Indices, Indices]:
        """Return ((rows, turns) instances to place, how many); the new one is among them if its node is lost."""
        start, count = int(self.queues.starts[lost]), int(self.queues.counts[lost])
        queue = self.queues.order[start : start + count]
        new = self.which[size]
        joins = (primary == lost) & (not self.is_pair)
        if not joins.any():
            return np.repeat(queue[None], len(size), axis=0), np.full(len(size), count)
        memory = self.state.instances.memory
        # The largest first; of equal sizes the last, which is the new one.
        place = (memory[queue] > memory[new][:, None]).sum(axis=1)
        turns = np.arange(count + 1)
        old = np.append(queue, new[0])[np.where(turns > place[:, None], turns - 1, turns)]
        inserted = np.where(turns == place[:, None], new[:, None], old)
        kept = np.append(queue, queue[-1:] if count else new[:1])
        rows = np.where(joins[:, None], inserted, kept)
        return rows, np.where(joins, count + 1, count)

    def _fails_over(self, trial: Rows, lost: int, primary: Indices, secondary: Indices) -> Bools:
        """Return, by row, whether the mirrored instances of the lost node can run on their secondary nodes."""
        state = self.state
        mine = self.mirrored & (state.primary == lost)
        takers = np.flatnonzero(np.bincount(state.secondary[mine], minlength=1))
        fits = (trial.free[:, takers] > 0).all(axis=1)
        fits &= (trial.free_disk[:, takers] > 0).all(axis=1)
        moves = (primary == lost) & self.is_pair
        here = np.arange(len(primary))
        fits &= ~moves | (trial.free[here, secondary] > 0) & (trial.free_disk[here, secondary] > 0)
        if not state.offline[lost]:
            fits &= (trial.free_disk[:, lost] > 0) | (~moves & (not len(takers)))
        return np.asarray(fits)


class _Added:
    """Return the new instances in the rows of one lost node."""

    def __init__(self, trials: _Trials, trial: Rows, lost: int, size: Indices) -> None:
        self.trials, self.trial, self.lost, self.size = trials, trial, lost, size
        self.here = np.arange(len(size))
        these, index = trials.state.instances, trials.which[size]
        self.memory = these.memory[index] * these.uses_memory[index]
        self.disk = these.disk[index] * these.is_local[index]
        self.reserve = these.reserve[index]

    def place(self, primary: Indices, secondary: Indices) -> None:
        """Put each on its nodes; a mirrored instance that loses its primary node runs on the other one."""
        trial, here = self.trial, self.here
        if not self.trials.is_pair:
            self._add(primary, AS_PRIMARY)
            trial.free[here, primary] -= self.memory
            self._settle(primary)
            return
        moves = primary == self.lost
        first, second = np.where(moves, secondary, primary), np.where(moves, primary, secondary)
        self._add(first, AS_PRIMARY)
        self._add(second, AS_SECONDARY)
        trial.free[here, first] -= self.memory
        reserved = self._peers(first, second) + self.reserve
        trial.reserved[here, second] = np.maximum(trial.reserved[here, second], reserved)
        self._settle(first)
        self._settle(second)

    def _add(self, node: Indices, role: list[int]) -> None:
        trial, here = self.trial, self.here
        chunk, units = self.trials.chunk, self.trials.field.coefficients
        exclusive = self.trials.state.exclusive[node]
        for spread in role:
            amounts = chunk.amounts[spread, self.size]
            if spread == DISK:
                amounts = np.where(exclusive, chunk.spindle_amount[self.size], amounts)
            trial.values[spread, here, node] += amounts * units[spread][node]
        trial.free_disk[here, node] -= self.disk
        trial.free_spindles[here, node] += chunk.spindle_amount[self.size]
        trial.both[here, node] += 1

    def _settle(self, node: Indices) -> None:
        trial, here = self.trial, self.here
        trial.fails[here, node] = trial.free[here, node] <= trial.reserved[here, node]

    def _peers(self, first: Indices, second: Indices) -> Floats:
        """Return what `second` reserves for `first` once the lost node's instances have failed over."""
        state = self.trials.state
        peers: npt.NDArray[np.float64] = state.peers[second, first]
        mine = self.trials.mirrored & (state.primary == self.lost)
        own = np.bincount(
            state.secondary[mine], weights=state.instances.reserve[mine], minlength=len(state.nodes)
        )
        return np.asarray(np.where(second == self.lost, peers + own[first], peers))
