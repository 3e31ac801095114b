"""Programs of earlier masters are ended with all their processes; calls are waited for."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ganeti.base.call_programs import run_endable
from ganeti.base.errors import HostError, NotMaster
from ganeti.base.process import CommandFailed
from ganeti.node import task_processes
from ganeti.node.tasks import TaskOrigin, Tasks
from ganeti.node.work import NodeWork
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.stale_work import EndWorkArgs, EndWorkResult, UnfinishedWork
from ganeti.rpc.server import RunningCalls
from tests.support.predictable import FrozenClock

KEY = "7/0/1"
TERMINATED, KILLED = 128 + 15, 128 + 9


class Bench:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log"
        self.running = RunningCalls()
        self.tasks = self.daemon()
        self.work = NodeWork(self.running, self.tasks, self.check_epoch)
        self.over: str | None = None
        self.callers: list[asyncio.Task[int]] = []

    def daemon(self) -> Tasks:
        origin = lambda key: TaskOrigin(int(key.split("/")[0]), f"instance{key[0]}")  # noqa: E731
        return Tasks(self.directory / "tasks", FrozenClock(), origin_of=origin)

    async def check_epoch(self, epoch: int, master: str) -> str | None:
        return self.over

    def start(self, script: str, key: str = KEY) -> "asyncio.Task[int]":
        argv = ["/bin/sh", "-c", script]
        run = self.tasks.run(key, argv, env={}, log_path=self.log, timeout_s=60)
        task = asyncio.create_task(run)
        self.callers.append(task)
        return task

    async def began(self, word: str = "begun") -> None:
        async with asyncio.timeout(10):
            while not (self.log.exists() and word in self.log.read_text()):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)

    async def end(self, *keys: str, older: bool = False, epoch: int = 9) -> EndWorkResult:
        args = EndWorkArgs(keys=list(keys), older=older, wait_s=0.05)
        return await self.work.end(args, Call(epoch, "master", "k"))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for key in made.tasks.running():
        await made.tasks.end(key)
    await asyncio.gather(*made.callers, return_exceptions=True)
    await made.tasks.close()
    await made.running.close()


FOREVER = "echo begun; while :; do sleep 100; done"


@pytest.mark.requirement("G4", "G7")
async def test_a_program_of_an_older_epoch_is_ended_and_its_status_kept(bench: Bench) -> None:
    caller = bench.start(FOREVER)
    await bench.began()
    assert bench.work.older_than(7) == []
    assert bench.work.older_than(8) == ["task 7/0/1"]
    assert await bench.end(older=True, epoch=7) == EndWorkResult(ended=[], unfinished=[])
    assert bench.tasks.running() == [KEY]
    found = await bench.end(older=True, epoch=8)
    assert found == EndWorkResult(ended=["task 7/0/1"], unfinished=[])
    assert await caller == TERMINATED
    assert bench.tasks.running() == []
    # Whoever asks again, a new daemon too, learns how it ended; nothing is run again.
    again = bench.daemon().run(
        KEY, ["/bin/sh", "-c", FOREVER], env={}, log_path=bench.log, timeout_s=60
    )
    assert await again == TERMINATED
    assert bench.log.read_text().count("begun") == 1


async def test_programs_that_resist_are_ended_by_force_with_their_children(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_processes, "POLITE_S", 0.2)
    # The shell never ends by itself, also where what it waits for is killed first.
    forever = "while :; do sleep 1000; done"
    script = f"trap '' TERM; (trap '' TERM; setsid sleep 1000) & echo begun; {forever}"
    caller = bench.start(script)
    await bench.began()
    assert (await bench.end(KEY)).unfinished == []
    assert await caller in (KILLED, TERMINATED)
    assert bench.tasks.running() == []


async def test_a_stopped_program_is_ended_too(bench: Bench) -> None:
    caller = bench.start("echo begun; kill -STOP $$; sleep 100")
    await bench.began()
    assert (await bench.end(KEY)).unfinished == []
    assert await caller == TERMINATED


async def test_surviving_work_is_reported_with_its_instance(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = bench.start(FOREVER)
    await bench.began()

    async def resists(*_files: Path) -> bool:
        return False

    with monkeypatch.context() as patch:
        patch.setattr("ganeti.node.tasks.end_processes", resists)
        found = await bench.end(older=True)
    assert found.unfinished == [UnfinishedWork(what="task 7/0/1", instance="instance7")]
    assert found.ended == []
    assert (await bench.end(KEY)).unfinished == []
    await caller


@pytest.mark.requirement("G7")
async def test_a_program_whose_call_comes_late_never_begins(bench: Bench) -> None:
    assert await bench.end(KEY) == EndWorkResult(ended=[], unfinished=[])
    with pytest.raises(HostError, match="cannot start"):
        await bench.start("echo begun")
    with pytest.raises(HostError, match="cannot start"):  # after a restart of the daemon, too
        await bench.daemon().run(KEY, ["/bin/true"], env={}, log_path=bench.log, timeout_s=60)
    assert not bench.log.exists()
    assert await bench.start("exit 4", key="7/0/2") == 4


async def test_a_program_that_has_ended_keeps_its_status(bench: Bench) -> None:
    assert await bench.start("exit 4") == 4
    await bench.end(KEY)
    assert await bench.start("exit 4") == 4


async def test_calls_are_awaited_and_running_ones_reported(bench: Bench) -> None:
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    call = Call(3, "old", "5/0/1")
    running = asyncio.create_task(
        bench.running.run("migration_run", call, wait(), instance="a.example.com")
    )
    newer = asyncio.create_task(
        bench.running.run("instance_start", Call(9, "new", "6/0/1"), wait())
    )
    await asyncio.sleep(0)
    found = await bench.end(older=True)
    expected = UnfinishedWork(what="migration_run 5/0/1", instance="a.example.com")
    assert found.unfinished == [expected]
    gate.set()
    assert (await bench.end(older=True)).unfinished == []
    await asyncio.gather(running, newer)


@pytest.mark.requirement("A26")
async def test_a_master_whose_epoch_is_over_ends_nothing(bench: Bench) -> None:
    caller = bench.start(FOREVER)
    await bench.began()
    bench.over = "epoch 9 is over"
    with pytest.raises(NotMaster, match="is over"):
        await bench.end(KEY, older=True)
    assert bench.tasks.running() == [KEY]
    bench.over = None
    await bench.end(KEY)
    await caller


async def test_processes_of_others_are_not_touched(bench: Bench) -> None:
    other = bench.start(FOREVER, key="8/0/1")
    caller = bench.start("echo mine; sleep 100")
    await bench.began()
    await bench.began("mine")
    await bench.end(KEY)
    await caller
    assert bench.tasks.running() == ["8/0/1"]
    lock = next(path for path in (bench.directory / "tasks").glob("*.lock"))
    assert os.getpid() not in task_processes.members(lock, None)
    await bench.end("8/0/1")
    await other


def test_supervisor_that_ends_while_it_is_looked_at_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(pid: int) -> int:
        raise ProcessLookupError(pid)

    lock = tmp_path / "lock"
    with lock.open("w"):
        monkeypatch.setattr(os, "getsid", gone)
        assert task_processes.members(lock, os.getpid()) == {os.getpid()}


@pytest.mark.requirement("G9")
async def test_a_program_that_a_call_runs_without_a_task_is_ended_too(
    bench: Bench, tmp_path: Path
) -> None:
    file = tmp_path / "begun"
    with bench.running.programs.of("7/0/r1"):
        script = f"touch {file}; while :; do sleep 100; done"
        call = asyncio.create_task(run_endable(["/bin/sh", "-c", script]))
    async with asyncio.timeout(10):
        while not file.exists():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
    assert (await bench.end("7/0/r1")).unfinished == []
    with pytest.raises(CommandFailed, match="was stopped by the master"):
        await call
