"""The rules and the result of a search for nodes; without numpy, for commands that do not need it."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from ganeti.placement.description import Failure, Group, Node
from ganeti.placement.digits import digits

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

NO_NODE = -1
TIE = 1e-12
"""Scores that differ by less are equal."""
SLACK = 1e-6
"""Rounding may lift the lower bound of a score above the score by less.

The deviation of equal values is the root of what rounding leaves, up to 1e-7.
"""
ALLOCATION_ORDER = {"preferred": 0, "last_resort": 1, "unallocable": 2}
CAPACITY_TRIES = 2000
"""The placements that are tried before the group is reported as not redundant afterwards."""


class Described(Protocol):
    """A cluster whose nodes and groups have numbers."""

    @property
    def nodes(self) -> Sequence[Node]: ...
    @property
    def groups(self) -> Sequence[Group]: ...


class Excluded(NamedTuple):
    """Nodes whose loss the cluster need not survive."""

    groups: Collection[int] = ()
    lone_nodes: bool = False
    """The only online node of a group, which cannot be redundant."""
    offline: bool = False
    """Nodes that are offline or drained already."""


NOTHING_EXCLUDED = Excluded()


class Before(Protocol):
    """The N+1 violations before a change (`ganeti.placement.redundancy.Violations`)."""

    def of(self, node: int) -> Counter[Any]:
        """Return how many instances the loss of a node would have left unplaced, by cause."""
        ...

    def grown(self, after: Any, group: int, first: int | None = None) -> Iterator[int]:
        """Yield nodes of the changed group whose loss leaves more instances unplaced than before, for any cause."""
        ...


class Rules(msgspec.Struct, frozen=True):
    """The checks beyond hard limits, and the scope of the search; the defaults are those of `hail`."""

    capacity: bool = True
    ignore_soft_errors: bool = False
    only_nodes: Collection[str] | None = None
    groups: Collection[int] | None = None
    """Only these groups, by index."""
    excluded: Excluded = NOTHING_EXCLUDED
    allow_unallocable: bool = False
    best_only: bool = False
    """The search may stop at the best placement: the number of others is not needed."""
    all_scores: bool = False
    """The scores of all placements are needed, not only that of the best."""
    by_room: bool = False
    """The capacity check only counts room: a placement that it refuses is refused for larger instances, too."""
    before: Before | None = None
    """The violations before: a placement must not make them worse on any node. None requires redundancy."""
    dedicated: bool = True
    """If all nodes have exclusive storage, lost allocations decide (`dedicated`); as in upstream, not in `hspace`."""
    only_primary: int | None = None
    """The only allowed primary node."""


class Cost(NamedTuple):
    """The cost of a placement on exclusive storage: lost allocations by policy interval, then the disk that is left."""

    lost: tuple[float, ...]
    disk_left: float

    def text(self) -> str:
        """Return upstream's form of the cost."""
        return f"([{','.join(f'{one:.0f}' for one in self.lost)}],{self.disk_left:.0f})"


class Costs(Protocol):
    """The cost of each placement in a group (`ganeti.placement.dedicated.Costs`)."""

    def of(self, nodes: tuple[int, ...]) -> Cost:
        """Return the cost of one placement."""
        ...

    def least_with(self, node: int, scores: "npt.NDArray[np.float64]") -> Cost:
        """Return the lowest cost of the placements that have a score and use the node."""
        ...


class SearchResult(msgspec.Struct):
    """The result of a search in one group: nodes and score, or no nodes and the reasons; counts are of placements."""

    group: int
    nodes: tuple[int, ...] = ()
    score: float = math.inf
    successes: int = 0
    failures: Counter[Failure] = msgspec.field(default_factory=Counter)
    note: str = ""
    blockers: dict[int, int] = msgspec.field(default_factory=dict)
    """By primary node: a node whose loss forbids the placement; NO_NODE has the most recent one."""
    scores: "npt.NDArray[np.float64] | None" = None
    """By node (or by primary and secondary): the score, infinite where the instance cannot be."""
    costs: Costs | None = None
    """The costs that decide in place of the scores on exclusive storage (`dedicated`)."""

    @property
    def cost(self) -> Cost | None:
        """The cost of the placement; None if the score decides."""
        return None if self.costs is None or not self.nodes else self.costs.of(self.nodes)

    @property
    def pair(self) -> tuple[int, int]:
        """The primary and the secondary node; NO_NODE for a missing one."""
        first, second, *_rest = (*self.nodes, NO_NODE, NO_NODE)
        return first, second

    def describe(self, state: Described) -> str:
        """Return the line of `hail`."""
        count = ", ".join(
            f"{kind}: {self.failures[kind]}" for kind in Failure if self.failures[kind]
        )
        if not self.nodes:
            return f"No valid allocation solutions, failure reasons: {count or 'unknown reasons'}"
        names = "/".join(state.nodes[node].name for node in self.nodes)
        return (
            f"score: {self.cost.text() if self.cost else digits(self.score)}, successes {self.successes},"
            f" failures {self.failures.total()} ({count}) for node(s) {names}"
        )


def winner(state: Described, places: Sequence[SearchResult], rules: Rules) -> SearchResult | None:
    """Return the best of the groups' results: the preferred group, then the lowest score, then the last; else None."""
    usable = [
        one
        for one in reversed(places)
        if one.nodes and (rules.allow_unallocable or _is_allocable(state.groups[one.group]))
    ]

    def rank(one: SearchResult) -> tuple[Any, ...]:
        order = ALLOCATION_ORDER[state.groups[one.group].alloc_policy]
        return (order, *one.cost) if one.cost else (order, one.score)

    return min(usable, key=rank, default=None)


def _is_allocable(group: Group) -> bool:
    return group.alloc_policy != "unallocable"


def describe_group(state: Described, place: SearchResult) -> str:
    """Return one line about a group."""
    group = state.groups[place.group]
    if place.note:
        return f"Group {group.name}: error {place.note}"
    return f"Group {group.name} ({group.alloc_policy}): {place.describe(state)}"


def describe_choice(state: Described, place: SearchResult, places: Sequence[SearchResult]) -> str:
    """Return an allocator's text about the best placement, and about those of all groups."""
    lines = [f"Selected group: {state.groups[place.group].name}"]
    return ", ".join([*lines, *(describe_group(state, one) for one in places)])


def accepted(info: str, result: Any) -> dict[str, Any]:
    """Return the positive answer of an allocator."""
    return {"success": True, "info": f"Request successful: {info}", "result": result}
