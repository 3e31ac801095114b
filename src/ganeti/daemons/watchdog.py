"""Notices when the loop is blocked, names what blocked it, and ends a daemon whose loop stands still.

A timer of the operating system is pushed back at each turn of a short callback. If it ever fires, that
was not run for longer than the limit; the signal's handler then sees the blocking code itself.
The handler runs between any two steps of that code, perhaps while it holds a lock: so it only takes
notes, and the next turn logs them once the loop goes on.
"""

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from ganeti.base.systemd import notify

_log = logging.getLogger(__name__)

LIMIT_S = 0.05
TICK_S = 0.025
FRAMES = 4
"""How many callers of the blocking code are named."""

STALL_S = 60.0
"""A loop that has not come round for so long does not come round any more."""
STALL_TICK_S = 5.0


@dataclass(frozen=True)
class _Block:
    """What the signal's handler has seen."""

    task: asyncio.Task[Any] | None
    lines: tuple[tuple[CodeType, int], ...]
    """The code that ran and its callers, innermost first, each with its line."""

    def __str__(self) -> str:
        where = " < ".join(
            f"{code.co_name} ({code.co_filename}:{line})" for code, line in self.lines
        )
        return f"{self.task.get_name() if self.task else 'a callback'}: {where}"


class LoopWatchdog:
    """Watches the running loop; only in the main thread of a process, one at a time."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: RunQueue | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._begun = self._waited_ms = 0.0
        """When the last turn was, and how long this thread had waited for a processor by then."""
        self._previous: Any = signal.SIG_DFL
        self._seen: _Block | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._previous = signal.signal(signal.SIGALRM, self._fired)
        # System calls that the timer interrupts are begun again.
        signal.siginterrupt(signal.SIGALRM, False)
        self._queue = RunQueue()
        self._loop = asyncio.get_running_loop()
        self._turn()

    async def stop(self) -> None:
        """Stop watching; may be repeated."""
        timer, self._timer = self._timer, None
        if timer is not None and self._queue is not None:
            timer.cancel()
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._previous)
            self._queue.close()

    def _turn(self) -> None:
        """Forty times a second in every daemon, so it is a callback and no task."""
        assert self._loop is not None  # noqa: S101 - `start` has set both
        assert self._queue is not None  # noqa: S101
        now, waited_ms = self._loop.time(), self._queue.waited_ms()
        block, self._seen = self._seen, None
        if block is not None:
            took_ms = (now - self._begun - TICK_S) * 1000
            self._report(block, took_ms - (waited_ms - self._waited_ms))
        self._begun, self._waited_ms = now, waited_ms
        signal.setitimer(signal.ITIMER_REAL, TICK_S + self._limit_s)
        self._timer = self._loop.call_later(TICK_S, self._turn)

    def _report(self, block: _Block, took_ms: float) -> None:
        if took_ms < self._limit_s * 1000:
            return  # the rest of the time other programs had the processors
        _log.warning("the loop was blocked for %.0f ms by %s", took_ms, block)

    def _fired(self, _number: int, frame: FrameType | None) -> None:
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return
        if task is None and frame is not None and "selectors" in frame.f_code.co_filename:
            return  # it waits for events: the machine was too busy to run us, we were not
        lines: tuple[tuple[CodeType, int], ...] = ()
        while frame is not None and len(lines) < FRAMES:
            lines += ((frame.f_code, frame.f_lineno),)
            frame = frame.f_back
        self._seen = _Block(task, lines)


class RunQueue:
    """How long this thread could run but got no processor: the machine's fault, not the loop's."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):  # a kernel without these figures
            self._descriptor = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def waited_ms(self) -> float:
        """Since the thread began; 0 where the kernel does not say."""
        if self._descriptor is None:
            return 0.0
        return int(os.pread(self._descriptor, 100, 0).split()[1]) / 1e6

    def close(self) -> None:
        """Give the descriptor back; may be repeated."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class StallGuard:
    """Ends this process (code 1) when its loop has not come round for a minute, so that another takes over.

    The deadline is kept by a thread of the interpreter's own that runs no Python code: it works while
    the main thread waits for itself, or is in C code that lets no other thread run. Its last words,
    "Timeout" and where each thread stood, go to the log by bare writes: no lock is taken.
    """

    def __init__(self, log: Path, limit_s: float = STALL_S, tick_s: float = STALL_TICK_S) -> None:
        self._log = log
        self._limit_s = limit_s
        self._tick_s = tick_s

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        """Guard from the first `watch` on, as long as the block runs."""
        self._descriptor = self._opened()
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            os.close(self._descriptor)

    def _opened(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self._log, flags, 0o640)
        except OSError:
            return os.dup(2)  # the disk of the log is full, or broken

    def reopen(self) -> None:
        """Say the last words in the file that has the log's name now: another program has rotated it."""
        before, self._descriptor = self._descriptor, self._opened()
        self._move_deadline()
        os.close(before)

    def _move_deadline(self) -> None:
        faulthandler.dump_traceback_later(self._limit_s, exit=True, file=self._descriptor)

    def watch(self) -> None:
        """Begin with the running loop: each turn of this callback moves the deadline."""
        self._move_deadline()
        notify("WATCHDOG=1")  # the service manager's own deadline, for a process that is stopped
        asyncio.get_running_loop().call_later(self._tick_s, self.watch)
