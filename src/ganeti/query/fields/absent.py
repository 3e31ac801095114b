"""Fields of kinds of things that this version does not have yet: their lists are empty."""

from typing import Any

from ganeti.query.fields.field import Field, ValueKind
from ganeti.query.fields.field import field_table as table

_TEXT = ValueKind.TEXT


def _nothing(_row: Any) -> None:
    return None


def _declared(*fields: tuple[str, str, ValueKind, str]) -> dict[str, Field[Any]]:
    return table([Field(name, title, kind, doc, _nothing) for name, title, kind, doc in fields])


EXPORT_FIELDS = _declared(
    ("node", "Node", _TEXT, "Node that holds the export"),
    ("export", "Export", _TEXT, "Name of the export"),
)
