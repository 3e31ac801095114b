"""Detects a blocked loop, names the code that blocked it, and ends a daemon whose loop has stopped.

A turn of the loop is what runs between two waits for events. A timer of the operating system is armed when a turn
begins and disarmed before the loop waits, so an idle daemon has no timer. To set a timer costs some microseconds in a
virtual machine, so it stays armed while the waits are short. If the timer fires and the turn has run longer than the
limit, the signal's handler sees the blocking code itself. The handler runs between any two steps of that code, perhaps
while the code holds a lock: so the handler only takes notes, and the end of the turn logs them.
"""

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from ganeti.base.systemd import notify

_log = logging.getLogger(__name__)

LIMIT_S = 0.05
SAMPLE_S = 0.025
"""Greatest age of the figure of the run queue that a turn is compared with."""
SHORT_WAIT_S = 0.005
BUSY_WAITS = 32
"""After so many short waits one after the other the timer stays armed in the next one."""
FRAMES = 4
"""Number of callers of the blocking code that are named."""

STALL_S = 60.0
"""Time after which a loop that has not turned is considered dead."""
STALL_TICK_S = 10.0


@dataclass(frozen=True)
class _Block:
    """The notes of the signal's handler."""

    task: asyncio.Task[Any] | None
    lines: tuple[tuple[CodeType, int], ...]
    """The interrupted code and its callers, innermost first, each with its line."""

    def __str__(self) -> str:
        where = " < ".join(
            f"{code.co_name} ({code.co_filename}:{line})" for code, line in self.lines
        )
        return f"{self.task.get_name() if self.task else 'a callback'}: {where}"


class LoopWatchdog:
    """A watchdog of the running loop; only in the main thread, one per process."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._selector: Any = None
        """Selector of the watched loop; None while the watchdog is stopped."""
        self._queue: RunQueue | None = None
        self._waits = False
        self._is_armed = False
        self._short_waits = 0
        """How many of the last waits were short."""
        self._begun = 0.0
        """Start of the turn."""
        self._sampled = self._waited_ms = 0.0
        """Time that this thread had waited for a processor before the turn, and when it was read."""
        self._previous: Any = signal.SIG_DFL
        self._seen: tuple[_Block, ...] = ()
        """What each alarm of this turn interrupted."""

    def start(self) -> None:
        """Start watching."""
        self._previous = signal.signal(signal.SIGALRM, self._fired)
        # Restart system calls that the timer interrupts.
        signal.siginterrupt(signal.SIGALRM, False)
        self._queue = RunQueue()
        # asyncio has no public hook before and after it waits.
        self._selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]  # noqa: SLF001
        self._selector.select = self._next_turn
        self._begin_turn()
        self._arm(self._limit_s)

    async def stop(self) -> None:
        """Stop watching; idempotent."""
        selector, self._selector = self._selector, None
        if selector is not None and self._queue is not None:
            del selector.select
            self._arm(0)
            signal.signal(signal.SIGALRM, self._previous)
            self._queue.close()

    def _next_turn(self, timeout: float | None = None) -> Any:
        """The replacement of the selector's `select`, which the loop calls between two turns."""
        self._end_turn()
        select = type(self._selector).select
        if timeout is not None and timeout <= 0:
            events = select(self._selector, timeout)
        else:
            self._waits, before = True, time.monotonic()
            if self._short_waits < BUSY_WAITS:
                self._arm(0)
            events = select(self._selector, timeout)
            self._waits = False
            is_short = time.monotonic() - before < SHORT_WAIT_S
            self._short_waits = self._short_waits + 1 if is_short else 0
            if not self._is_armed:
                self._arm(self._limit_s)
        self._begin_turn()
        return events

    def _arm(self, limit_s: float) -> None:
        """Let the timer fire after a time; 0: not at all."""
        self._is_armed = limit_s > 0
        signal.setitimer(signal.ITIMER_REAL, limit_s)

    def _begin_turn(self) -> None:
        self._begun = time.monotonic()
        if self._queue is not None and self._begun - self._sampled >= SAMPLE_S:
            self._sampled, self._waited_ms = self._begun, self._queue.waited_ms()

    def _end_turn(self) -> None:
        """Log what blocked the turn, unless other programs had the processors meanwhile."""
        seen, self._seen = self._seen, ()
        if not seen or self._queue is None:
            return
        longest = Counter(block.task for block in seen).most_common(1)[0][0]
        block = next(one for one in reversed(seen) if one.task is longest)
        took_ms = (time.monotonic() - self._begun) * 1000
        took_ms -= self._queue.waited_ms() - self._waited_ms
        if took_ms >= self._limit_s * 1000:
            _log.warning("the loop was blocked for %.0f ms by %s", took_ms, block)

    def _fired(self, _number: int, frame: FrameType | None) -> None:
        if self._waits:
            # It was left armed, or was on its way when it was disarmed. The next turn arms it.
            self._is_armed = False
            return
        left_s = self._begun + self._limit_s - time.monotonic()
        if left_s > 0:  # it is not the turn for which the timer was armed
            signal.setitimer(signal.ITIMER_REAL, left_s)
            return
        signal.setitimer(signal.ITIMER_REAL, self._limit_s)
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return
        lines: tuple[tuple[CodeType, int], ...] = ()
        while frame is not None and len(lines) < FRAMES:
            lines += ((frame.f_code, frame.f_lineno),)
            frame = frame.f_back
        self._seen += (_Block(task, lines),)


class RunQueue:
    """The time that this thread was runnable without a processor.

    A sign of a busy machine, not of a blocked loop.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):  # a kernel without these figures
            self._descriptor = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def waited_ms(self) -> float:
        """Return the time since the thread began; 0 where the kernel does not report it."""
        if self._descriptor is None:
            return 0.0
        return int(os.pread(self._descriptor, 100, 0).split()[1]) / 1e6

    def close(self) -> None:
        """Close the descriptor; idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class StallGuard:
    """Ends this process (code 1) when its loop has not turned for a minute, so that another node takes over.

    A thread of the interpreter that runs no Python code keeps the deadline. It works while the main
    thread deadlocks, or runs C code that does not release the interpreter lock. It writes "Timeout"
    and the stack of each thread to the log with bare writes and takes no lock.
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
            return os.dup(2)  # the disk of the log is full or broken

    def reopen(self) -> None:
        """Reopen the log file by its name: another program has rotated it."""
        before, self._descriptor = self._descriptor, self._opened()
        self._move_deadline()
        os.close(before)

    def _move_deadline(self) -> None:
        faulthandler.dump_traceback_later(self._limit_s, exit=True, file=self._descriptor)

    def watch(self) -> None:
        """Watch the running loop: each turn of this callback moves the deadline."""
        self._move_deadline()
        notify("WATCHDOG=1")  # the service manager's own deadline, for a process that is stopped
        asyncio.get_running_loop().call_later(self._tick_s, self.watch)
