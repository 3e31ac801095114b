"""Programs of the host: lists of words, a deadline, and output that is bounded and cleaned.

Commands are made by pure functions elsewhere; this is the one runner, injected so that
tests can compare words instead of running anything.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ganeti.base.errors import HostError

OUTPUT_LIMIT = 1024 * 1024
"""Bytes of output kept per stream; what a program says beyond it is dropped."""

CLEAN_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C",
    "HOME": "/root",
}


@dataclass(frozen=True)
class Completed:
    """What a finished program left behind; a negative status is the signal that ended it."""

    argv: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Both streams, errors last, for people."""
        return (self.stdout + self.stderr).decode(errors="replace").strip()


class CommandFailed(HostError):
    """A program ended with an error, could not be started, or took too long."""

    def __init__(self, completed: Completed, why: str) -> None:
        tail = completed.text[-2000:]
        super().__init__(f"{completed.argv[0]}: {why}" + (f": {tail}" if tail else ""))
        self.completed = completed


class Run(Protocol):
    """Runs a program to its end; raises CommandFailed unless `check` is off and it ended by itself."""

    async def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Completed: ...


async def run(
    argv: Sequence[str],
    *,
    timeout_s: float = 60.0,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> Completed:
    """The real runner: no shell, a clean environment, its own process group, killed at the deadline."""
    words = tuple(argv)
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(CLEAN_ENVIRONMENT if env is None else env),
            start_new_session=True,
        )
    except OSError as err:
        raise CommandFailed(
            Completed(words, 127, b"", b""), f"cannot be started: {err.strerror}"
        ) from err
    try:
        async with asyncio.timeout(timeout_s):
            stdout, stderr = await process.communicate(stdin)
    except BaseException as err:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        if isinstance(err, TimeoutError):
            done = Completed(words, -signal.SIGKILL, b"", b"")
            raise CommandFailed(done, f"did not end within {timeout_s:g} s and was killed") from err
        raise
    done = Completed(words, process.returncode or 0, stdout[:OUTPUT_LIMIT], stderr[:OUTPUT_LIMIT])
    if check and done.status:
        raise CommandFailed(done, f"exit status {done.status}")
    return done
