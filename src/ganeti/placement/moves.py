"""Moves of one instance: their names, their effect on a state, and their jobs."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from ganeti.placement.description import RUNNING
from ganeti.placement.places import NO_NODE
from ganeti.placement.state import State


class MoveKind(StrEnum):
    """The steps of a move: f is a failover or migration, r: a replaced secondary node, fa: a move of the primary."""

    FAILOVER = "f"
    REPLACE_SECONDARY = "r"
    REPLACE_AND_FAILOVER = "r f"
    REPLACE_PRIMARY = "f r f"
    FAILOVER_AND_REPLACE = "f r"
    FAILOVER_TO_ANY = "fa"


class Move(NamedTuple):
    """An instance by index, the kind of move, the target, and the score of the cluster afterwards."""

    instance: int
    kind: MoveKind
    target: int
    score: float = 0.0


class Step(NamedTuple):
    """A completed move: the nodes of its instance before and after."""

    move: Move
    before: tuple[int, int]
    after: tuple[int, int]


def destination(kind: MoveKind, primary: int, secondary: int, target: int) -> tuple[int, int]:
    """Return the primary and secondary node after a move."""
    return {
        MoveKind.FAILOVER: (secondary, primary),
        MoveKind.REPLACE_SECONDARY: (primary, target),
        MoveKind.REPLACE_AND_FAILOVER: (target, primary),
        MoveKind.REPLACE_PRIMARY: (target, secondary),
        MoveKind.FAILOVER_AND_REPLACE: (secondary, target),
        MoveKind.FAILOVER_TO_ANY: (target, secondary),
    }[kind]


def apply(state: State, move: Move) -> Step:
    """Make the move; the caller has decided that it is allowed."""
    before = (int(state.primary[move.instance]), int(state.secondary[move.instance]))
    after = destination(move.kind, *before, move.target)
    state.settle_at(move.instance, *after)
    return Step(move, before, after)


def steps_text(state: State, move: Move) -> str:
    """Return the steps as `hbal` prints them: `f r:node1`."""
    name = state.alias(state.nodes[move.target].name) if move.target != NO_NODE else ""
    shown = {"f": "f", "r": f"r:{name}", "fa": f"fa:{name}"}
    return " ".join(shown[step] for step in str(move.kind).split())


def commands(state: State, move: Move) -> list[str]:
    """Return the `gnt-instance` commands, without that word."""
    instance = state.descriptions[move.instance]
    target = state.alias(state.nodes[move.target].name) if move.target != NO_NODE else ""
    name = state.alias(instance.name)
    how = "migrate" if instance.status in RUNNING else "failover"
    words = {
        "f": f"{how} -f {name}",
        "r": f"replace-disks -n {target} {name}",
        "fa": f"{how} -f -n {target} {name}",
    }
    return [words[step] for step in str(move.kind).split()]


def opcodes(state: State, move: Move) -> list[dict[str, Any]]:
    """Return the move as the opcodes of one job, in the form of an allocator's answer (X12)."""
    name = state.names[move.instance]
    target = state.nodes[move.target].name if move.target != NO_NODE else None
    migrate = {
        "OP_ID": "OP_INSTANCE_MIGRATE",
        "instance_name": name,
        "allow_runtime_changes": False,
        "ignore_ipolicy": False,
        "cleanup": False,
        "allow_failover": True,
        "ignore_hvversions": True,
    }
    replace = {
        "OP_ID": "OP_INSTANCE_REPLACE_DISKS",
        "instance_name": name,
        "early_release": False,
        "ignore_ipolicy": False,
        "mode": "replace_new_secondary",
        "disks": [],
        "remote_node": target,
    }
    each = {"f": migrate, "r": replace, "fa": {**migrate, "target_node": target}}
    return [dict(each[step]) for step in str(move.kind).split()]


def involved(step: Step) -> frozenset[int]:
    """Return the nodes that a step touches."""
    return frozenset(node for node in (*step.before, *step.after) if node != NO_NODE)


def job_sets(steps: Iterable[Step]) -> list[list[Step]]:
    """Split steps into sets that can run in parallel: a set ends before the first step that shares a node with it."""
    sets: list[list[Step]] = []
    busy: frozenset[int] = frozenset()
    for step in steps:
        nodes = involved(step)
        if sets and not busy & nodes:
            sets[-1].append(step)
            busy |= nodes
        else:
            sets.append([step])
            busy = nodes
    return sets


def dependencies(steps: Sequence[Step]) -> list[list[int]]:
    """Return for each step the earlier steps that it must wait for: the last ones that touch one of its nodes."""
    last: dict[int, int] = {}
    needed = []
    for number, step in enumerate(steps):
        nodes = involved(step)
        needed.append(sorted({last[node] for node in nodes if node in last}))
        last.update(dict.fromkeys(nodes, number))
    return needed
