"""Slows the reading of a running guest's disk down while the guest writes.

A guest's write waits for a read that is in progress: at the disk, in QEMU's main loop, for a processor. So while the
guest writes, the parts are small, and after each of them the reader pauses for a multiple of the time that it took. A
guest that does not write is read at full speed. Pauses never lower the rate below LEAST_RATE: slow disks get none.
"""

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

LARGE, SMALL = 1 << 20, 128 << 10
"""Bytes that are read at once from a disk of a guest that does not write, and of one that does."""
PAUSE = 4
"""A pause is so many times as long as the read before it: a fifth of the time is left to the reader."""
LEAST_RATE = 32 << 20
"""Bytes a second: a backup of a guest that always writes must end, too."""
WRITES_STILL_S = 0.2
"""Time for which a guest counts as writing after its last write."""
NICENESS = 10
"""Of the programs that make a backup: guests and daemons come first."""
_PEER = struct.Struct("3i")
_WRITTEN = b"\nwrite_bytes: "


class Throttle:
    """Decides the length of the next read, and pauses after it."""

    def __init__(
        self,
        written: Callable[[], int | None],
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`written` returns a number that rises with each write of the guest; None if it is unknown."""
        self._written, self._now, self._sleep = written, now, sleep
        self._last = written()
        self._begun = now()
        self._quiet_at = self._begun

    def begin(self) -> int:
        """Begin a read; return its maximum length."""
        found = self._written()
        self._begun = self._now()
        if found != self._last:
            self._last, self._quiet_at = found, self._begun + WRITES_STILL_S
        return SMALL if self._is_writing else LARGE

    def end(self) -> None:
        """End the read: pause, if the guest writes."""
        if self._is_writing:
            taken_s = self._now() - self._begun
            self._sleep(max(0.0, min(PAUSE * taken_s, SMALL / LEAST_RATE - taken_s)))

    @property
    def _is_writing(self) -> bool:
        return self._begun < self._quiet_at


def written_by(process: Path) -> int | None:
    """Return the bytes that a process, a directory of /proc, has caused to be written to disks; None if unknown."""
    with contextlib.suppress(OSError, ValueError):
        content = (process / "io").read_bytes()
        return int(content[content.index(_WRITTEN) + len(_WRITTEN) :].split(b"\n", 1)[0])
    return None


def server_of(connection: socket.socket) -> Path:
    """Return the directory in /proc of the process that listens at the other end of a local socket."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return Path("/proc") / str(_PEER.unpack(found)[0])


def step_back() -> None:
    """Let guests and daemons have the processor first."""
    os.setpriority(os.PRIO_PROCESS, 0, max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))
