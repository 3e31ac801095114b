"""What a transaction has changed, and for whom: the audit log's view of it."""

import re
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

from ganeti.model import wire
from ganeti.model.stored import Stored

CHANGED_BY: ContextVar[int | None] = ContextVar("changed_by", default=None)
"""The job in whose task we are; None: the master's own business."""

HIDDEN = "<hidden>"
_SECRET = re.compile("secret|private|password", re.IGNORECASE)
_ALWAYS_NEW = ("serial_no", "ctime", "mtime")


class ChangedObject(NamedTuple):
    """One object as it was (None: it was not there) and as it is now (None: it is gone)."""

    before: Stored | None
    after: Stored | None

    @property
    def thing(self) -> Stored:
        """The object, in whatever state it is known."""
        found = self.after or self.before
        assert found is not None  # noqa: S101 - one of them is there
        return found

    @property
    def change(self) -> str:
        """In one word."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"

    def differences(self) -> dict[str, list[Any]]:
        """Path of each value that differs -> `[before, after]`; of secrets only that they differ."""
        before, after = _fields(self.before), _fields(self.after)
        differing = {
            name
            for name in before.keys() | after.keys()
            if name not in _ALWAYS_NEW and before.get(name) != after.get(name)
        }
        old, new = _values(before, differing), _values(after, differing)
        return {
            path: [_shown(path, old.get(path)), _shown(path, new.get(path))]
            for path in sorted(old.keys() | new.keys())
            if old.get(path) != new.get(path)
        }


def _fields(thing: Stored | None) -> dict[str, Any]:
    return {} if thing is None else wire.plain(thing)


def _values(fields: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return dict(_leaves({name: one for name, one in fields.items() if name in names}, ""))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Values by the way to them, as `disks.0.size`; lists of plain values are values."""
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        inner = {str(index): one for index, one in enumerate(value)}.items()
    else:
        if value not in (None, "", []):
            yield path, value
        return
    for name, one in inner:
        yield from _leaves(one, f"{path}.{name}" if path else str(name))


def _shown(path: str, value: Any) -> Any:
    return HIDDEN if value is not None and _SECRET.search(path) else value
