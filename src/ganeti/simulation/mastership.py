"""Who is the master of a simulated cluster: whether a majority of the candidates is reached, and who comes next."""

from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import NodeUuid
from ganeti.simulation.nodes.simulated import SimulatedNode
from ganeti.simulation.nodes.world import World

FEW = 2
"""With so many candidates no majority excludes a second master (D10)."""


class Candidates:
    """The master candidates that the configuration has, and which of them reach each other."""

    def __init__(self, world: World, nodes: dict[str, SimulatedNode]) -> None:
        self._world, self._nodes = world, nodes
        self._followed: object = None
        self._names: list[str] = []
        self._uuids: dict[str, NodeUuid] = {}
        self._confirmed_at = 0.0

    def follow(self, snapshot: Snapshot) -> None:
        """Take the candidates from the configuration."""
        if snapshot.nodes is self._followed:
            return
        self._followed, candidates = snapshot.nodes, snapshot.master_candidates()
        self._names = [node.name for node in candidates]
        self._uuids = {node.name: NodeUuid(node.uuid) for node in candidates}

    def has_majority(self, name: str) -> bool:
        """Return whether a node is up and reaches more than half of the candidates."""
        if self._nodes[name].is_off:
            return False
        found = [one for one in self._names if one == name or self._reaches(name, one)]
        return 2 * len(found) > len(self._names) or len(self._names) <= FEW

    def next_after(self, name: str) -> tuple[str, NodeUuid] | None:
        """Return the candidate that becomes the master when `name` cannot be it."""
        for one in self._names:
            if one != name and self.has_majority(one):
                return one, self._uuids[one]
        if self.has_majority(name) and name in self._uuids:
            return name, self._uuids[name]
        return None

    def confirmed_at(self, name: str) -> float | None:
        """Return when a majority has confirmed the master on this node; None where it needs none."""
        if len(self._names) <= FEW:
            return None
        if self.has_majority(name):
            self._confirmed_at = self._world.recovery_time.monotonic()
        return self._confirmed_at

    def _reaches(self, one: str, other: str) -> bool:
        network = self._world.network
        there = self._nodes[other]
        return not (there.is_off or network.is_cut(one, other) or network.is_cut(other, one))
