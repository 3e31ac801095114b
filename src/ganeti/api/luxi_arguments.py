"""The arguments of a LUXI request, checked one by one."""

from collections.abc import Sequence
from typing import Any, TypeVar

from ganeti.base.errors import InputError

T = TypeVar("T")

IDS_LIMIT = 100_000
ID_LIMIT = 2**63


class Arguments:
    """A request's list of arguments; every getter raises InputError for a wrong one."""

    def __init__(self, method: str, values: Sequence[Any], *, least: int, most: int) -> None:
        if not least <= len(values) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise InputError(f"takes {wanted} arguments, not {len(values)}", method)
        self._method = method
        self._values = values

    def text(self, index: int, default: str | None = None) -> str:
        """Return a string; `default` (if given) for null."""
        value = self.raw(index)
        if value is None and default is not None:
            return default
        return self._typed(index, value, str, "a string")

    def flag(self, index: int) -> bool:
        """Return a boolean."""
        return self._typed(index, self.raw(index), bool, "true or false")

    def number(self, index: int) -> float:
        """Return a number."""
        value = self.raw(index)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(index, "a number")
        return float(value)

    def job_id(self, index: int) -> int:
        """Return the id of a job; old clients send it as a string."""
        return self._as_job_id(self.raw(index), index)

    def job_ids(self, index: int) -> list[int]:
        """Return ids of jobs; null means none."""
        return [self._as_job_id(value, index) for value in self._list(index)]

    def texts(self, index: int) -> list[str]:
        """Return strings; null means none."""
        values = self._list(index)
        if not all(isinstance(value, str) for value in values):
            raise self._wrong(index, "a list of strings")
        return values

    def raw(self, index: int) -> Any:
        """Return the unchecked value; None if the list is shorter."""
        return self._values[index] if index < len(self._values) else None

    def _list(self, index: int) -> list[Any]:
        value = self.raw(index)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > IDS_LIMIT:
            raise self._wrong(index, f"a list of at most {IDS_LIMIT}")
        return value

    def _as_job_id(self, value: Any, index: int) -> int:
        if isinstance(value, str) and value.isascii() and value.isdecimal():
            value = int(value[:20])
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < ID_LIMIT:
            raise self._wrong(index, "the id of a job")
        return value

    def _typed(self, index: int, value: Any, kind: type[T], wanted: str) -> T:
        if not isinstance(value, kind):
            raise self._wrong(index, wanted)
        return value

    def _wrong(self, index: int, wanted: str) -> InputError:
        return InputError(f"must be {wanted}", f"{self._method}[{index}]")
