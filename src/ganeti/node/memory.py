"""Keeps the node daemon in memory, so that it works even if its disk fails (S29, S31).

Pages are locked when they are first used. Locking everything at once would need a third more memory
for libraries and thread stacks (8 MiB each) that are never used. The code that answers calls has
run many times before a disk fails.
"""

import ctypes
import os
import resource
from pathlib import Path

from ganeti.base.errors import HostError

MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4
CAP_IPC_LOCK = 14
STATUS = Path("/proc/self/status")

_libc = ctypes.CDLL(None, use_errno=True)


def lock_memory() -> None:
    """Lock all memory of this process and of its forks; HostError if that is not allowed.

    The kernel does not lock the memory of programs that it starts.
    """
    if not may_lock():
        raise HostError(
            "the daemon cannot lock its memory: it lacks the capability CAP_IPC_LOCK and its limit"
            " of locked memory is not infinite (LimitMEMLOCK of its service); pass --no-mlock to run without the lock"
        )
    _lock()
    # A forked process does not inherit locks, but its threads do.
    os.register_at_fork(after_in_child=_lock)


def may_lock() -> bool:
    """Return whether locking can never make a later allocation fail."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return soft == resource.RLIM_INFINITY or has_capability(CAP_IPC_LOCK)


def has_capability(number: int, status: Path = STATUS) -> bool:
    """Return whether this process has a capability now."""
    for line in status.read_text("ascii", "replace").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def _lock() -> None:
    if _libc.mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT):
        error = ctypes.get_errno()
        raise HostError(f"the daemon cannot lock its memory: {os.strerror(error)}")
