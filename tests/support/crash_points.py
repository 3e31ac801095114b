"""Lets a running daemon die, or fail, at its n-th system call of some kinds; `strace` injects that.

The points of an operation are counted from the moment when `at_call` begins: try n = 1, 2, 3, … until
the operation completes untouched.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.local_cluster import wait_until

FILE_CALLS = ("fsync", "fdatasync", "pwrite64", "rename", "unlink", "ftruncate")
"""What makes something durable, or changes a file, in SQLite and in `write_atomically`."""
NETWORK_CALLS = ("sendto", "sendmsg")
"""What sends a call to a node, an answer to a client or the state to another candidate; also what wakes the loop."""

HAS_STRACE = shutil.which("strace") is not None


@dataclass
class CrashPoint:
    """What became of the daemon; known once its tracer has ended."""

    was_reached: bool = False
    """Whether the daemon made so many calls."""


@contextlib.contextmanager
def at_call(
    pid: int, number: int, *, calls: Sequence[str] = FILE_CALLS, error: str = ""
) -> Iterator[CrashPoint]:
    """Kill the process (all its threads) at the n-th of its calls from now on, or let that call fail.

    Calls of all kinds are counted together, of each thread by itself, as strace does it; so with
    `error` given each thread may fail once.
    """
    how = f"error={error}" if error else "signal=SIGKILL"
    names = ",".join(calls)
    with tempfile.TemporaryDirectory(prefix="gnt-strace-") as directory:
        log = Path(directory) / "log"
        words = ["strace", "-f", "-p", str(pid), "-o", str(log), "-e", f"trace={names}"]
        words += ["-e", f"inject={names}:{how}:when={number}"]
        with subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as tracer:
            try:
                wait_until(lambda: _is_traced(pid), "strace is attached", 10)
                point = CrashPoint()
                yield point
            finally:
                _end(tracer)
        text = log.read_text(errors="replace")
        # A tracer that had to be killed has not written all that it saw.
        point.was_reached = (
            "(INJECTED)" in text or "+++ killed by SIGKILL" in text or not _runs(pid)
        )


def _end(tracer: subprocess.Popen[bytes]) -> None:
    """Now and then strace goes on waiting for threads that are dead."""
    tracer.send_signal(signal.SIGINT)
    try:
        tracer.wait(5)
    except subprocess.TimeoutExpired:
        tracer.kill()


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def _is_traced(pid: int) -> bool:
    """All threads have a tracer, or the process is gone."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return all("TracerPid:\t0\n" not in (one / "status").read_text() for one in threads)
    except OSError:
        return not Path(f"/proc/{os.fspath(str(pid))}").exists()
