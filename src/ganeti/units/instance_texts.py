"""The instances of the configuration in the form of allocators, with what they use on their nodes.

A message describes all instances of the cluster, nearly all of which are the same as in the last one.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from ganeti.config.snapshot import Snapshot, differing_instances
from ganeti.model import wire
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance
from ganeti.units.demand import Demand


class _Use(NamedTuple):
    """What one instance uses on its primary node."""

    name: str
    node: str
    memory: int
    """MiB."""
    is_up: bool
    """It should run."""


class InstanceTexts(NamedTuple):
    """All instances of a snapshot; threads may read it, because it never changes."""

    snapshot: Snapshot
    texts: dict[str, msgspec.Raw]
    """By name; encoded, one needs a tenth of the memory."""
    uses: dict[str, _Use]
    memory: Counter[str]
    """MiB of the instances of each primary node, by UUID."""
    up_memory: Counter[str]
    """The same of those that should run."""


class KeptTexts:
    """Follows the configuration; threads may use it at once."""

    def __init__(self) -> None:
        self._last: InstanceTexts | None = None

    def of(self, snapshot: Snapshot) -> InstanceTexts:
        """Return the texts; those of instances that have not changed are the same objects as before."""
        last = self._last
        if last is None or last.snapshot.cluster is not snapshot.cluster:
            nothing = InstanceTexts(snapshot, {}, {}, Counter(), Counter())
            found = _followed(nothing, snapshot, snapshot.instances)
        else:
            found = _followed(last, snapshot, differing_instances(last.snapshot, snapshot))
        self._last = found
        return found


def _followed(last: InstanceTexts, snapshot: Snapshot, changed: Iterable[str]) -> InstanceTexts:
    texts, uses = last.texts.copy(), last.uses.copy()
    memory, up_memory = last.memory.copy(), last.up_memory.copy()
    instances = [(uuid, snapshot.instances.get(uuid)) for uuid in changed]
    for uuid, instance in instances:
        if (former := uses.get(uuid)) is not None:
            memory[former.node] -= former.memory
            up_memory[former.node] -= former.memory * former.is_up
            if instance is None:
                del uses[uuid]
            if instance is None or instance.name != former.name:
                del texts[former.name]
    for uuid, instance in instances:
        if instance is not None:
            texts[instance.name], use = _instance(snapshot, instance)
            uses[uuid] = use
            memory[use.node] += use.memory
            up_memory[use.node] += use.memory * use.is_up
    return InstanceTexts(snapshot, texts, uses, memory, up_memory)


def _instance(snapshot: Snapshot, instance: Instance) -> tuple[msgspec.Raw, _Use]:
    is_up = instance.admin_state is AdminState.UP
    demand = Demand.of(snapshot.cluster, instance)
    message = {
        **demand.message(),
        "admin_state": instance.admin_state,
        "admin_state_source": instance.admin_state_source,
        "should_run": is_up,
        "nodes": [snapshot.nodes[uuid].name for uuid in instance.all_nodes],
    }
    use = _Use(instance.name, instance.primary_node, demand.memory, is_up)
    return msgspec.Raw(wire.encode(message)), use
