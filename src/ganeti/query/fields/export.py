"""Fields of exports: each on the node that has it."""

from dataclasses import dataclass

from ganeti.model.objects import Node
from ganeti.query.context import QueryContext
from ganeti.query.fields.field import NO_DATA, OFFLINE, Field, Missing, Need, ValueKind
from ganeti.query.fields.field import field_table as table


@dataclass(frozen=True)
class ExportRow:
    """One export; for a node without a report, a row with the reason."""

    node: Node
    export: str | Missing


def export_rows(context: QueryContext) -> list[ExportRow]:
    """Return every export of every node, by the nodes' names."""
    rows = []
    for node in sorted(context.snapshot.nodes.values(), key=lambda one: one.name):
        found = OFFLINE if node.offline else context.live.exports.get(node.uuid, NO_DATA)
        if isinstance(found, Missing):
            rows.append(ExportRow(node, found))
        else:
            rows += [ExportRow(node, name) for name in found]
    return rows


_NEEDS = frozenset((Need.EXPORTS,))

_FIELDS: tuple[Field[ExportRow], ...] = (
    Field(
        "node",
        "Node",
        ValueKind.TEXT,
        "Node that holds the export",
        lambda r: r.node.name,
        needs=_NEEDS,
        is_host_name=True,
    ),
    Field(
        "export",
        "Export",
        ValueKind.TEXT,
        "Name of the export, which is that of the instance",
        lambda r: r.export,
        needs=_NEEDS,
        is_host_name=True,
    ),
)

EXPORT_FIELDS = table(_FIELDS)
