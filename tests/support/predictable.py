"""Time that a test controls, in place of `ganeti.base.clock`."""


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
