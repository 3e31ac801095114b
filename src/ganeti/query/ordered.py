"""Objects of the configuration in the order of lists, kept from one query to the next.

A table of a snapshot never changes, so its order holds as long as the table is the same object.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from ganeti.config.view import View
from ganeti.model.stored import Stored

T = TypeVar("T", bound=Stored)

KEYS_KEPT = 50_000
_NUMBER = re.compile(r"([0-9]+)")


@lru_cache(maxsize=KEYS_KEPT)
def natural_key(name: str) -> tuple[tuple[int, str], ...]:
    """Sorts `node2` before `node10`."""
    parts = _NUMBER.split(name)
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts if part)


@dataclass(frozen=True)
class _Order:
    table: Mapping[str, Any]
    in_order: Sequence[Any]
    names: Sequence[str]
    """All names in text order, to find those with a common prefix."""
    by_name: Mapping[str, Any]


class OrderedTables:
    """The requested tables, each in its latest version."""

    def __init__(self) -> None:
        self._orders: dict[type[Stored], _Order] = {}

    def all(self, view: View, kind: type[T]) -> Sequence[T]:
        """Return all objects of a kind, in their natural order."""
        return self._order(view, kind).in_order

    def named(self, view: View, kind: type[T], names: Iterable[Any]) -> Sequence[T]:
        """Return objects whose name is one of these, or begins with one of them and a dot."""
        order = self._order(view, kind)
        found: set[str] = set()
        for one in names:
            if isinstance(one, str):
                found.update(_meant(order, one))
        in_order = sorted(found, key=natural_key) if len(found) > 1 else found
        return [order.by_name[name] for name in in_order]

    def _order(self, view: View, kind: type[T]) -> _Order:
        table = view.table(kind)
        order = self._orders.get(kind)
        if order is None or order.table is not table:
            by_name = {one.name: one for one in table.values()}
            in_order = [by_name[name] for name in sorted(by_name, key=natural_key)]
            order = self._orders[kind] = _Order(table, in_order, sorted(by_name), by_name)
        return order


def _meant(order: _Order, text: str) -> Iterable[str]:
    if text in order.by_name:
        yield text
    prefix = f"{text}."
    at = bisect_left(order.names, prefix)
    while at < len(order.names) and order.names[at].startswith(prefix):
        yield order.names[at]
        at += 1
