"""Every move of every instance at once: the possible moves, and the best of them.

The checks cover each step of the job: a node that holds the instance only in between must satisfy the limits, too.
An instance that leaves an offline node is exempt from soft limits.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np

from ganeti.placement.moves import Move, MoveKind
from ganeti.placement.places import NO_NODE, SLACK
from ganeti.placement.spread import AS_PRIMARY, AS_SECONDARY, Chunk, Field
from ganeti.placement.state import MIRROR_EXTERNAL, MIRROR_INTERNAL, Bools, Floats, Indices, State
from ganeti.placement.weights import (
    CONFLICT_WEIGHT,
    FAILING_WEIGHT,
    OFFLINE_PRIMARY_WEIGHT,
    OFFLINE_WEIGHT,
    RESERVED,
)

FEW = 64
"""So many instances limit the search for the best move."""
CHUNK = 65536
"""Candidates that are computed together: their arrays stay in the processor's cache."""


class Options(msgspec.Struct, frozen=True):
    """The allowed moves; the defaults are those of `hbal`."""

    disk_moves: bool = True
    instance_moves: bool = True
    restricted_migration: bool = False
    ignore_soft_errors: bool = False
    is_loss: bool = False
    """The present primary nodes are lost: no instance migrates, so migration tags do not bind."""


class Scores(NamedTuple):
    """One kind of move: (instances, nodes) scores, infinite where it is not possible."""

    kind: MoveKind
    scores: Floats


class _Moves:
    """The common part of the moves of a chunk; `p` and `s` are the present nodes."""

    def __init__(self, chunk: Chunk, *, is_loss: bool = False) -> None:
        self.chunk, self.field = chunk, chunk.field
        state = self.state = chunk.field.state
        self.forbidden = None if is_loss else state.tags.forbidden
        these, which = state.instances, chunk.which
        self.p = chunk.primary
        self.s = np.where(chunk.secondary == NO_NODE, chunk.primary, chunk.secondary)
        self.memory = these.memory[which] * these.uses_memory[which]
        self.all_memory = these.memory[which]
        self.p_free = state.free[self.p] + self.memory
        self.p_free_if_all = state.free_if_all[self.p] + self.all_memory
        self.p_fails = self.p_free <= state.reserved[self.p]
        self.waive_p = state.offline[self.p] | chunk.force
        # Nodes that fail N+1 are targets only if a node fails already or soft limits are waived.
        self.is_risky = self.field.is_risky or chunk.force

    def _may_migrate(self, source: Indices, target: Indices | None = None) -> Bools | bool:
        """Return whether migration tags allow the move.

        Instances of an offline source fail over, so tags do not bind.
        """
        if self.forbidden is None:
            return True
        lost = self.state.lost[source]
        if target is None:
            return np.asarray(~self.forbidden[source] | lost[:, None])
        return np.asarray(~self.forbidden[source, target] | lost)

    def _failing(self, node: Indices, fails: Bools, count: float) -> Floats:
        """Return a fixed node's change to the count of instances on nodes that fail N+1.

        `fails` may be two-dimensional.
        """
        state = self.state
        both = state.primaries + state.secondaries
        live = self.field.online[node]
        now = np.where(state.fails[node], both[node], 0.0)
        then = both[node] + count
        if fails.ndim > 1:
            changed: Floats = live[:, None] * (fails * then[:, None] - now[:, None])
            return FAILING_WEIGHT * changed
        return np.asarray(FAILING_WEIGHT * live * (fails * then - now))[:, None]

    def _target_failing(self, fails: Bools) -> Floats:
        state = self.state
        both = state.primaries + state.secondaries
        return np.asarray(FAILING_WEIGHT * (fails * (both + 1) - state.fails * both))

    def _offline(self, *, all_p: float, all_s: float, primary: float) -> Floats:
        """Return the change by instances on offline nodes: `all_p` at the old primary node, and so on."""
        gone = (self.field.scope & self.state.offline).astype(float)
        change = OFFLINE_WEIGHT * (all_p * gone[self.p] + all_s * gone[self.s])
        return np.asarray(change + OFFLINE_PRIMARY_WEIGHT * primary * gone[self.p])[:, None]

    def _tags(self, new_primary: Indices | None, new_secondary: Indices | None) -> Floats | float:
        """Return the change by tags; None stands for the target, a column each."""
        return tag_change(self.chunk, new_primary, new_secondary)

    def _total(self, *parts: Floats | float) -> Floats:
        total = parts[0] + self.field.fixed
        for part in parts[1:]:
            total += part
        return np.asarray(total)

    def _primary_target(self, waive: Bools) -> tuple[Bools, Bools]:
        """Return (whether it fails N+1, whether it fits) at each target that becomes primary."""
        state, chunk = self.state, self.chunk
        soft = chunk.soft_primary | waive[:, None] if waive.any() else chunk.soft_primary
        fails = state.free - self.memory[:, None] <= state.reserved if self.is_risky else soft
        return fails, soft & chunk.hard_primary & chunk.targets


_ROLES = {
    MoveKind.FAILOVER: [],
    MoveKind.REPLACE_SECONDARY: AS_SECONDARY,
    MoveKind.REPLACE_AND_FAILOVER: AS_PRIMARY,
    MoveKind.REPLACE_PRIMARY: AS_PRIMARY,
    MoveKind.FAILOVER_AND_REPLACE: AS_SECONDARY,
}
"""What the target becomes."""


class _Mirrored(_Moves):
    """The moves of a chunk of mirrored instances."""

    def __init__(self, chunk: Chunk, *, is_loss: bool = False) -> None:
        super().__init__(chunk, is_loss=is_loss)
        field, state = self.field, self.state
        self.reserve = chunk.reserve
        self.p_gone = chunk.at(self.p, AS_PRIMARY, -1.0)
        self.s_gone = chunk.at(self.s, AS_SECONDARY, -1.0)
        self.left = field.reserved_without(self.s, self.p, self.reserve)
        self.left_change = (self.left - state.reserved[self.s]) * field.coefficients[
            RESERVED, self.s
        ]
        self.s_fails = state.free[self.s] <= self.left
        self.waive_s = state.offline[self.s] | chunk.force

    # The capacity of fixed nodes, (instances,) each.

    @cached_property
    def s_hosts(self) -> Bools:
        """The secondary can run the instance."""
        state, s = self.state, self.s
        free = state.free[s] - self.memory
        soft = (free > self.left) | self.s_fails
        soft &= state.free_disk[s] >= state.low_disk[s]
        soft &= (state.used_spindles[s] <= state.most_spindles[s]) | state.exclusive[s]
        soft &= self.chunk.demands.vcpus[:, 0] <= self.field.room.vcpus[s]
        soft &= self.all_memory < state.free_if_all[s]
        if self.chunk.clashes is not None:
            soft &= self.chunk.clashes[np.arange(len(s)), s] == 0
        hosts: Bools = (free > 0) & (state.free_disk[s] > 0) & (soft | self.waive_p)
        return hosts & self._spindles_left(s)

    def _spindles_left(self, node: Indices) -> Bools:
        state = self.state
        left: Bools = ~state.exclusive[node] | (state.free_spindles[node] >= 0)
        return left

    def _keeps_disk(self, node: Indices, waive: Bools, free: Floats, free_if_all: Floats) -> Bools:
        """A node that keeps its copy of the disks respects its disk limit and has memory to take over."""
        state = self.state
        soft = state.free_disk[node] >= state.low_disk[node]
        soft &= (state.used_spindles[node] <= state.most_spindles[node]) | state.exclusive[node]
        soft &= (self.reserve < free) & (self.reserve < free_if_all)
        keeps: Bools = (state.free_disk[node] > 0) & (soft | waive)
        return keeps & self._spindles_left(node)

    # The kinds of moves.

    @cached_property
    def parts(self) -> dict[MoveKind, list[tuple[Indices, Floats]]]:
        """The changes at the present nodes, each (node, change of its values)."""
        p_secondary = self.p_gone + self.chunk.at(self.p, AS_SECONDARY, 1.0)
        s_primary = self.s_gone + self.chunk.at(self.s, AS_PRIMARY, 1.0)
        return {
            MoveKind.FAILOVER: [(self.p, p_secondary), (self.s, s_primary)],
            MoveKind.REPLACE_SECONDARY: [(self.s, self.s_gone)],
            MoveKind.REPLACE_AND_FAILOVER: [(self.s, self.s_gone), (self.p, p_secondary)],
            MoveKind.REPLACE_PRIMARY: [(self.p, self.p_gone)],
            MoveKind.FAILOVER_AND_REPLACE: [(self.p, self.p_gone), (self.s, s_primary)],
        }

    def _spread(self, kind: MoveKind) -> Floats:
        return self.chunk.spread(self.parts[kind], _ROLES[kind])

    def bounds(self) -> Floats:
        """Return, by instance, a lower bound of the scores of all its moves.

        It holds if neither N+1 violations, nor instances on closed nodes, nor tags of instances are in the score.
        """
        chunk, field, state = self.chunk, self.field, self.state
        unit, value = field.coefficients[RESERVED], field.values[RESERVED]
        left = [(self.s, self.left_change)]
        reserved = state.reserved[self.s]
        most_p, most_s = self.reserve * unit[self.p], self.reserve * unit[self.s]
        least_p = np.maximum(0.0, self.reserve - state.reserved[self.p]) * unit[self.p]
        least_s = (np.maximum(self.reserve, self.left) - reserved) * unit[self.s]
        least_target = np.maximum(0.0, self.reserve[:, None] - state.reserved)
        least_target *= unit
        at_target = chunk.least_reserved(
            left, least_target, self.reserve * unit.max(), float(value.min())
        )
        at_p = chunk.least_reserved(left, least_p[:, None], most_p, value[self.p])
        at_s = chunk.least_reserved([], least_s[:, None], most_s, value[self.s])
        lowest = (chunk.least_spread(self.parts[MoveKind.FAILOVER], []) + at_p)[:, 0]
        for kind, least in (
            (MoveKind.REPLACE_SECONDARY, at_target),
            (MoveKind.REPLACE_AND_FAILOVER, at_p),
            (MoveKind.REPLACE_PRIMARY, at_s),
            (MoveKind.FAILOVER_AND_REPLACE, at_target),
        ):
            scores = chunk.least_spread(self.parts[kind], _ROLES[kind])
            scores += least
            scores[~chunk.targets] = np.inf
            np.minimum(lowest, scores.min(axis=1), out=lowest)
        return np.asarray(lowest + field.fixed)

    def failover(self) -> Floats:
        """(instances, 1)."""
        field, state = self.field, self.state
        reserved = np.maximum(state.reserved[self.p], state.peers[self.p, self.s] + self.reserve)
        change = (reserved - state.reserved[self.p]) * field.coefficients[RESERVED, self.p]
        fails = self.p_free <= reserved
        disk = (state.free_disk[self.p] > 0) | state.offline[self.p]
        keeps = self._keeps_disk(self.p, self.waive_p, self.p_free, self.p_free_if_all) | (
            disk & self.waive_p
        )
        valid = self.s_hosts & keeps & (~fails | self.p_fails | self.waive_p)
        valid &= field.live[self.s] & self._may_migrate(self.p, self.s)
        result = self._total(
            self._spread(MoveKind.FAILOVER)[:, :1],
            self.chunk.reserved_spread(
                [(self.s, self.left_change)],
                change[:, None],
                field.values[RESERVED, self.p][:, None],
            ),
            self._failing(self.p, fails, 0),
            self._failing(self.s, state.free[self.s] - self.memory <= self.left, 0),
            self._offline(all_p=0, all_s=0, primary=-1),
            self._tags(self.s, self.p),
        )
        return np.where(valid[:, None], result, np.inf)

    def _secondary_target(self, partner: Indices, waive: Bools) -> tuple[Floats, Bools, Bools]:
        """Return (reserved afterwards, whether it fails N+1, whether it fits) at each target that becomes secondary."""
        field, state = self.field, self.state
        reserved = field.peers_by_primary[partner] + self.reserve[:, None]
        np.maximum(reserved, state.reserved, out=reserved)
        fails = state.free <= reserved
        soft = self.chunk.soft_disk & (self.reserve[:, None] < state.free)
        soft &= self.reserve[:, None] < state.free_if_all
        soft &= ~fails | state.fails
        if waive.any():
            soft |= waive[:, None]
        return reserved, fails, soft & self.chunk.hard_disk & self.chunk.targets

    def _target_reserved(self, reserved: Floats) -> Floats:
        reserved -= self.state.reserved
        reserved *= self.field.coefficients[RESERVED]
        return reserved

    def replace_secondary(self) -> Floats:
        """r: the target becomes secondary."""
        field, state = self.field, self.state
        reserved, fails, valid = self._secondary_target(self.p, self.waive_s)
        valid &= ((state.free[self.p] > 0) & (state.free_disk[self.p] > 0))[:, None]
        result = self._total(
            self._spread(MoveKind.REPLACE_SECONDARY),
            self.chunk.reserved_spread(
                [(self.s, self.left_change)],
                self._target_reserved(reserved),
                field.values[RESERVED],
            ),
            self._failing(self.p, state.free[self.p] <= state.reserved[self.p], 0),
            self._failing(self.s, self.s_fails, -1),
            self._target_failing(fails) if self.is_risky else 0.0,
            self._offline(all_p=0, all_s=-1, primary=0),
            self._tags(self.p, None),
        )
        return np.where(valid, result, np.inf)

    def _takes_peer(self, node: Indices, base: Floats) -> tuple[Floats, Floats]:
        """Return (reserved, its change as a share) of a fixed secondary, as each target becomes the primary."""
        field, state = self.field, self.state
        reserved = state.peers[node] + self.reserve[:, None]
        np.maximum(reserved, base[:, None], out=reserved)
        change = reserved - state.reserved[node][:, None]
        change *= field.coefficients[RESERVED, node][:, None]
        return reserved, change

    def replace_and_failover(self) -> Floats:
        """R f: the target becomes primary, the primary secondary."""
        field, state = self.field, self.state
        target_fails, valid = self._primary_target(np.full(len(self.p), self.chunk.force))
        reserved, change = self._takes_peer(self.p, state.reserved[self.p])
        fails = self.p_free[:, None] <= reserved
        keeps = self._keeps_disk(self.p, self.waive_s, self.p_free, self.p_free_if_all)
        valid &= keeps[:, None] & (~fails | (self.p_fails | self.waive_s)[:, None])
        valid &= self._may_migrate(self.p)
        result = self._total(
            self._spread(MoveKind.REPLACE_AND_FAILOVER),
            self.chunk.reserved_spread(
                [(self.s, self.left_change)], change, field.values[RESERVED, self.p][:, None]
            ),
            self._failing(self.p, fails if self.is_risky else self.p_fails, 0),
            self._failing(self.s, self.s_fails, -1),
            self._target_failing(target_fails) if self.is_risky else 0.0,
            self._offline(all_p=0, all_s=-1, primary=-1),
            self._tags(None, self.p),
        )
        return np.where(valid, result, np.inf)

    def replace_primary(self) -> Floats:
        """F r f: the target becomes primary, by way of the secondary, which stays."""
        field, state = self.field, self.state
        target_fails, valid = self._primary_target(self.waive_p)
        reserved, change = self._takes_peer(self.s, self.left)
        fails = state.free[self.s][:, None] <= reserved
        keeps = self._keeps_disk(
            self.s, self.waive_p, state.free[self.s], state.free_if_all[self.s]
        )
        valid &= (self.s_hosts & keeps)[:, None]
        valid &= ~fails | (self.s_fails | self.waive_p)[:, None]
        hop = self._may_migrate(self.p, self.s)
        valid &= hop if isinstance(hop, bool) else hop[:, None]
        valid &= self._may_migrate(self.s)
        result = self._total(
            self._spread(MoveKind.REPLACE_PRIMARY),
            self.chunk.reserved_spread([], change, field.values[RESERVED, self.s][:, None]),
            self._failing(self.p, self.p_fails, -1),
            self._failing(self.s, fails if self.is_risky else self.s_fails, 0),
            self._target_failing(target_fails) if self.is_risky else 0.0,
            self._offline(all_p=-1, all_s=0, primary=-1),
            self._tags(None, self.s),
        )
        return np.where(valid, result, np.inf)

    def failover_and_replace(self) -> Floats:
        """F r: the secondary becomes primary, the target secondary."""
        field, state = self.field, self.state
        reserved, fails, valid = self._secondary_target(self.s, self.waive_p)
        hop = self._may_migrate(self.p, self.s)
        valid &= (self.s_hosts & hop)[:, None]
        result = self._total(
            self._spread(MoveKind.FAILOVER_AND_REPLACE),
            self.chunk.reserved_spread(
                [(self.s, self.left_change)],
                self._target_reserved(reserved),
                field.values[RESERVED],
            ),
            self._failing(self.p, self.p_fails, -1),
            self._failing(self.s, state.free[self.s] - self.memory <= self.left, 0),
            self._target_failing(fails) if self.is_risky else 0.0,
            self._offline(all_p=-1, all_s=0, primary=-1),
            self._tags(self.s, None),
        )
        return np.where(valid, result, np.inf)

    def all_kinds(self, options: Options) -> Iterator[Scores]:
        """Yield the allowed kinds; of moves with equal scores, the first kind wins."""
        state = self.state
        can_fail_over = (self.field.live[self.s] & options.instance_moves)[:, None]
        if options.instance_moves:
            yield Scores(MoveKind.FAILOVER, np.where(can_fail_over, self.failover(), np.inf))
        if not options.disk_moves:
            return
        yield Scores(MoveKind.REPLACE_SECONDARY, self.replace_secondary())
        if not options.instance_moves:
            return
        drained = state.offline[self.p][:, None]
        free_to_move = drained | (not options.restricted_migration)
        yield Scores(
            MoveKind.REPLACE_AND_FAILOVER,
            np.where(free_to_move, self.replace_and_failover(), np.inf),
        )
        if not options.restricted_migration:
            yield Scores(
                MoveKind.REPLACE_PRIMARY, np.where(can_fail_over, self.replace_primary(), np.inf)
            )
        yield Scores(
            MoveKind.FAILOVER_AND_REPLACE,
            np.where(can_fail_over & free_to_move, self.failover_and_replace(), np.inf),
        )


class _Shared(_Moves):
    """The moves of a chunk of instances that can start on any node."""

    def failover_to_any(self) -> Floats:
        """fa: the target becomes primary."""
        fails, valid = self._primary_target(self.waive_p)
        valid &= self._may_migrate(self.p)
        result = self._total(
            self.chunk.spread([(self.p, self.chunk.at(self.p, AS_PRIMARY, -1.0))], AS_PRIMARY),
            self.field.reserved_now,
            self._failing(self.p, self.p_fails, -1),
            self._target_failing(fails) if self.is_risky else 0.0,
            self._offline(all_p=-1, all_s=0, primary=-1),
            self._tags(None, np.full(len(self.p), NO_NODE)),
        )
        return np.where(valid, result, np.inf)


def tag_change(
    chunk: Chunk, new_primary: Indices | None, new_secondary: Indices | None
) -> Floats | float:
    """Return the change of the score by tags; None stands for the target, a column each; NO_NODE is no secondary."""
    field, rules = chunk.field, chunk.field.state.tags
    rows = np.arange(len(chunk.which))
    change: Floats | float = 0.0
    is_same = new_primary is chunk.primary
    if chunk.clashes is not None and not is_same:
        gained = chunk.clashes * field.online
        if new_primary is not None:
            gained = gained[rows, new_primary][:, None]
        change = CONFLICT_WEIGHT * (gained - (chunk.relief * field.online[chunk.primary])[:, None])
    if rules.has_locations or rules.desires.any():
        change = change + _location_change(chunk, new_primary, new_secondary)
    return change


def _location_change(
    chunk: Chunk, new_primary: Indices | None, new_secondary: Indices | None
) -> Floats:
    field, rules = chunk.field, chunk.field.state.tags
    rows = np.arange(len(chunk.which))
    shared, unmet = rules.shared_places(), rules.unmet(chunk.which)
    online, old = field.online, chunk.primary

    def together(first: Indices | None, second: Indices | None) -> Floats:
        if second is not None and (second == NO_NODE).all():
            return np.zeros((1, 1))
        if first is None:
            return shared[:, second].T if second is not None else shared
        return shared[first] if second is None else shared[first, second][:, None]

    before = online[old] * (together(old, chunk.secondary)[:, 0] + unmet[rows, old])
    desired = unmet if new_primary is None else unmet[rows, new_primary][:, None]
    seen = online[None, :] if new_primary is None else online[new_primary][:, None]
    after = seen * (together(new_primary, new_secondary) + desired)
    change = after - before[:, None]
    if new_primary is not old:
        domain = rules.same_domain_change(chunk.which, old, online)
        change = change + (domain if new_primary is None else domain[rows, new_primary][:, None])
    return np.asarray(change)


def every_move(
    field: Field, which: Indices, options: Options, *, worthwhile: Bools | None = None
) -> Iterator[tuple[Indices, list[Scores]]]:
    """Yield (instances, scores by kind) in portions, without instances that cannot move at all.

    `worthwhile` says, by instance, whether its moves are wanted; by default all are.
    """
    mirror = field.state.instances.mirror[which]
    for kind in (MIRROR_INTERNAL, MIRROR_EXTERNAL):
        for part in _portions(field, which[mirror == kind]):
            wanted = part if worthwhile is None else part[worthwhile[part]]
            if not len(wanted):
                continue
            chunk = Chunk(field, wanted, force=options.ignore_soft_errors)
            if kind == MIRROR_INTERNAL:
                moves = _Mirrored(chunk, is_loss=options.is_loss)
                yield wanted, list(moves.all_kinds(options))
            elif options.instance_moves:
                scores = _Shared(chunk, is_loss=options.is_loss).failover_to_any()
                yield wanted, [Scores(MoveKind.FAILOVER_TO_ANY, scores)]


def _portions(field: Field, which: Indices) -> Iterator[Indices]:
    size = max(1, CHUNK // max(1, len(field.live)))
    for start in range(0, len(which), size):
        yield which[start : start + size]


def best_move(state: State, scope: Bools, which: Indices, options: Options) -> Move | None:
    """Return the move with the lowest score of all moves of these instances; None if none is possible."""
    field = Field(state, scope)
    worthwhile = np.ones(len(state.instances), dtype=bool)
    mirrored = which[state.instances.mirror[which] == MIRROR_INTERNAL]
    if len(mirrored) * len(field.live) > CHUNK and can_bound(field):
        bounds = np.concatenate(
            [_Mirrored(Chunk(field, part)).bounds() for part in _portions(field, mirrored)]
        )
        few = mirrored[np.argsort(bounds, kind="stable")[:FEW]]
        found = _best(every_move(field, few, options))
        if found is not None:
            worthwhile[mirrored] = bounds <= found.score + SLACK
    return _best(every_move(field, which, options, worthwhile=worthwhile))


def can_bound(field: Field) -> bool:
    """Return whether `_Mirrored.bounds` holds."""
    state, rules = field.state, field.state.tags
    has_rules = rules.has_exclusion or rules.has_locations or bool(rules.desires.any())
    return not (field.is_risky or has_rules or state.exclusive.any())


def _best(moves: Iterable[tuple[Indices, list[Scores]]]) -> Move | None:
    """Return the first move with the lowest score."""
    best: Move | None = None
    for instances, kinds in moves:
        found = _best_of(instances, kinds)
        if found is not None and (best is None or found.score < best.score):
            best = found
    return best


def _best_of(which: Indices, kinds: list[Scores]) -> Move | None:
    best: Move | None = None
    for kind, scores in kinds:
        row, column = divmod(int(scores.argmin()), scores.shape[1])
        value = float(scores[row, column])
        if np.isfinite(value) and (best is None or value < best.score):
            target = NO_NODE if kind is MoveKind.FAILOVER else column
            best = Move(int(which[row]), kind, target, value)
    return best
