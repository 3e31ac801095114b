"""The changes of a transaction, and the job that made them, for the audit log."""

import re
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

from ganeti.model import wire
from ganeti.model.stored import Stored

CHANGED_BY: ContextVar[int | None] = ContextVar("changed_by", default=None)
"""The job of the present task; None: the master itself."""

UNTIL_SUBMITTED: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar(
    "until_submitted", default=None
)
"""Waits until the job of the present task is stored: a refused job changes nothing."""

HIDDEN = "<hidden>"
_SECRET = re.compile("secret|private|password", re.IGNORECASE)
_ALWAYS_NEW = ("serial_no", "ctime", "mtime")


class ChangedObject(NamedTuple):
    """One object before (None: it did not exist) and after the change (None: it was removed)."""

    before: Stored | None
    after: Stored | None

    @property
    def thing(self) -> Stored:
        """Return the object, in whichever state exists."""
        found = self.after or self.before
        assert found is not None  # noqa: S101 - one of them is there
        return found

    @property
    def change(self) -> str:
        """Return the kind of change in one word."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"

    def differences(self) -> dict[str, list[Any]]:
        """Return path of each differing value -> `[before, after]`.

        For secrets only the fact that they differ.
        """
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
    """Yield values by their paths, such as `disks.0.size`; lists of plain values are values."""
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
