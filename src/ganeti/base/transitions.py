"""The error of an illegal transition, with the events before it, for pure cores with a transition table."""

from collections import deque

from ganeti.base.errors import GanetiError

STORY_EVENTS = 30


class IllegalTransition(GanetiError):
    """An event that the state does not allow, or a state that contradicts itself."""


class TracedCore:
    """Keeps its last events as texts; the error of an illegal transition lists them."""

    def __init__(self) -> None:
        self._story: deque[str] = deque(maxlen=STORY_EVENTS)

    def _illegal(self, what: str) -> IllegalTransition:
        """Return the error for `what`, which cannot happen."""
        return IllegalTransition(f"{what}; the events before: {'; '.join(self._story) or 'none'}")
