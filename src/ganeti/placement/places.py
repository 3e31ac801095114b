"""What a search for a place asks and answers; known without numpy, for commands that do not need it."""

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
ALLOCATION_ORDER = {"preferred": 0, "last_resort": 1, "unallocable": 2}
CAPACITY_TRIES = 2000
"""So many places are tried before none is said to leave the cluster redundant."""


class Described(Protocol):
    """A cluster whose nodes and groups have numbers."""

    @property
    def nodes(self) -> Sequence[Node]: ...
    @property
    def groups(self) -> Sequence[Group]: ...


class Excluded(NamedTuple):
    """Nodes that need not be losable."""

    groups: Collection[int] = ()
    lone_nodes: bool = False
    """The only online node of a group, which cannot be redundant."""
    offline: bool = False
    """Nodes that are offline or drained already."""


NOTHING_EXCLUDED = Excluded()


class Before(Protocol):
    """What is wrong before a change (`ganeti.placement.redundancy.Violations`)."""

    def of(self, node: int) -> Counter[Any]:
        """How many instances the loss of a node would leave without a place, by cause."""
        ...

    def grown(self, after: Any, group: int, first: int | None = None) -> Iterator[int]:
        """Nodes of the changed group whose loss leaves more without a place than before, for any cause."""
        ...


class Rules(msgspec.Struct, frozen=True):
    """What is checked beyond hard limits, and where; the defaults are `hail`'s."""

    capacity: bool = True
    ignore_soft_errors: bool = False
    only_nodes: Collection[str] | None = None
    groups: Collection[int] | None = None
    """Only these groups, by index."""
    excluded: Excluded = NOTHING_EXCLUDED
    allow_unallocable: bool = False
    best_only: bool = False
    """How many other places there are, and their scores, does not matter if there is one."""
    by_room: bool = False
    """The capacity check only counts room: a place that it refuses is refused for larger instances too."""
    before: Before | None = None
    """What is wrong before: a place need only leave it no worse, node by node; None asks for redundancy."""
    dedicated: bool = True
    """Where all nodes have exclusive storage, lost allocations decide (`dedicated`); not in `hspace`, as in upstream's."""
    only_primary: int | None = None
    """The primary node is this one."""


class Cost(NamedTuple):
    """What a place costs on exclusive storage: lost allocations by policy interval, then the disk that is left."""

    lost: tuple[float, ...]
    disk_left: float

    def text(self) -> str:
        """As upstream shows it."""
        return f"([{','.join(f'{one:.0f}' for one in self.lost)}],{self.disk_left:.0f})"


class Costs(Protocol):
    """What each place of a group costs (`ganeti.placement.dedicated.Costs`)."""

    def of(self, nodes: tuple[int, ...]) -> Cost:
        """The cost of one place."""
        ...

    def least_with(self, node: int, scores: "npt.NDArray[np.float64]") -> Cost:
        """The lowest cost of the places that have a score and the node."""
        ...


class SearchResult(msgspec.Struct):
    """An answer: the nodes and the score then, or none and why; counts are of places."""

    group: int
    nodes: tuple[int, ...] = ()
    score: float = math.inf
    successes: int = 0
    failures: Counter[Failure] = msgspec.field(default_factory=Counter)
    note: str = ""
    blockers: dict[int, int] = msgspec.field(default_factory=dict)
    """By primary node: one whose loss speaks against it, NO_NODE for the last one found."""
    scores: "npt.NDArray[np.float64] | None" = None
    """By node (or by primary and secondary): the score, infinite where the instance cannot be."""
    costs: Costs | None = None
    """What decides in place of the scores on exclusive storage (`dedicated`)."""

    @property
    def cost(self) -> Cost | None:
        """What the place costs; None if the score decides."""
        return None if self.costs is None or not self.nodes else self.costs.of(self.nodes)

    @property
    def pair(self) -> tuple[int, int]:
        """The primary and the secondary node, NO_NODE if there is none."""
        first, second, *_rest = (*self.nodes, NO_NODE, NO_NODE)
        return first, second

    def describe(self, state: Described) -> str:
        """As `hail` says it."""
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
    """The best of the groups' places: the most preferred group, then the lowest score, then the last; None if there is none."""
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
    """One line about a group."""
    group = state.groups[place.group]
    if place.note:
        return f"Group {group.name}: error {place.note}"
    return f"Group {group.name} ({group.alloc_policy}): {place.describe(state)}"


def describe_choice(state: Described, place: SearchResult, places: Sequence[SearchResult]) -> str:
    """What an allocator says of the best place, and of those of all groups."""
    lines = [f"Selected group: {state.groups[place.group].name}"]
    return ", ".join([*lines, *(describe_group(state, one) for one in places)])


def accepted(info: str, result: Any) -> dict[str, Any]:
    """An allocator's answer "yes"."""
    return {"success": True, "info": f"Request successful: {info}", "result": result}
