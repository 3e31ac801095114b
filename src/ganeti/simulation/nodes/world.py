"""What the nodes of one simulation share."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ganeti.base.clock import Clock
from ganeti.model import wire
from ganeti.rpc.procedures.form import Procedure
from ganeti.simulation.counting_ids import CountingIds
from ganeti.simulation.durations import Durations
from ganeti.simulation.network import Network
from ganeti.simulation.nodes.mirrors import Mirrors
from ganeti.simulation.nodes.storage import SharedDirectory
from ganeti.simulation.recovery_time import RecoveryTime
from ganeti.simulation.trace import Trace


class SharedSets:
    """The last sets of ssconf files, which a thousand nodes have in memory only once."""

    KEPT = 4

    def __init__(self) -> None:
        self._made: dict[tuple[int | None, int, str], tuple[object, Mapping[str, str]]] = {}

    def of(
        self,
        key: tuple[int | None, int, str],
        former: object,
        make: Callable[[], Mapping[str, str]],
    ) -> Mapping[str, str]:
        """Return the set that another node has made of the same former one, or make it; the key has its checksum."""
        known = self._made.get(key)
        if known is None or known[0] is not former:
            made = make()
            known = self._made[key] = (former, self._shared(key[2], made))
            while len(self._made) > self.KEPT:
                del self._made[next(iter(self._made))]
        return known[1]

    def _shared(self, checksum: str, made: Mapping[str, str]) -> Mapping[str, str]:
        """Return the set with the same content that another node has: nodes that differ once would do so for ever."""
        same = (known for (_, _, one), (_, known) in self._made.items() if one == checksum)
        return next(same, made)


class SharedArguments:
    """The arguments of the last call of each procedure: a question to all nodes is the same bytes for each of them."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[bytes, Any]] = {}

    def of(self, procedure: Procedure[Any, Any], body: bytes) -> Any:
        """Return the arguments; InputError."""
        last = self._last.get(procedure.name)
        if last is not None and last[0] is body:
            return last[1]
        found = wire.decode(body or b"{}", procedure.arguments, what=procedure.name)
        self._last[procedure.name] = body, found
        return found


@dataclass
class World:
    """Time, chance, the network and the storage that all nodes see."""

    clock: Clock
    recovery_time: RecoveryTime
    durations: Durations
    network: Network
    trace: Trace
    dice: random.Random
    mirrors: Mirrors
    ids: CountingIds = field(default_factory=CountingIds)
    shared: SharedDirectory = field(default_factory=SharedDirectory)
    ssconf_sets: SharedSets = field(default_factory=SharedSets)
    arguments: SharedArguments = field(default_factory=SharedArguments)
    node_with_device: Callable[[str, Mapping[str, str]], "str | None"] = lambda _agent, _options: (
        None
    )
    """The node whose power a fence agent switches with these options."""
    power_works: Callable[[str], bool] = lambda _node: True
    """Whether the power device of a node does what it is told."""
    changed: Callable[[], None] = lambda: None
    """Called when a node is lost or back."""

    def seconds(self, name: str) -> float:
        """Return how long one piece of work takes, a name of `Durations`."""
        return self.durations.drawn(name, self.dice)
