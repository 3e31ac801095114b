"""Runs programs of the host: lists of words, a deadline, and bounded, cleaned output.

Pure functions elsewhere make the commands. This is the only runner, injected so that tests can
compare words instead of running programs.
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
"""Bytes of output kept per stream; further output is dropped."""

CLEAN_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C",
    "HOME": "/root",
}


@dataclass(frozen=True)
class Completed:
    """The result of a finished program; a negative status is the signal that ended it."""

    argv: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Return both streams, errors last, for people."""
        return (self.stdout + self.stderr).decode(errors="replace").strip()


class CommandFailed(HostError):
    """A program ended with an error, could not be started, or took too long."""

    def __init__(self, completed: Completed, why: str) -> None:
        tail = completed.text[-2000:]
        super().__init__(f"{completed.argv[0]}: {why}" + (f": {tail}" if tail else ""))
        self.completed = completed
        self.why = why
        """The error without the program's output."""


class Run(Protocol):
    """Run a program to its end; raise CommandFailed unless `check` is off and the program ended without being killed."""

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
    linger_s: float | None = None,
    cwd: str | None = None,
) -> Completed:
    """Run a program: no shell, a clean environment, its own process group, killed at the deadline.

    It ends when no process has the program's output open. With `linger_s`, processes left in the
    background are read for at most that time after its exit, and keep running.
    """
    words = tuple(argv)
    loop = asyncio.get_running_loop()
    starting = asyncio.ensure_future(
        loop.subprocess_exec(
            _Output,
            *words,
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(CLEAN_ENVIRONMENT if env is None else env),
            start_new_session=True,
            cwd=cwd,
        )
    )
    try:
        transport, output = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The program may run already: asyncio would end only this process, and wait for its
        # children.
        with contextlib.suppress(OSError):
            await _ended_with_its_group(*(await starting))
        raise
    except OSError as err:
        raise CommandFailed(
            Completed(words, 127, b"", b""), f"cannot be started: {err.strerror}"
        ) from err
    try:
        async with asyncio.timeout(timeout_s):
            _feed(transport, stdin)
            await output.wait(linger_s)
    except TimeoutError as err:
        done = output.completed(words, -signal.SIGKILL)
        raise CommandFailed(done, f"did not end within {timeout_s:g} s and was killed") from err
    finally:
        is_over = (output.ended if linger_s is None else output.exited).done()
        await _ended_with_its_group(transport, output, kill=not is_over)
    done = output.completed(words, transport.get_returncode() or 0)
    if check and done.status:
        raise CommandFailed(done, f"exit status {done.status}")
    return done


async def _ended_with_its_group(
    transport: asyncio.SubprocessTransport, output: "_Output", *, kill: bool = True
) -> None:
    if kill:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(transport.get_pid(), signal.SIGKILL)
    # Closes this side of the pipes as well: a pipe that another process keeps open would never be
    # seen to end.
    transport.close()
    await output.ended


class _Output(asyncio.SubprocessProtocol):
    """Reads all output of a program, so that it never blocks, but keeps only OUTPUT_LIMIT bytes a stream."""

    def __init__(self) -> None:
        self._kept = {1: bytearray(), 2: bytearray()}
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the program has ended and its streams are closed."""
        self.exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the program has ended; its children may still have its streams."""

    async def wait(self, linger_s: float | None) -> None:
        """Return when the program has ended, and its streams are closed or `linger_s` are over."""
        if linger_s is not None:
            await asyncio.shield(self.exited)
            await asyncio.wait((self.ended,), timeout=linger_s)
        else:
            await asyncio.shield(self.ended)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        kept = self._kept[fd]
        kept += data[: OUTPUT_LIMIT - len(kept)]

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.process_exited()
        if not self.ended.done():
            self.ended.set_result(None)

    def completed(self, words: tuple[str, ...], status: int) -> Completed:
        return Completed(words, status, bytes(self._kept[1]), bytes(self._kept[2]))


def _feed(transport: asyncio.SubprocessTransport, data: bytes | None) -> None:
    """Write a program's input; the program need not read all of it."""
    pipe = transport.get_pipe_transport(0)
    if data is not None and isinstance(pipe, asyncio.WriteTransport):
        pipe.write(data)
        pipe.write_eof()
