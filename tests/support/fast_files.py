"""Where tests keep files that need not outlive them: in memory, where every fsync takes no time.

A disk takes milliseconds for each, and the tests wait for tens of thousands of them.
"""

import os
from pathlib import Path

MEMORY = Path("/dev/shm")  # the directories in it are made by mkdtemp and pytest
DISK = Path("/var/tmp")
WANTED = 2 << 30
"""Bytes; a container may have next to nothing there."""


def fast_directory() -> Path:
    """A directory in memory with enough room where programs may be started; else one on a disk."""
    if not os.access(MEMORY, os.W_OK):
        return DISK
    found = os.statvfs(MEMORY)
    has_room = found.f_bavail * found.f_frsize >= WANTED
    return MEMORY if has_room and not found.f_flag & os.ST_NOEXEC else DISK
