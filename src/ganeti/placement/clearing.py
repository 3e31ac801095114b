"""The instances that leave nodes before a reboot: those without a secondary node, or all.

They return afterwards, so soft limits are waived.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.placement import fit
from ganeti.placement.allocate import primary_causes
from ganeti.placement.description import Failure
from ganeti.placement.evacuate import Mode, evacuate
from ganeti.placement.explain import short_of
from ganeti.placement.fit import Demands, Room
from ganeti.placement.places import NO_NODE
from ganeti.placement.rolling import without_failover
from ganeti.placement.score import everywhere
from ganeti.placement.singles import added_scores, last_of_equals
from ganeti.placement.spread import Chunk, Field
from ganeti.placement.state import MIRROR_INTERNAL, State


class TemporaryNodes(NamedTuple):
    """The nodes of an instance, by index, while its own node is down; the secondary may be NO_NODE."""

    instance: int
    primary: int
    secondary: int


def cleared(state: State, nodes: Sequence[int], *, full: bool = False) -> list[TemporaryNodes]:
    """Move instances of `nodes` that cannot fail over (with `full` all instances); PrereqError if there is no room."""
    after = state.copy()
    after.offline[list(nodes)] = True
    leaving = set(nodes)
    moved = set()
    alone = np.flatnonzero(without_failover(state) & np.isin(state.primary, list(nodes)))
    for index in alone[np.argsort(-state.instances.memory[alone], kind="stable")]:
        _copy_elsewhere(after, int(index))
        moved.add(int(index))
    if full:
        mirrored = (state.instances.mirror == MIRROR_INTERNAL) & (state.secondary != NO_NODE)
        for index in map(int, np.flatnonzero(mirrored)):
            for mode, place in ((Mode.PRIMARY, after.primary), (Mode.SECONDARY, after.secondary)):
                if int(place[index]) in leaving:
                    _leave(after, index, mode)
                    moved.add(index)
    return [
        TemporaryNodes(index, int(after.primary[index]), int(after.secondary[index]))
        for index in sorted(moved)
    ]


def _copy_elsewhere(state: State, index: int) -> None:
    which, node = np.array([index]), int(state.primary[index])
    chunk = Chunk(Field(state, everywhere(state)), which, force=True)
    open_ = ~state.offline & (state.group == state.group[node])
    fits = fit.hard(Demands.of(state, which), Room.of(state)) & open_
    target = last_of_equals(np.where(fits[0], added_scores(chunk), np.inf))
    if target is None:
        causes = primary_causes(chunk, force=True)
        wanted = state.descriptions[index]
        shown = (
            f"{state.nodes[one].name}: {short_of(state, wanted, int(one), Failure(str(causes[one])))}"
            for one in np.flatnonzero(open_)
        )
        why = "; ".join(shown) or "all are offline or down at the same time"
        what = "Not enough capacity to move non-redundant instances"
        raise _no_room(what, state, index, f"no other node of its group has room ({why})")
    state.settle_at(index, target, NO_NODE)


def _leave(state: State, index: int, mode: Mode) -> None:
    for _index, why in evacuate(state, [index], mode, force=True).failed:
        raise _no_room(_WHAT_FAILED[mode], state, index, why)


_WHAT_FAILED = {
    Mode.PRIMARY: "Failed to migrate instances off nodes",
    Mode.SECONDARY: "Not enough capacity to move secondaries",
}
"""Upstream's words, which scripts match."""


def _no_room(what: str, state: State, index: int, why: str) -> PrereqError:
    return PrereqError(f"{what}: {state.names[index]}: {why}", ErrorCode.NO_RESOURCES)


def split_by_room(
    state: State, groups: Iterable[Sequence[int]], *, full: bool = False
) -> list[tuple[list[int], list[TemporaryNodes]]]:
    """Split the groups where their instances would not fit, each with its moves.

    PrereqError if one node alone fails.
    """
    found: list[tuple[list[int], list[TemporaryNodes]]] = []
    for group in groups:
        left = list(group)
        while left:
            size = next(
                (size for size in range(len(left), 1, -1) if _has_room(state, left[:size], full)), 1
            )
            found.append((left[:size], cleared(state, left[:size], full=full)))
            left = left[size:]
    return found


def _has_room(state: State, nodes: Sequence[int], full: bool) -> bool:  # noqa: FBT001 - one caller
    try:
        cleared(state, nodes, full=full)
    except PrereqError:
        return False
    return True
