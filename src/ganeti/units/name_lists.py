"""From a list of names to nodes."""

from collections.abc import Sequence

from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Node


def nodes_named(snapshot: Snapshot, names: Sequence[str]) -> list[Node]:
    """The nodes of these names or UUIDs, each once, in their order; all by name without names."""
    if not names:
        return list(snapshot.nodes_by_name())
    found = {node.uuid: node for node in (resolve_node(snapshot, name) for name in names)}
    return list(found.values())
