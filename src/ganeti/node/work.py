"""Ends work of earlier masters that may still run on this node (R11)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ganeti.base.errors import NotMaster
from ganeti.node.tasks import Tasks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.stale_work import (
    END_STALE_WORK,
    EndWorkArgs,
    EndWorkResult,
    UnfinishedWork,
)
from ganeti.rpc.server import RunningCall, RunningCalls

LONGEST_WAIT_S = 30.0


@dataclass(frozen=True)
class NodeWork:
    """The work on this node: running calls and programs."""

    running: RunningCalls
    tasks: Tasks
    check_epoch: Callable[[int, str], Awaitable[str | None]]
    """Returns why a master and its epoch are refused; None if they are accepted."""

    def handlers(self) -> Handlers:
        return {END_STALE_WORK.name: self.end}

    def older_than(self, epoch: int) -> list[str]:
        """Return descriptions of the work that masters before an epoch started (R8)."""
        tasks = [f"task {key}" for key, one in self.tasks.origins().items() if one.epoch < epoch]
        return self.running.older_than(epoch) + sorted(tasks)

    async def end(self, args: EndWorkArgs, call: Call) -> EndWorkResult:
        """End programs and wait for other work; report surviving programs as running."""
        if why := await self.check_epoch(call.epoch, call.master_uuid):
            raise NotMaster(why)
        keys = frozenset(args.keys)

        def is_to_end(key: str, epoch: int) -> bool:
            return key in keys or (args.older and epoch < call.epoch)

        origins = await asyncio.to_thread(self.tasks.origins)
        chosen = {key for key, one in origins.items() if is_to_end(key, one.epoch)}
        # Keys without a process are ended too: a call in transit must not start.
        ordered = sorted(chosen | keys)
        results = await asyncio.gather(*(self._end_programs(key) for key in ordered))
        resisting = [key for key, is_over in zip(ordered, results, strict=True) if not is_over]

        def is_awaited(one: RunningCall) -> bool:
            return one.call.key not in resisting and is_to_end(one.call.key, one.call.epoch)

        limit_s = min(max(args.wait_s, 0.0), LONGEST_WAIT_S)
        calls = await self.running.ended(is_awaited, limit_s)
        unfinished = [UnfinishedWork(what=one.text, instance=one.instance) for one in calls]
        for key in resisting:
            origin = origins.get(key)
            instance = origin.instance if origin else ""
            unfinished.append(UnfinishedWork(what=f"task {key}", instance=instance))
        ended = [f"task {key}" for key in sorted(chosen) if key not in resisting]
        return EndWorkResult(ended=ended, unfinished=unfinished)

    async def _end_programs(self, key: str) -> bool:
        """End the task of a key, and the programs of its call without a task.

        Return False if something survives.
        """
        ended = await asyncio.gather(self.tasks.end(key), self.running.programs.end(key))
        return all(ended)
