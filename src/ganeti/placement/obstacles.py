"""Why an instance cannot leave its nodes for others of its group, in the words of an error message."""

import numpy as np

from ganeti.model.reasons import summary
from ganeti.placement.allocate import CAUSES, primary_causes, secondary_causes
from ganeti.placement.description import Failure
from ganeti.placement.explain import short_of
from ganeti.placement.places import NO_NODE
from ganeti.placement.score import everywhere
from ganeti.placement.spread import Chunk, Field
from ganeti.placement.state import Bools, State

_TAGS = "migration tags forbid it"


def without(state: State, index: int) -> State:
    """A state in which the instance is on no node."""
    alone = state.copy()
    primary, secondary = int(state.primary[index]), int(state.secondary[index])
    if secondary != NO_NODE:
        alone.remove_secondary(index, secondary, primary)
    alone.remove_primary(index, primary)
    alone.primary[index] = alone.secondary[index] = NO_NODE
    return alone


class Obstacles:
    """What prevents one instance from using other nodes; with `force` soft limits are waived."""

    def __init__(self, state: State, index: int, *, force: bool) -> None:
        self.state, self.index = state, index
        self.alone = without(state, index)
        chunk = Chunk(Field(self.alone, everywhere(state)), np.array([index]), force=force)
        self.primary_causes = primary_causes(chunk, force=force)
        self.secondary_causes = secondary_causes(chunk, force=force)

    def to_failover(self) -> str:
        """Return what prevents it from running on its secondary node."""
        other = int(self.state.secondary[self.index])
        if self.state.offline[other]:
            return self.state.nodes[other].why_offline
        return self._as_primary(other) or self._tags(other) or "one of its nodes has no disk left"

    def to_new_primary(self, open_: Bools) -> str:
        """Return, for each open node, what prevents it from being the primary."""
        there = self._others(open_)
        return self._listed({node: self._as_primary(node) or self._tags(node) for node in there})

    def to_new_secondary(self, open_: Bools) -> str:
        """Return, for each open node, what prevents a copy of the disks there."""
        primary = int(self.state.primary[self.index])
        return self._listed(
            {node: self._as_secondary(primary, node) for node in self._others(open_)}
        )

    def to_new_pair(self, open_: Bools) -> str:
        """Return, for each open node, what prevents it from being the primary of a new pair."""
        return self._listed({node: self._as_first(node, open_) for node in self._others(open_)})

    def _others(self, open_: Bools) -> list[int]:
        primary = int(self.state.primary[self.index])
        return [int(node) for node in np.flatnonzero(open_) if node != primary]

    def _as_first(self, node: int, open_: Bools) -> str:
        if text := self._as_primary(node):
            return text
        partners = open_ & (self.secondary_causes[node] == 0)
        partners[node] = False
        return "" if partners.any() else "no other node can have the second copy of its disks"

    def _as_primary(self, node: int) -> str:
        cause = str(self.primary_causes[node])
        return self._short(node, Failure(cause)) if cause else ""

    def _as_secondary(self, primary: int, node: int) -> str:
        cause = CAUSES[self.secondary_causes[primary, node]]
        is_free = not self.secondary_causes[primary, node]
        return "" if is_free else self._short(node, cause, primary)

    def _short(self, node: int, cause: Failure, partner: int | None = None) -> str:
        """Return the resource that the node lacks, with upstream's word for it, which scripts match."""
        text = short_of(self.alone, self.state.descriptions[self.index], node, cause, partner)
        return f"{text} ({cause})"

    def _tags(self, node: int) -> str:
        forbidden, source = self.state.tags.forbidden, int(self.state.primary[self.index])
        binds = forbidden is not None and not self.state.lost[source]
        return _TAGS if binds and forbidden is not None and forbidden[source, node] else ""

    def _listed(self, reasons: dict[int, str]) -> str:
        """Return the reasons, grouped; a node without a reason of its own cannot be reached from the present nodes."""
        names = [one.name for one in self.state.nodes]
        said = [
            (names[node], why or "a step on the way there is not possible")
            for node, why in reasons.items()
        ]
        return summary(said) or "the group has no other online node"
