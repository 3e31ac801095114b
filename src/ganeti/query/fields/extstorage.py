"""Fields of providers of external storage on the nodes."""

from typing import Any

from ganeti.config.ext_summary import provider_rows
from ganeti.query.context import QueryContext
from ganeti.query.fields.field import Field, Missing, ValueKind
from ganeti.query.fields.field import field_table as table

_TEXT, _OTHER = ValueKind.TEXT, ValueKind.OTHER

_DECLARED = (
    ("name", "Name", _TEXT, "Name of the provider"),
    ("node_status", "NodeStatus", _OTHER, "What each node has of it"),
    ("nodegroup_status", "NodegroupStatus", _OTHER, "Whether all nodes of a group can use it"),
    ("parameters", "Parameters", _OTHER, "Parameters that it takes, with what they mean"),
)


def _field(name: str, title: str, kind: ValueKind, doc: str) -> Field[dict[str, Any]]:
    return Field(name, title, kind, doc, lambda row: row[name])


EXTSTORAGE_FIELDS = table(_field(*one) for one in _DECLARED)


def extstorage_rows(context: QueryContext) -> list[dict[str, Any]]:
    """Return a row for each provider of any node, by name; nodes without a report cannot use any."""
    snapshot = context.snapshot
    nodes = [node for node in snapshot.online_nodes() if node.vm_capable]
    answers = {
        uuid: found
        for uuid, found in context.live.providers.items()
        if not isinstance(found, Missing)
    }
    return provider_rows(snapshot, nodes, answers)
