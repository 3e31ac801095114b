"""Fields with the present figures of guests and nodes (`ganeti.model.figures`)."""

from collections.abc import Callable, Collection
from typing import TypeVar

from ganeti.model.figures import FIGURES, MEMORY, NAMES, Figure, Values
from ganeti.query.fields.field import NO_DATA, UNAVAILABLE, Field, Missing, Need, ValueKind

R = TypeVar("R")

PREFIX = "usage."
_UNITS = {MEMORY.name: ValueKind.UNIT, "guest_memory": ValueKind.UNIT}


def usage_fields(
    values: Callable[[R], Values | Missing], without: Collection[Figure] = ()
) -> list[Field[R]]:
    """Return a field for each figure; `values` returns those of a row."""
    return [_field(one, values) for one in FIGURES if one not in without]


def _field(figure: Figure, values: Callable[[R], Values | Missing]) -> Field[R]:
    index = NAMES.index(figure.name)

    def get(row: R) -> int | float | Missing:
        found = values(row)
        if isinstance(found, Missing):
            return found
        if len(found) != len(FIGURES):
            return NO_DATA  # a node of another version
        value = found[index]
        if value is None:
            return UNAVAILABLE
        return round(value, figure.digits) if figure.digits else round(value)

    kind = _UNITS.get(figure.name, ValueKind.FLOAT if figure.digits else ValueKind.NUMBER)
    needs = frozenset((Need.FIGURES,))
    return Field(PREFIX + figure.name, figure.title, kind, figure.doc, get, needs)
