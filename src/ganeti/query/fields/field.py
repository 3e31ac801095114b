"""The declaration of a field."""

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ganeti.model.names import ResultStatus
from ganeti.model.param import Param
from ganeti.query.ordered import natural_key

R = TypeVar("R")


class ValueKind(enum.StrEnum):
    """The presentation of a value; `unit` is MiB, `timestamp` seconds since the epoch."""

    TEXT = "text"
    BOOL = "bool"
    NUMBER = "number"
    FLOAT = "float"
    UNIT = "unit"
    TIMESTAMP = "timestamp"
    OTHER = "other"
    UNKNOWN = "unknown"


class Need(enum.Enum):
    """The data that nodes must report before a field has a value."""

    NODES = "nodes"
    INSTANCES = "instances"
    CONSOLES = "consoles"
    EXPORTS = "exports"
    BACKUPS = "backups"
    OPERATING_SYSTEMS = "operating systems"
    PROVIDERS = "providers"
    FIGURES = "figures"


@dataclass(frozen=True, slots=True)
class Missing:
    """Stands for a missing value, with the reason."""

    status: ResultStatus


NO_DATA = Missing(ResultStatus.NO_DATA)
UNAVAILABLE = Missing(ResultStatus.UNAVAILABLE)
OFFLINE = Missing(ResultStatus.OFFLINE)


@dataclass(frozen=True, slots=True)
class Field(Generic[R]):
    """One column: its name, heading and kind, its meaning, and its source in a row."""

    name: str
    title: str
    kind: ValueKind
    doc: str
    value: Callable[[R], Any]
    """Returns the value, or a Missing."""
    needs: frozenset[Need] = frozenset()
    is_host_name: bool = False
    """True if filters may omit the last labels of its values."""

    def definition(self) -> dict[str, str]:
        """Return its entry in QueryFields and in the head of an answer."""
        return {
            "name": self.name,
            "title": self.title,
            "kind": self.kind.value,
            "doc": self.doc,
        }


def field_table(*groups: Iterable[Field[R]]) -> dict[str, Field[R]]:
    """Return fields by name, in the order of names; a duplicate name is a mistake in the code."""
    table: dict[str, Field[R]] = {}
    for field in sorted(
        (one for group in groups for one in group), key=lambda one: natural_key(one.name)
    ):
        if field.name in table:
            raise ValueError(f"the field {field.name} is declared twice")
        table[field.name] = field
    return table


_KINDS_OF_TYPES = {
    bool: ValueKind.BOOL,
    int: ValueKind.NUMBER,
    float: ValueKind.FLOAT,
    str: ValueKind.OTHER,
}


def kind_of_param(param: Param) -> ValueKind:
    """Return the presentation of a parameter's value; texts are "other", because some may be None."""
    return ValueKind.UNIT if param.is_size else _KINDS_OF_TYPES[type(param.default)]


def split_time(seconds: float | None) -> list[int] | None:
    """Return `[seconds, microseconds]`, LUXI's form of the times of jobs."""
    if seconds is None:
        return None
    whole, micro = divmod(round(seconds * 1_000_000), 1_000_000)
    return [whole, micro]
