"""Calls to model nodes that take long, and what a job shows of them."""

import asyncio
from typing import Any

from ganeti.jobs.view import JobView
from ganeti.model.progress import Progress
from tests.support.units_cluster import Master, said

MIB = 1024 * 1024


class Slow:
    """Lets one procedure of a node take a minute, of which each second is a hundredth of the work."""

    def __init__(self, master: Master, number: int, procedure: str, part: str = "") -> None:
        self._keys, self._part = dict[str, float](), part
        handlers = master.rpc.nodes[f"node{number}.example.com"]
        handler = handlers[procedure]

        async def slowly(args: Any, call: Any) -> Any:
            self._keys[call.key] = asyncio.get_running_loop().time()
            await asyncio.sleep(60)
            del self._keys[call.key]
            return await handler(args, call)

        async def progress(args: Any, call: Any) -> Progress | None:
            del call
            if (begun := self._keys.get(args.key)) is None:
                return None
            seconds = round(asyncio.get_running_loop().time() - begun)
            return Progress(done=seconds * 10 * MIB, total=1000 * MIB, part=self._part)

        handlers[procedure], handlers["call_progress"] = slowly, progress


FIRST, SECOND = (
    "5.0% (50 of 1000 MiB), 10 MiB/s, 1m35s left",
    "20.0% (200 of 1000 MiB), 10 MiB/s, 1m20s left",
)


def check_shown(view: JobView, what: str) -> None:
    """The log has the first two looks, under this name."""
    lines = said(view).splitlines()
    for words in (FIRST, SECOND):
        assert any(f"{what}: {words}" in line for line in lines), lines
