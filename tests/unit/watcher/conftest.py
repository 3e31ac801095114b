"""A cluster in one process, in virtual time, with a watcher that talks to it as to a real master."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from ganeti.model.opcode_table import parse_opcode
from ganeti.query.execute import QueryExecutor
from ganeti.query.live import LiveSource
from ganeti.simulation.virtual_time import LoopClock
from ganeti.watcher.facts import Memory
from ganeti.watcher.master import MasterRound, RoundOptions
from ganeti.watcher.records import read_memory
from tests.support.units_cluster import Master, World


@dataclass
class WatcherClient:
    """The requests that the watcher makes, answered by the real queue and the real queries."""

    master: Master
    calls: list[str] = field(default_factory=list)

    async def call(self, method: str, *args: Any) -> Any:
        self.calls.append(method)
        master = self.master
        live = LiveSource(master.rpc, LoopClock(), lambda: len(master.rpc.changing_calls))
        queries = QueryExecutor(lambda: master.snapshot, master.queue, master.locks.snapshot, live)
        if method == "SubmitJob":
            ops = [parse_opcode(op) for op in args[0]]
            return await master.queue.submit(ops)
        if method == "QueryJobs":
            return await queries.job_values(args[0], args[1])
        if method == "Query":
            answer = await queries.query(args[0], args[1], args[2])
            return msgspec.to_builtins({"data": answer.data})
        if method == "QueryWatcherMemory":
            return master.queue.watcher_memory
        if method == "SetWatcherMemory":
            return await master.queue.keep_watcher_memory(*args)
        assert method == "AutoArchiveJobs"
        return [0, 0]


@dataclass
class Watcher:
    """Runs of the watcher on one master; `said` is what it told."""

    master: Master
    options: RoundOptions = field(default_factory=RoundOptions)
    said: list[str] = field(default_factory=list)

    @property
    def memory(self) -> Memory:
        return read_memory(self.master.queue.watcher_memory)

    async def run(self) -> None:
        client = WatcherClient(self.master)
        await MasterRound(client, self.said.append, self.options, LoopClock().time).run()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def master(world: World) -> AsyncIterator[Master]:
    one = await Master.begin(world)
    yield one
    await one.end()


@pytest.fixture
def watcher(master: Master) -> Watcher:
    return Watcher(master, RoundOptions(verify_disks=False))
