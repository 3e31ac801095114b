"""Identifiers in place of `ganeti.base.ids` that are the same in each run."""


class CountingIds:
    """Identifiers that count from 1."""

    def __init__(self) -> None:
        self._count = 0

    def _next(self) -> int:
        self._count += 1
        return self._count

    def uuid(self) -> str:
        return f"00000000-0000-4000-8000-{self._next():012x}"

    def token(self, size: int = 16) -> str:
        return f"{self._next():0{2 * size}x}"

    def number(self, below: int) -> int:
        return self._next() % below
