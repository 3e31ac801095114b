"""The nodes of the configuration in the form of allocators, with what they have reported (seed 004, S167, X14).

A message describes all nodes of the cluster, most of which are the same as in the last one.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from ganeti.config.fill import filled_ndparams
from ganeti.config.snapshot import Snapshot
from ganeti.model import wire
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.objects import Cluster, Node, NodeGroup
from ganeti.rpc.procedures.host import NodeInfo


class Live(NamedTuple):
    """The live values of a node that answered, under the message's own keys; MiB."""

    total_memory: int
    reserved_memory: int
    free_memory: int
    total_disk: int
    free_disk: int
    total_spindles: int
    free_spindles: int
    total_cpus: int
    reserved_cpus: int

    @classmethod
    def of(cls, info: NodeInfo, unit: StorageUnit | None, *, exclusive: bool) -> "Live":
        """Return the values of a report; disk space is that of `unit`."""
        space = next((space for space in info.storage if space.unit == unit), None)
        return cls(
            info.memory_total,
            info.memory_node,
            info.memory_free,
            space.total if space else 0,
            space.free if space else 0,
            space.devices if space and exclusive else 0,
            space.free_devices if space and exclusive else 0,
            info.cpu_total,
            info.cpu_node,
        )


class NodeFacts(NamedTuple):
    """All that the text of a node depends on, besides the cluster and its groups."""

    node: Node
    memory: int
    """MiB of its primary instances."""
    up_memory: int
    """The same of those that should run."""
    live: Live | None
    """None: it counts as offline."""


class KeptNodeTexts:
    """Follows the nodes; threads may use it at once."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[NodeFacts, msgspec.Raw]] = {}
        self._basis: tuple[Cluster, Mapping[str, NodeGroup]] | None = None

    def of(self, snapshot: Snapshot, nodes: Iterable[NodeFacts]) -> dict[str, msgspec.Raw]:
        """Return the texts by name; those of nodes that have not changed are the same objects as before."""
        last, basis = self._last, self._basis
        is_same = basis is not None and basis[0] is snapshot.cluster and basis[1] is snapshot.groups
        kept, found = last if is_same else {}, {}
        for facts in nodes:
            name = facts.node.name
            former = kept.get(name)
            if former is not None and former[0] == facts:
                found[name] = former
            else:
                found[name] = facts, msgspec.Raw(wire.encode(_message(snapshot, facts)))
        self._last, self._basis = found, (snapshot.cluster, snapshot.groups)
        return {name: text for name, (_facts, text) in found.items()}


def _message(snapshot: Snapshot, facts: NodeFacts) -> dict[str, Any]:
    node, live = facts.node, facts.live
    ndparams = filled_ndparams(snapshot, node)
    return {
        "tags": list(node.tags),
        "primary_ip": node.primary_ip,
        "secondary_ip": node.secondary_ip,
        "offline": node.offline or live is None,
        "drained": node.drained,
        "master_candidate": node.master_candidate,
        "master_capable": node.master_capable,
        "vm_capable": node.vm_capable,
        "group": node.group,
        "ndparams": {
            key: ndparams[key] for key in ("spindle_count", "exclusive_storage", "oob_program")
        },
        "hv_state": {},
        "disk_state": {},
        "i_pri_memory": facts.memory,
        "i_pri_up_memory": facts.up_memory,
        **({} if live is None else live._asdict()),
    }
