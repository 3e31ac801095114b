"""The health of a cluster by group: the violations that `hcheck` counts."""

from typing import NamedTuple

import numpy as np

from ganeti.placement.places import NO_NODE, Excluded
from ganeti.placement.redundancy import unrecoverable_nodes
from ganeti.placement.score import group_scope, score
from ganeti.placement.state import State


class Health(NamedTuple):
    """Counts of nodes (failing N+1, with instances that exclude each other, not evacuable) and of instances."""

    failing: int
    conflicting: int
    offline_primary: int
    offline_secondary: int
    unrecoverable: int
    score: float

    @property
    def is_bad(self) -> bool:
        """Return whether there are violations that moves could fix."""
        return any(self[:5])


TITLES = (
    ("N1_FAIL", "Nodes not N+1 happy"),
    ("CONFLICT_TAGS", "Nodes with conflicting instances"),
    ("OFFLINE_PRI", "Instances having the primary node offline"),
    ("OFFLINE_SEC", "Instances having a secondary node offline"),
    ("GN1_FAIL", "Nodes not directly evacuateable"),
)


def group_health(state: State, group: int, *, capacity: bool = True) -> Health:
    """Return the violations in one group; without `capacity` no node counts as not evacuable."""
    scope = group_scope(state, group)
    live = scope & ~state.offline
    mine = scope[state.primary]
    has_secondary = mine & (state.secondary != NO_NODE)
    others = {number for number in range(len(state.groups)) if number != group}
    return Health(
        failing=int((live & state.fails).sum()),
        conflicting=int((state.tags.conflicts()[live] > 0).sum()),
        offline_primary=int((mine & state.offline[state.primary]).sum()),
        offline_secondary=int((has_secondary & state.offline[state.secondary]).sum()),
        unrecoverable=len(list(unrecoverable_nodes(state, Excluded(others)))) if capacity else 0,
        score=score(state, scope),
    )


def cluster_health(groups: list[Health]) -> Health:
    """Return the sum over groups."""
    sums = [int(one) for one in np.sum([one[:5] for one in groups], axis=0)] if groups else [0] * 5
    return Health._make([*sums, sum(one.score for one in groups)])
