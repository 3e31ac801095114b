"""What a job says while programs on nodes work for it: how far they are, and what scripts say."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from ganeti.base.errors import GanetiError
from ganeti.model.objects import Node
from ganeti.rpc.procedures.streams import (
    SCRIPT_OUTPUT,
    STREAM_STATUS,
    OutputArgs,
    StreamArgs,
)
from ganeti.units.context import UnitContext

MIB = 1024 * 1024
LOOK_EVERY_S = 5.0
"""How often running scripts are asked for what they have said."""
PROGRESS_EVERY_S = 15.0


@dataclass
class ScriptWatch:
    """The script that runs by the call of `key` on a node; `label` stands before its words."""

    ctx: UnitContext
    node: Node
    key: str
    label: str = ""
    offset: int = field(default=0, init=False)

    async def tell(self) -> None:
        """Put what it has said since then into the job; a node that does not answer is asked again."""
        with contextlib.suppress(GanetiError):
            found = await self.ctx.call(
                self.node, SCRIPT_OUTPUT, OutputArgs(key=self.key, offset=self.offset)
            )
            self.offset = found.offset
            if found.skipped:
                self.ctx.log(f"   {self.label}… ({found.skipped} bytes are only in its log)")
            for line in found.text.splitlines():
                self.ctx.log(f"   {self.label}{line}")


@dataclass
class Progress:
    """How far the end of a stream is, as it was when it was told last."""

    ctx: UnitContext
    node: Node
    stream: StreamArgs
    what: str
    done: int = field(default=0, init=False)

    async def tell(self) -> None:
        """Say how far it is, how fast, and how long it will take at that rate."""
        with contextlib.suppress(GanetiError):
            found = await self.ctx.call(self.node, STREAM_STATUS, self.stream)
            rate = max(0.0, (found.done - self.done) / PROGRESS_EVERY_S)
            self.done = found.done
            self.ctx.info(f"{self.what}: {progress_words(found.done, found.total, rate)}")


def progress_words(done: int, total: int, rate: float) -> str:
    """Bytes, bytes and bytes a second as `37%, 85 MiB/s, 2m30s left`."""
    words = [f"{min(100, 100 * done // total)}%"] if total > 0 else [f"{done // MIB} MiB"]
    words.append(f"{rate / MIB:.0f} MiB/s")
    if rate > 0 and total > done:
        seconds = round((total - done) / rate)
        words.append(f"{seconds // 60}m{seconds % 60:02}s left")
    return ", ".join(words)


@contextlib.asynccontextmanager
async def telling(
    ctx: UnitContext, every_s: float, *tell: Callable[[], Awaitable[None]]
) -> AsyncIterator[None]:
    """Call these from time to time while the block runs."""

    async def work() -> None:
        while True:
            await asyncio.sleep(every_s)
            for one in tell:
                await one()

    teller = asyncio.create_task(work(), name=f"news for job {ctx.job_id}")
    try:
        yield
    finally:
        teller.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await teller
