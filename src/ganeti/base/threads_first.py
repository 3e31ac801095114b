"""Lets threads interrupt long work of the event loop sooner.

A thread that waits for the interpreter lock gets it after Python's switch interval of 5 ms, unless the loop waits
for events meanwhile. A commit releases the lock at each statement of SQLite, a dozen times: beside a loop that is
never idle it takes 60 ms, and a job with what it waits for takes a second.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

SHORT_S = 0.0002
"""Shorter ones make threads and loop change places so often that both lose time."""
_USUAL_S = sys.getswitchinterval()
_running = 0


@contextmanager
def threads_first() -> Iterator[None]:
    """While this runs, with others in the same loop or alone, threads wait for the lock for 0.2 ms."""
    global _running  # noqa: PLW0603 - the interval is one of the whole process
    _running += 1
    sys.setswitchinterval(SHORT_S)
    try:
        yield
    finally:
        _running -= 1
        if not _running:
            sys.setswitchinterval(_USUAL_S)
