"""The lookup of nodes by a list of names."""

from collections.abc import Sequence

from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Node


def nodes_named(snapshot: Snapshot, names: Sequence[str]) -> list[Node]:
    """Return the nodes of these names or UUIDs, each once, in their order; all by name for an empty list."""
    if not names:
        return list(snapshot.nodes_by_name())
    found = {node.uuid: node for node in (resolve_node(snapshot, name) for name in names)}
    return list(found.values())
