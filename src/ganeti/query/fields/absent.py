"""Fields of kinds of things that this version does not have yet: their lists are empty."""

from typing import Any

from ganeti.query.fields.field import Field, ValueKind
from ganeti.query.fields.field import field_table as table

_TEXT, _OTHER = ValueKind.TEXT, ValueKind.OTHER


def _nothing(_row: Any) -> None:
    return None


def _declared(*fields: tuple[str, str, ValueKind, str]) -> dict[str, Field[Any]]:
    return table([Field(name, title, kind, doc, _nothing) for name, title, kind, doc in fields])


EXPORT_FIELDS = _declared(
    ("node", "Node", _TEXT, "Node that holds the export"),
    ("export", "Export", _TEXT, "Name of the export"),
)

FILTER_FIELDS = _declared(
    ("uuid", "UUID", _OTHER, "UUID of the filter"),
    ("watermark", "Watermark", _OTHER, "Highest job id when the filter was added"),
    ("priority", "Priority", _OTHER, "Order among filters"),
    ("predicates", "Predicates", _OTHER, "Which jobs the filter is about"),
    ("action", "Action", _OTHER, "What is done with those jobs"),
    ("reason_trail", "ReasonTrail", _OTHER, "Why the filter was added"),
)
