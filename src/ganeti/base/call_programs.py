"""Programs that run within a call, so that its caller can end hanging ones by the key of the call.

A server opens `CallPrograms.of` around each call; programs that the call starts with `run_endable`
belong to its key.
"""

import asyncio
import contextlib
import functools
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar

from ganeti.base.process import CommandFailed, Completed, run

GONE_S = 4.0
"""Time that killed processes may take to end; one that waits for a failed disk does not end."""


class CallPrograms:
    """The running programs of calls, by the keys of these calls."""

    def __init__(self) -> None:
        self._running: dict[str, set[asyncio.Task[Completed]]] = {}

    @contextlib.contextmanager
    def of(self, key: str) -> Iterator[None]:
        """Assign the programs of the block, and of the tasks that it creates, to this key."""
        token = _CURRENT.set((self, key))
        try:
            yield
        finally:
            _CURRENT.reset(token)

    async def end(self, key: str) -> bool:
        """Kill the process groups of a call's programs, which then fail; return False if one still runs."""
        tasks = set(self._running.get(key, ()))
        for task in tasks:
            task.cancel()
        if not tasks:
            return True
        _done, pending = await asyncio.wait(tasks, timeout=GONE_S)
        return not pending

    async def run(self, key: str, words: Sequence[str], task: asyncio.Task[Completed]) -> Completed:
        """Wait for a program of this key; CommandFailed if it was ended."""
        self._running.setdefault(key, set()).add(task)
        try:
            return await task
        except asyncio.CancelledError:
            waiter = asyncio.current_task()
            if waiter is not None and waiter.cancelling():
                raise
            ended = Completed(tuple(words), -signal.SIGKILL, b"", b"")
            raise CommandFailed(ended, "was stopped by the master") from None
        finally:
            self._running[key].discard(task)
            if not self._running[key]:
                del self._running[key]


_CURRENT: ContextVar[tuple[CallPrograms, str] | None] = ContextVar("call_programs", default=None)


async def run_endable(
    argv: Sequence[str],
    *,
    timeout_s: float = 60.0,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    linger_s: float | None = None,
    cwd: str | None = None,
) -> Completed:
    """Run a program like `process.run`; within a call that has a key, its caller can end the program."""
    act = functools.partial(run, timeout_s=timeout_s, stdin=stdin, env=env, check=check)
    work = act(argv, linger_s=linger_s, cwd=cwd)
    current = _CURRENT.get()
    if current is None or not current[1]:
        return await work
    programs, key = current
    return await programs.run(key, argv, asyncio.create_task(work, name=f"{argv[0]} of {key}"))
