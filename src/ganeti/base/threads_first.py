"""Lets threads interrupt long work of the event loop sooner.

A thread that waits for the interpreter lock gets it after Python's switch interval of 5 ms, unless the loop waits
for events meanwhile. A commit releases the lock at each statement of SQLite. Beside a loop that is never idle, a job
took up to 1.6 s to submit.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

SHORT_S = 0.0002
"""With 0.5 ms, one submission in a hundred still took more than 0.1 s (`benchmarks/bench_clients.py`)."""
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
