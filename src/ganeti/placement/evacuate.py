"""Moves of instances off nodes: relocation, evacuation of nodes, change of the node group.

Each instance moves to the lowest score in its (new) group. Instances move in turn, so that later decisions include
earlier moves. Instances that cannot move are reported and do not block the others.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.model.disk_templates import Mirror
from ganeti.placement.allocate import (
    allocate,
    is_no_worse,
    primary_causes,
    secondary_causes,
)
from ganeti.placement.candidates import Options, every_move
from ganeti.placement.description import facts
from ganeti.placement.moves import Move, MoveKind, Step, apply, opcodes
from ganeti.placement.obstacles import Obstacles, without
from ganeti.placement.places import NO_NODE, TIE, Rules
from ganeti.placement.score import everywhere, group_scope
from ganeti.placement.singles import last_of_equals, pair_scores
from ganeti.placement.spread import Chunk, Field
from ganeti.placement.state import Bools, Floats, State

PAIR_TRIES = 50
"""The pairs of new nodes that are tried before the instance is reported not to fit."""


class Mode(StrEnum):
    """The nodes that instances leave (S173)."""

    PRIMARY = "primary-only"
    SECONDARY = "secondary-only"
    ALL = "all"


class Moved(NamedTuple):
    """An instance by index, and the steps that brought it where it is now."""

    instance: int
    steps: tuple[Step, ...]


@dataclass
class Evacuation:
    """The moved instances in order, and the others with the reason."""

    moved: list[Moved] = field(default_factory=list)
    failed: list[tuple[int, str]] = field(default_factory=list)

    def jobs(self, state: State) -> list[list[dict[str, object]]]:
        """Return a job for each instance that moved."""
        return [
            [opcode for step in one.steps for opcode in opcodes(state, step.move)]
            for one in self.moved
        ]


def evacuate(state: State, which: Sequence[int], mode: Mode, *, force: bool = False) -> Evacuation:
    """Move instances off the nodes that `mode` names, within their groups; this changes `state`."""
    left = _nodes_to_leave(state, which, mode)
    result = Evacuation()
    for index in which:
        group = int(state.group[state.primary[index]])
        open_ = (state.group == group) & ~state.offline & ~left
        _record(result, index, partial(_leave, state, index, mode, group, open_, force=force))
    return result


def _record(result: Evacuation, index: int, leave: Callable[[], list[Step]]) -> None:
    try:
        steps = leave()
    except PrereqError as err:
        result.failed.append((index, err.message))
    else:
        result.moved.append(Moved(index, tuple(steps)))


def _nodes_to_leave(state: State, which: Iterable[int], mode: Mode) -> Bools:
    left = np.zeros(len(state.nodes), dtype=bool)
    for index in which:
        if mode is not Mode.SECONDARY:
            left[state.primary[index]] = True
        if mode is not Mode.PRIMARY and state.secondary[index] != NO_NODE:
            left[state.secondary[index]] = True
    return left


def change_group(
    state: State, which: Sequence[int], targets: Iterable[int], rules: Rules | None = None
) -> Evacuation:
    """Move instances to the best of the target groups (default: any other group); this changes `state`."""
    sources = {int(state.group[state.primary[index]]) for index in which}
    groups = (set(targets) or set(range(len(state.groups)))) - sources
    result = Evacuation()
    rules = msgspec.structs.replace(rules or Rules(), groups=groups)

    def leave(index: int) -> list[Step]:
        wanted = state.descriptions[index]
        if not groups:
            raise _cannot("the cluster has no other node group")
        place, _places = allocate(state, wanted, rules)
        open_ = (state.group == place.group) & ~state.offline
        for nodes in (open_, np.isin(np.arange(len(open_)), place.nodes)):
            trial = state.copy()
            steps = _leave(
                trial, index, Mode.ALL, place.group, nodes, force=rules.ignore_soft_errors
            )
            if is_no_worse(trial, place.group, rules):
                for step in steps:
                    apply(state, step.move)
                return steps
        raise _cannot("the group would not survive the loss of a node")

    for index in which:
        _record(result, index, partial(leave, index))
    return result


def relocate(state: State, index: int, leave: Sequence[int], *, force: bool = False) -> Step:
    """Replace the node that an instance leaves: its secondary if it is mirrored, else its primary (S172)."""
    mirror = facts(state.descriptions[index].template).mirror
    if mirror is Mirror.NONE:
        raise _cannot("Can't relocate non-mirrored instances")
    is_mirrored = mirror is Mirror.INTERNAL
    node = int(state.secondary[index] if is_mirrored else state.primary[index])
    if list(leave) != [node]:
        role = "secondary" if is_mirrored else "primary"
        raise _cannot(
            f"Unsupported request: only the instance's {role} node ({_name(state, node)}) can be replaced"
        )
    mode = Mode.SECONDARY if is_mirrored else Mode.PRIMARY
    group = int(state.group[state.primary[index]])
    open_ = (state.group == group) & ~state.offline
    open_[node] = False
    [step] = _leave(state, index, mode, group, open_, force=force)
    return step


def _cannot(message: str) -> PrereqError:
    return PrereqError(message, ErrorCode.NO_RESOURCES)


def _name(state: State, node: int) -> str:
    return state.nodes[node].name if node != NO_NODE else "-"


def _leave(
    state: State, index: int, mode: Mode, group: int, open_: Bools, *, force: bool
) -> list[Step]:
    """Move one instance to open nodes of `group`; return the steps, PrereqError if that is impossible."""
    template = state.descriptions[index].template
    mirror = facts(template).mirror
    if mirror is Mirror.NONE:
        raise _cannot(f"Instances of type {template} cannot be relocated")
    if mirror is Mirror.EXTERNAL:
        if mode is Mode.SECONDARY:
            raise _cannot(
                f"Instances with disk template '{template}' can't execute change secondary"
            )
        return [_one_node(state, index, MoveKind.FAILOVER_TO_ANY, group, open_, force=force)]
    if mode is Mode.PRIMARY:
        return [_fail_over(state, index, force=force)]
    if mode is Mode.SECONDARY:
        return [_one_node(state, index, MoveKind.REPLACE_SECONDARY, group, open_, force=force)]
    return _both_nodes(state, index, group, open_, force=force)


def _scores(state: State, index: int, kind: MoveKind, scope: Bools, *, force: bool) -> Floats:
    """Return, by node, the score after one kind of move of one instance."""
    disks = kind is MoveKind.REPLACE_SECONDARY
    options = Options(disk_moves=disks, instance_moves=not disks, ignore_soft_errors=force)
    for _which, kinds in every_move(Field(state, scope), np.array([index]), options):
        for one in kinds:
            if one.kind is kind:
                return np.asarray(one.scores[0])
    return np.full(len(state.nodes), np.inf)


def _fail_over(state: State, index: int, *, force: bool) -> Step:
    scores = _scores(state, index, MoveKind.FAILOVER, everywhere(state), force=force)
    if not np.isfinite(scores[0]):
        other = int(state.secondary[index])
        force = force or bool(state.offline[state.primary[index]])
        why = Obstacles(state, index, force=force).to_failover()
        raise _cannot(f"It cannot fail over to {_name(state, other)}: {why}")
    return apply(state, Move(index, MoveKind.FAILOVER, NO_NODE, float(scores[0])))


def _one_node(
    state: State, index: int, kind: MoveKind, group: int, open_: Bools, *, force: bool
) -> Step:
    scope = group_scope(state, group) | (state.group == state.group[state.primary[index]])
    scores = np.where(open_, _scores(state, index, kind, scope, force=force), np.inf)
    target = last_of_equals(scores)
    if target is None:
        is_secondary = kind is MoveKind.REPLACE_SECONDARY
        left = int(state.secondary[index] if is_secondary else state.primary[index])
        found = Obstacles(state, index, force=force or bool(state.offline[left]))
        why = found.to_new_secondary(open_) if is_secondary else found.to_new_primary(open_)
        raise _cannot(f"Can't find any good node: {why}")
    return apply(state, Move(index, kind, target, float(scores[target])))


def _both_nodes(state: State, index: int, group: int, open_: Bools, *, force: bool) -> list[Step]:
    """Return the steps to the best pair of nodes.

    Soft limits are waived if the instance cannot leave an offline node otherwise.
    """
    waive = force or bool(state.offline[state.primary[index]])
    for waived in dict.fromkeys((force, waive)):
        steps = _to_pair(state, index, group, open_, force=waived)
        if steps is not None:
            return steps
    why = Obstacles(state, index, force=waive).to_new_pair(open_)
    raise _cannot(f"Can't find any good nodes for relocation: {why}")


def _to_pair(
    state: State, index: int, group: int, open_: Bools, *, force: bool
) -> list[Step] | None:
    """Replace the secondary by the new primary, fail over, replace the secondary again; None if no pair is possible."""
    alone = without(state, index)
    field = Field(alone, group_scope(alone, group))
    chunk = Chunk(field, np.array([index]), force=force)
    fits = (primary_causes(chunk, force=force) == "") & open_
    possible = fits[:, None] & open_[None, :] & (secondary_causes(chunk, force=force) == 0)
    np.fill_diagonal(possible, val=False)
    scores = np.where(possible, pair_scores(chunk), np.inf)
    for _ in range(PAIR_TRIES):
        best = scores.min(initial=np.inf)
        if not np.isfinite(best):
            break
        pair = divmod(int(np.flatnonzero(scores.ravel() <= best + TIE)[-1]), scores.shape[1])
        trial = state.copy()
        steps = _walk(trial, index, pair, force=force)
        if steps is not None:
            for step in steps:
                apply(state, step.move)
            return steps
        scores[pair] = np.inf
    return None


def _walk(state: State, index: int, pair: tuple[int, int], *, force: bool) -> list[Step] | None:
    """Return the steps to a pair of nodes, each possible in its turn; None if a step is impossible."""
    kinds = [
        (MoveKind.REPLACE_SECONDARY, pair[0]),
        (MoveKind.FAILOVER, NO_NODE),
        (MoveKind.REPLACE_SECONDARY, pair[1]),
    ]
    if state.offline[state.primary[index]] and not state.offline[state.secondary[index]]:
        kinds.insert(0, (MoveKind.FAILOVER, NO_NODE))
    steps = []
    for kind, target in kinds:
        scores = _scores(state, index, kind, everywhere(state), force=force)
        value = float(scores[0 if target == NO_NODE else target])
        if not np.isfinite(value):
            return None
        steps.append(apply(state, Move(index, kind, target, value)))
    return steps
