"""The score after each of many moves, computed from the changes at the nodes that a move touches.

A move changes the sums behind each standard deviation at up to three nodes. The change at the instance's present nodes
does not depend on the target, and the change at the target is a product of an amount of the instance and a
coefficient of the node. So the sum of squares after all moves of many instances is one product of small
matrices (`Field.spread`).
"""

from functools import cached_property

import numpy as np

from ganeti.placement import fit
from ganeti.placement.fit import Demands, Room
from ganeti.placement.places import NO_NODE
from ganeti.placement.score import SPREAD_WEIGHTS, beside_spreads, spreads
from ganeti.placement.state import Bools, Floats, Indices, State
from ganeti.placement.weights import (
    CPU,
    DISK,
    DISK_LOAD_SPREAD,
    LOAD,
    LOADS,
    MEMORY,
    MEMORY_IF_ALL,
    RESERVED,
    RESERVED_TOTAL_WEIGHT,
    SPINDLES,
    SPREADS,
)

AS_PRIMARY = [MEMORY, MEMORY_IF_ALL, DISK, CPU, *range(LOAD, LOAD + LOADS), SPINDLES]
AS_SECONDARY = [DISK, DISK_LOAD_SPREAD, SPINDLES]


class Field:
    """The inputs of all candidates' scores; recreated, or touched, after each change of the state."""

    def __init__(self, state: State, scope: Bools) -> None:
        self.state, self.scope = state, scope
        self.live = scope & ~state.offline
        self.online = self.live.astype(float)
        self.number = max(1, int(self.live.sum()))
        self.coefficients = self._coefficients()
        self._spreads = spreads(state)
        self.room = Room.of(state)
        self._settle()

    def touch(self, nodes: Indices) -> None:
        """Follow a change of the state at these nodes."""
        self._spreads[:, nodes] = spreads(self.state, nodes)
        for column, part in zip(self.room, Room.of(self.state, nodes), strict=True):
            column[nodes] = part
        for name in ("factors", "column_ends", "peers_by_primary", "second"):
            vars(self).pop(name, None)
        self._settle()

    def _settle(self) -> None:
        state, values = self.state, self._spreads
        alive = values if self.live.all() else values[:, self.live]
        means = alive.mean(axis=1, keepdims=True) if alive.size else 0.0
        self.values = (values - means) * self.live
        self.squares = (self.values**2).sum(axis=1)
        self.fixed = beside_spreads(state, self.scope, values)
        self.reserved_now = float(
            SPREAD_WEIGHTS[RESERVED] * np.sqrt(self.squares[RESERVED] / self.number)
        )
        self.is_risky = bool((state.fails & self.live).any()) or self._has_strays()

    @cached_property
    def factors(self) -> Floats:
        """(spreads, 1 and factors, nodes): those of each node in the variances, without exclusive storage."""
        columns = _columns(self.coefficients, self.values)
        return np.stack([np.ones_like(self.values), *columns], axis=1)

    @property
    def columns(self) -> Floats:
        """(spreads, factors, nodes): the same without the 1."""
        return self.factors[:, 1:]

    @cached_property
    def column_ends(self) -> Floats:
        """(spreads, factors, 2): the smallest and the largest of the `columns` of online nodes."""
        live = self.columns[:, :, self.live]
        return np.stack([live.min(axis=2), live.max(axis=2)], axis=2)

    @cached_property
    def peers_by_primary(self) -> Floats:
        """(primary, secondary): the memory that the secondary reserves for the primary's instances."""
        return np.ascontiguousarray(self.state.peers.T)

    @cached_property
    def second(self) -> Floats:
        """By node: the second largest of its reservations for the other nodes."""
        peers = self.state.peers.copy()
        if not len(peers):
            return np.zeros(0)
        peers[np.arange(len(peers)), peers.argmax(axis=1)] = 0.0
        second: Floats = peers.max(axis=1)
        return second

    def _has_strays(self) -> bool:
        state = self.state
        return bool((state.primaries + state.secondaries)[~self.live].any())

    def _coefficients(self) -> Floats:
        """(spreads, nodes): the change of a node's value by one unit; with exclusive storage a spindle is one unit."""
        state = self.state

        def inverse(values: Floats) -> Floats:
            return np.where((values > 0) & self.live, 1.0 / np.where(values > 0, values, 1.0), 0.0)

        memory = inverse(state.total_memory)
        units = np.zeros((SPREADS, len(self.live)))
        units[MEMORY] = units[MEMORY_IF_ALL] = units[RESERVED] = memory
        units[DISK] = inverse(np.where(state.exclusive, state.total_spindles, state.total_disk))
        units[CPU] = inverse(state.total_cpus * state.cpu_speed)
        units[LOAD : LOAD + LOADS] = self.online
        units[SPINDLES] = inverse(np.where(state.exclusive, 0.0, state.most_spindles))
        return units

    def reserved_without(self, node: Indices, primary: Indices, reserve: Floats) -> Floats:
        """Return what each `node` reserves once the instance with it as secondary has left."""
        peers, reserved = self.state.peers[node, primary], self.state.reserved[node]
        rest = np.where(peers < reserved, reserved, self.second[node])
        return np.maximum(rest, np.where(peers < reserved, 0.0, peers - reserve))


def amounts_of(state: State, which: Indices) -> tuple[Floats, Floats]:
    """Return ((spreads, instances) a primary's addition at its node, in units; the addition in spindles for disks)."""
    these = state.instances
    amounts = np.zeros((SPREADS, len(which)))
    amounts[MEMORY] = -these.memory[which] * these.uses_memory[which]
    amounts[MEMORY_IF_ALL] = -these.memory[which]
    amounts[DISK] = -np.where(these.is_local[which], these.disk[which], 0.0)
    amounts[CPU] = these.vcpus[which] * these.counts[which]
    amounts[LOAD : LOAD + LOADS] = these.loads[:, which]
    amounts[SPINDLES] = np.where(these.is_local[which], these.spindle_use[which], 0.0)
    return amounts, -np.nan_to_num(these.spindles[which])


_BY_TARGET = ("clashes", "relief", "hard_primary", "hard_disk", "soft_primary", "soft_disk")


class Chunk:
    """The moves of some instances with the same kind of mirror."""

    def __init__(self, field: Field, which: Indices, *, force: bool = False) -> None:
        state = field.state
        self.field, self.which, self.force = field, which, force
        self.primary, self.secondary = state.primary[which], state.secondary[which]
        self.demands = Demands.of(state, which)
        self.reserve = state.instances.reserve[which]
        self.amounts, self.spindle_amount = amounts_of(state, which)

    # The limits of the targets, each (instances, nodes).

    @cached_property
    def clashes(self) -> Floats | None:
        """The number of the instance's exclusion tags that a primary of the node has; None without such tags."""
        rules = self.field.state.tags
        return rules.clashes(self.which) if rules.has_exclusion else None

    @cached_property
    def relief(self) -> Floats | float:
        """By instance, the number of clashes that end if it leaves its primary node."""
        rules = self.field.state.tags
        return rules.relief(self.which, self.primary) if rules.has_exclusion else 0.0

    @cached_property
    def hard_primary(self) -> Bools:
        """Whether the hard limits on a primary hold."""
        return fit.hard(self.demands, self.field.room)

    @cached_property
    def hard_disk(self) -> Bools:
        """Whether the hard limits on disks hold."""
        return fit.fits_disk(self.demands, self.field.room)

    @cached_property
    def soft_primary(self) -> Bools:
        """Whether the soft limits on a primary hold."""
        return fit.soft(self.demands, self.field.room, self.clashes)

    @cached_property
    def soft_disk(self) -> Bools:
        """Whether the soft limits on disks hold."""
        return fit.soft_disk(self.demands, self.field.room)

    @cached_property
    def targets(self) -> Bools:
        """Whether the node is online and none of the instance's nodes."""
        targets = np.repeat(self.field.live[None], len(self.which), axis=0)
        rows = np.arange(len(self.which))
        for nodes in (self.primary, self.secondary):
            there = nodes != NO_NODE
            targets[rows[there], nodes[there]] = False
        return targets

    def touch(self) -> None:
        """Update what depends on the nodes, after a change of the field."""
        for name in (*_BY_TARGET, "grown"):
            vars(self).pop(name, None)

    # The changes that the only instance of a chunk makes as primary, each (spreads, nodes).

    @cached_property
    def changes(self) -> Floats:
        """The amount by which the instance raises each node's value."""
        field = self.field
        changes = self.amounts[:, :1] * field.coefficients
        if field.state.exclusive.any():
            own = self.spindle_amount[0] * field.coefficients[DISK]
            changes[DISK] = np.where(field.state.exclusive, own, changes[DISK])
        return changes

    @cached_property
    def grown(self) -> Floats:
        """The amount by which the sum of squares grows."""
        field = self.field
        grown: Floats = self.changes * (1.0 - 1.0 / field.number)
        grown += 2.0 * field.values
        grown *= self.changes
        return grown

    # The changes at fixed nodes, each (spreads, instances).

    def at(self, node: Indices, role: list[int], sign: float) -> Floats:
        """Return the change by the instance's arrival (1) at a node or departure (-1), in a role."""
        state = self.field.state
        change = np.zeros_like(self.amounts)
        amounts = self.amounts
        if state.exclusive.any():
            amounts = amounts.copy()
            amounts[DISK] = np.where(state.exclusive[node], self.spindle_amount, amounts[DISK])
        change[role] = sign * amounts[role] * self.field.coefficients[role][:, node]
        return change

    def spread(self, parts: list[tuple[Indices, Floats]], role: list[int]) -> Floats:
        """Return (instances, nodes): the sum of all spreads but the reserved memory's, with the target in its role."""
        constant, total, scale = self._fixed(parts)
        result = np.repeat(_rest(constant, role)[:, None], len(self.field.live), axis=1)
        field = self.field
        rows = _rows(self.amounts[role], total[role], scale[role], field.number)
        left, right = np.stack([constant[role], *rows], axis=2), field.factors[role]
        has_exclusive = bool(field.state.exclusive.any())
        for at, spread in enumerate(role):
            if spread == DISK and has_exclusive:
                product = self._disk_with_target(constant[DISK], total[DISK], scale[DISK, 0])
            else:
                product = left[at] @ right[at]
            np.maximum(product, 0.0, out=product)
            result += np.sqrt(product, out=product)
        return result

    def _fixed(self, parts: list[tuple[Indices, Floats]]) -> tuple[Floats, Floats, Floats]:
        """Return (weighted variances without the target, sums of the changes, scales), each (spreads, instances)."""
        field, number = self.field, self.field.number
        total = sum((change for _node, change in parts), np.zeros_like(self.amounts))
        squares = np.repeat(field.squares[:, None], len(self.which), axis=1)
        for node, change in parts:
            squares = squares + change * (2 * field.values[:, node] + change)
        scale = (SPREAD_WEIGHTS**2 / number)[:, None]
        return (squares - total**2 / number) * scale, total, scale

    def least_spread(self, parts: list[tuple[Indices, Floats]], role: list[int]) -> Floats:
        """Return (instances, nodes): a lower bound of `spread`; roots lie above their chords.

        Not for exclusive storage.
        """
        constant, total, scale = self._fixed(parts)
        least = _rest(constant, role)
        if not role:
            return np.asarray(least[:, None])
        field, constant = self.field, constant[role]
        rows = np.stack(_rows(self.amounts[role], total[role], scale[role], field.number), axis=1)
        ends = rows[:, :, None] * field.column_ends[role][..., None]
        low = np.maximum(constant + ends.min(axis=2).sum(axis=1), 0.0)
        high = np.maximum(constant + ends.max(axis=2).sum(axis=1), low)
        roots = np.sqrt(low) + np.sqrt(high)
        slope = np.where(roots > 0, 1.0 / np.where(roots > 0, roots, 1.0), 0.0)
        least += (np.sqrt(low) + slope * (constant - low)).sum(axis=0)
        rows *= slope[:, None]
        left = rows.reshape(-1, len(self.which)).T
        result: Floats = left @ field.columns[role].reshape(left.shape[1], -1)
        result += least[:, None]
        return result

    def _disk_with_target(self, constant: Floats, total: Floats, scale: float) -> Floats:
        """Return the variances where some nodes have exclusive storage, whose unit is a spindle."""
        field, exclusive = self.field, self.field.state.exclusive
        unit, value = field.coefficients[DISK], field.values[DISK]
        rows, columns = [constant], [np.ones(len(unit))]
        for one, mask in ((self.amounts[DISK], ~exclusive), (self.spindle_amount, exclusive)):
            rows += _rows(one, total, scale, field.number)
            columns += _columns(unit * mask, value)
        product: Floats = np.stack(rows, axis=1) @ np.stack(columns)
        return product

    def _fixed_reserved(self, parts: list[tuple[Indices, Floats]]) -> tuple[Floats, Floats, Floats]:
        """Return, by instance, the sum of squares without the target, what a change adds to it, and the sum of the changes."""
        field, number = self.field, self.field.number
        total = sum((one for _node, one in parts), np.zeros(len(self.which)))
        squares = np.full(len(self.which), field.squares[RESERVED])
        for node, one in parts:
            squares = squares + one * (2 * field.values[RESERVED, node] + one)
        return squares - total**2 / number, -2.0 / number * total, total

    def least_reserved(
        self,
        parts: list[tuple[Indices, Floats]],
        least: Floats,
        most: Floats,
        value: Floats | float,
    ) -> Floats:
        """Return (instances, nodes): a lower bound of `reserved_spread` for changes from `least` to `most`.

        The spread lies above its tangent for no change. `value` is the smallest share of the possible nodes.
        """
        constant, slope, total = self._fixed_reserved(parts)
        weight = float(SPREAD_WEIGHTS[RESERVED] / np.sqrt(self.field.number))
        root = np.sqrt(np.maximum(constant, 0.0))
        tangent = (2.0 * value + slope) / np.where(root > 0, 2.0 * root, np.inf)
        tilt = RESERVED_TOTAL_WEIGHT + weight * tangent
        fixed = weight * root + RESERVED_TOTAL_WEIGHT * total + np.minimum(tilt, 0.0) * most
        result = least * np.maximum(tilt, 0.0)[:, None]
        result += fixed[:, None]
        return np.asarray(result)

    def reserved_spread(
        self,
        parts: list[tuple[Indices, Floats]],
        change: Floats,
        value: Floats,
    ) -> Floats:
        """Return the reserved memory's part of the score, where `change` at one more node depends on the target.

        `value` is that node's present share, centred; `parts` are (node, change of its share).
        """
        number = self.field.number
        constant, slope, total = self._fixed_reserved(parts)
        result = change * (1.0 - 1.0 / number)
        result += 2.0 * value
        result += slope[:, None]
        result *= change
        result += constant[:, None]
        np.maximum(result, 0.0, out=result)
        np.sqrt(result, out=result)
        result *= SPREAD_WEIGHTS[RESERVED] / np.sqrt(number)
        result += RESERVED_TOTAL_WEIGHT * change
        result += RESERVED_TOTAL_WEIGHT * total[:, None]
        return result


def _rows(amount: Floats, total: Floats, scale: Floats | float, number: int) -> list[Floats]:
    return [
        scale * amount,
        -2.0 * scale / number * total * amount,
        scale * (1.0 - 1.0 / number) * amount**2,
    ]


def _rest(constant: Floats, role: list[int]) -> Floats:
    """Return, by instance, the sum of the spreads that no target changes, without the reserved memory's."""
    fixed = [one for one in range(SPREADS) if one not in role and one != RESERVED]
    return np.asarray(np.sqrt(np.maximum(constant[fixed], 0.0)).sum(axis=0))


def _columns(unit: Floats, value: Floats) -> list[Floats]:
    return [2.0 * unit * value, unit, unit**2]
