"""Limits of time that grow with the load of the machine, which other tests and other runs share."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

SLICE_S = 1.0


def patience() -> float:
    """How many times as long as on a quiet machine things may take now, where others have work for it too."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def text_of(
    process: "subprocess.Popen[str]", limit_s: float, given: str | None = None
) -> list[str]:
    """Wait until a process ends; its standard output and error. TimeoutExpired after the limit, which grows with load."""
    begun = time.monotonic()
    while True:
        try:
            return [text or "" for text in process.communicate(given, timeout=SLICE_S)]
        except subprocess.TimeoutExpired:
            given = None  # `communicate` remembers what it has not sent
            if time.monotonic() - begun > limit_s * patience():
                raise


def ran(
    words: Sequence[str | Path],
    *,
    limit_s: float,
    given: str | None = None,
    stderr: int | IO[str] = subprocess.PIPE,
    **options: Any,
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end; it is killed after the limit, which grows with load."""
    stdin = subprocess.DEVNULL if given is None else subprocess.PIPE
    with subprocess.Popen(
        words, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, text=True, **options
    ) as process:
        try:
            out, err = text_of(process, limit_s, given)
        finally:
            process.kill()  # nothing, where it has ended
    return subprocess.CompletedProcess(words, process.returncode, out, err)
