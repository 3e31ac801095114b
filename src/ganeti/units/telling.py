"""Reports of a job about programs on nodes: their progress, and the output of scripts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from ganeti.base.errors import GanetiError
from ganeti.model.objects import Node
from ganeti.model.progress import JobProgress, Progress
from ganeti.rpc.procedures.progress import CALL_PROGRESS, ProgressArgs
from ganeti.rpc.procedures.streams import SCRIPT_OUTPUT, OutputArgs
from ganeti.units.context import UnitContext

MIB = 1024 * 1024
LOOK_EVERY_S = 5.0
"""The interval at which the output of running scripts is fetched."""
FIRST_PROGRESS_S, PROGRESS_EVERY_S = 5.0, 15.0
"""The time to a job's first line about a call, and the interval of the next ones."""
BAR_EVERY_S = 5.0
"""The interval at which the progress bar of a job moves; the log has fewer lines."""


@dataclass
class ScriptWatch:
    """The script that runs by the call of `key` on a node; `label` precedes its output."""

    ctx: UnitContext
    node: Node
    key: str
    label: str = ""
    offset: int = field(default=0, init=False)

    async def tell(self) -> None:
        """Log its new output; a node that does not answer is queried again."""
        with contextlib.suppress(GanetiError):
            found = await self.ctx.ask_beside(
                self.node, SCRIPT_OUTPUT, OutputArgs(key=self.key, offset=self.offset)
            )
            self.offset = found.offset
            if found.skipped:
                self.ctx.log(f"   {self.label}… ({found.skipped} bytes are only in its log)")
            for line in found.text.splitlines():
                self.ctx.log(f"   {self.label}{line}")


@dataclass
class Pace:
    """Describes progress, from one query to the next; `began` is a time of the event loop."""

    what: str
    began: float
    _time: float = field(init=False)
    _done: int = field(default=0, init=False)
    _part: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._time = self.began

    def step(self, found: Progress, now: float) -> tuple[str, JobProgress]:
        """Return the position, with rate and time left since the last query: in words, and for a progress bar."""
        return said_progress(self._what(found), found, self._rate(found, now))

    def _what(self, found: Progress) -> str:
        return f"{self.what}, {found.part}" if found.part else self.what

    def _rate(self, found: Progress, now: float) -> float:
        if found.part != self._part:
            self._part, self._done = found.part, 0
        rate = max(0.0, (found.done - self._done) / max(now - self._time, 0.001))
        self._time, self._done = now, found.done
        return rate


def said_progress(
    what: str, found: Progress, rate: float | None, seconds_left: float | None = None
) -> tuple[str, JobProgress]:
    """Return a position in words, and as the values for a progress bar."""
    done, total = found.done, found.total
    if found.is_time:
        rate, seconds_left = None, float(max(0, total - done))
    percent = round(100 * min(done, total) / total, 1) if total > 0 else None
    if seconds_left is None and rate and total > done:
        seconds_left = (total - done) / rate
    words = f"{what}: {progress_words(found, rate, seconds_left)}"
    return words, JobProgress(what, percent, rate, seconds_left)


def progress_words(found: Progress, rate: float | None, seconds_left: float | None = None) -> str:
    """Return a position, and bytes a second if known, as `37.0% (1136 of 3072 MiB), 85 MiB/s, 23s left`."""
    done, total = found.done, found.total
    if found.is_time:
        return f"{_span(done)} of at most {_span(total)}"
    if total > 0:
        done = min(done, total)
        words = [f"{100 * done / total:.1f}% ({done // MIB} of {total // MIB} MiB)"]
    else:
        words = [f"{done // MIB} MiB"]
    if rate is not None:
        words.append(f"{rate / MIB:.0f} MiB/s" if rate >= MIB else f"{rate / 1024:.0f} KiB/s")
    if seconds_left is None and rate and total > done:
        seconds_left = (total - done) / rate
    if seconds_left is not None:
        words.append(f"{_span(round(seconds_left))} left")
    return ", ".join(words)


def _span(seconds: int) -> str:
    """Return seconds in short form: `23s`, `2m05s`, `3h07m`."""
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 60:  # noqa: PLR2004 - an hour
        return f"{minutes}m{rest:02}s"
    return f"{minutes // 60}h{minutes % 60:02}m"


@contextlib.asynccontextmanager
async def showing(ctx: UnitContext, node: Node, what: str) -> AsyncIterator[None]:
    """Log at intervals the progress of the next changing call on `node`, which the block makes."""
    loop = asyncio.get_running_loop()
    args, pace = ProgressArgs(key=ctx.next_key), Pace(what, loop.time())
    say_at = loop.time() + FIRST_PROGRESS_S

    async def tell() -> None:
        nonlocal say_at
        with contextlib.suppress(GanetiError):  # an older version does not report progress
            found = await ctx.ask_beside(node, CALL_PROGRESS, args)
            if found is None:
                return
            words, bar = pace.step(found, loop.time())
            ctx.run.progress(bar)
            if loop.time() >= say_at:
                ctx.info(words)
                say_at = loop.time() + PROGRESS_EVERY_S

    try:
        async with telling(ctx, BAR_EVERY_S, tell):
            yield
    finally:
        ctx.run.progress(None)


@contextlib.asynccontextmanager
async def telling(
    ctx: UnitContext,
    every_s: float,
    *tell: Callable[[], Awaitable[None]],
    first_s: float | None = None,
) -> AsyncIterator[None]:
    """Call these at intervals while the block runs, first after `first_s`."""

    async def work() -> None:
        await asyncio.sleep(every_s if first_s is None else first_s)
        while True:
            for one in tell:
                await one()
            await asyncio.sleep(every_s)

    teller = asyncio.create_task(work(), name=f"progress of job {ctx.job_id}")
    try:
        yield
    finally:
        teller.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await teller
