"""Time and identifiers that a test controls, in place of `ganeti.base.clock` and `ganeti.base.ids`."""


class FrozenClock:
    """A clock that only `advance` moves."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


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
