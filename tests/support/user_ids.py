"""User ids that no other run of tests on this host uses.

Ids of processes belong to the host: a guest, or a process, of a run beside this one would take one away.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FIRST, LAST, COUNT = 63_000, 64_999, 50
"""Blocks of so many ids; tests that name ids and start no process under them use lower ones."""
DIRECTORY = Path("/var/tmp")


@contextmanager
def claimed_user_ids() -> Iterator[range]:
    """A block of ids that is this process's own; a lock that ends with the process says so."""
    for first in range(FIRST, LAST, COUNT):
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(DIRECTORY / f"ganeti-tests-uids-{first}", flags, 0o600)
        try:
            if _is_locked(descriptor):
                yield range(first, first + COUNT)
                return
        finally:
            os.close(descriptor)
    raise RuntimeError(f"all user ids from {FIRST} to {LAST} are in use by other runs of tests")


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
