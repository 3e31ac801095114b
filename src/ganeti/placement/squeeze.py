"""The nodes that can be switched off, or must be switched on, to keep the requested room.

For this, only instances that any node can run (on shared storage, or without disks) move. The room is a multiple of the
policy's standard instance, without disks, that every node could take in addition.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from ganeti.placement import fit
from ganeti.placement.balance import Goals, balance
from ganeti.placement.description import Instance, Policy
from ganeti.placement.fit import Demands, Room
from ganeti.placement.moves import Step
from ganeti.placement.score import group_scope
from ganeti.placement.state import State

STANDBY = "htools:standby"
"""The prefix of a tag on an offline node that may be switched on."""
STANDBY_AUTO = "htools:standby:auto"
"""The tag of nodes that were switched off because they were not needed."""

_GOALS = Goals(min_score=-math.inf, min_gain=1e-9, min_gain_limit=math.inf)
"""Balance until no move gains more than rounding errors."""


class Action(StrEnum):
    """The action of a plan; upstream's words."""

    NONE = "No action"
    ONLINE = "Nodes to online"
    OFFLINE = "Nodes to offline"


class Plan(NamedTuple):
    """A plan: nodes by index, the moves that belong to it, and the state afterwards."""

    action: Action
    nodes: tuple[int, ...]
    steps: tuple[Step, ...]
    after: State
    suffices: bool = True
    """False if all standby nodes together give too little room."""


def room_for(policy: Policy, factor: float) -> Instance:
    """Return an instance without disks, `factor` times the standard one, rounded down."""
    std = policy["std"]
    return Instance(
        "room",
        memory=math.floor(factor * std["memory-size"]),
        disk=0,
        vcpus=math.floor(factor * std["cpu-count"]),
        template="ext",
        spindle_use=math.floor(factor * std.get("spindle-use", 1)),
    )


def idle_candidates(state: State) -> list[int]:
    """Return the nodes that can be switched off: online, not the master, all instances movable to any node.

    The nodes with the most instances are first.
    """
    local = np.bincount(state.primary, weights=state.instances.is_local, minlength=len(state.nodes))
    nodes = [
        number
        for number, node in enumerate(state.nodes)
        if not (state.offline[number] or node.is_master)
        and not (state.secondaries[number] or local[number])
    ]
    return sorted(nodes, key=lambda number: -state.primaries[number])


def standby_nodes(state: State) -> list[int]:
    """Return the offline nodes that may be switched on."""
    return [
        number
        for number, node in enumerate(state.nodes)
        if state.offline[number] and any(tag.startswith(STANDBY) for tag in node.tags)
    ]


def plan(state: State, least: Instance, wanted: Instance) -> Plan:
    """Switch nodes on if one has no room for `least`; else off while all keep room for `wanted`."""
    if not _have_room(state, least):
        return _expanded(state, least)
    leaving: list[int] = []
    for node in reversed(idle_candidates(state)):
        if _suffices(_switched(state, [node, *leaving], offline=True)[0], wanted):
            leaving.insert(0, node)
    if not leaving:
        return Plan(Action.NONE, (), (), state)
    after, steps = _switched(state, leaving, offline=True)
    return Plan(Action.OFFLINE, tuple(leaving), steps, after)


def _expanded(state: State, least: Instance) -> Plan:
    """Return the fewest standby nodes, in their order, that give room; all if that is too little."""
    standby = standby_nodes(state)
    for number in range(len(standby) + 1):
        after, steps = _switched(state, standby[:number], offline=False)
        if _suffices(after, least):
            return Plan(Action.ONLINE, tuple(standby[:number]), steps, after)
    return Plan(Action.ONLINE, tuple(standby), steps, after, suffices=False)


def _switched(
    state: State, nodes: Sequence[int], *, offline: bool
) -> tuple[State, tuple[Step, ...]]:
    """Return the balanced state with these nodes switched, and the moves that balance it, group by group."""
    after = state.copy()
    after.offline[list(nodes)] = offline
    steps = [
        step
        for group in range(len(after.groups))
        for step in balance(after, _GOALS, group_scope(after, group))
    ]
    return after, tuple(steps)


def _suffices(state: State, wanted: Instance) -> bool:
    return not state.offline[state.primary].any() and _have_room(state, wanted)


def _have_room(state: State, wanted: Instance) -> bool:
    """Return whether every node, including offline ones, could take `wanted` in addition."""
    asked = state.copy()
    asked.admit([wanted])
    demands, room = Demands.of(asked, np.array([len(asked.names) - 1])), Room.of(asked)
    return bool((fit.hard(demands, room) & fit.soft(demands, room)).all())
