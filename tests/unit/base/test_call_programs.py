"""Programs that hang within a call are ended by the key of the call, with all their processes."""

import asyncio
import os
from pathlib import Path

import pytest

from ganeti.base import call_programs
from ganeti.base.call_programs import CallPrograms, run_endable
from ganeti.base.process import CommandFailed

KEY = "7/0/r1"
HANGS = "sleep 1000 & echo $! >{0}.child; echo $$ >{0}; wait"


async def pid_in(path: Path) -> int:
    async with asyncio.timeout(10):
        while not (path.exists() and path.read_text().strip()):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
    return int(path.read_text())


async def is_gone(pid: int) -> bool:
    """Whether a process ends within a moment; its parent may be an init that reaps late."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        await asyncio.sleep(0.01)
    return False


async def test_a_hanging_program_is_ended_by_its_key_with_its_children(tmp_path: Path) -> None:
    programs, file = CallPrograms(), tmp_path / "pid"
    with programs.of(KEY):
        call = asyncio.create_task(run_endable(["/bin/sh", "-c", HANGS.format(file)]))
    pid, child = await pid_in(file), await pid_in(file.with_suffix(".child"))
    assert await programs.end("7/0/r2")
    os.kill(child, 0)
    assert await programs.end(KEY)
    with pytest.raises(CommandFailed, match="was stopped by the master"):
        await call
    assert await is_gone(pid)
    assert await is_gone(child)
    assert await programs.end(KEY), "nothing is left to be ended"


async def test_the_programs_that_clean_up_after_one_that_was_ended_run(tmp_path: Path) -> None:
    programs, file = CallPrograms(), tmp_path / "pid"

    async def attach_and_clean_up() -> str:
        try:
            await run_endable(["/bin/sh", "-c", HANGS.format(file)])
        except CommandFailed:
            return (await run_endable(["/bin/echo", "cleaned up"])).text
        return "not ended"

    with programs.of(KEY):
        call = asyncio.create_task(attach_and_clean_up())
    await pid_in(file)
    assert await programs.end(KEY)
    assert await call == "cleaned up"


async def test_a_caller_that_is_cancelled_itself_learns_that_and_ends_its_program(
    tmp_path: Path,
) -> None:
    programs, file = CallPrograms(), tmp_path / "pid"
    with programs.of(KEY):
        call = asyncio.create_task(run_endable(["/bin/sh", "-c", HANGS.format(file)]))
    pid = await pid_in(file)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await is_gone(pid)


async def test_a_program_that_does_not_go_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_programs, "GONE_S", 0.05)
    programs, is_free = CallPrograms(), asyncio.Event()

    async def waits_for_a_dead_disk(*_args: object, **_named: object) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await is_free.wait()

    monkeypatch.setattr(call_programs, "run", waits_for_a_dead_disk)
    with programs.of(KEY):
        call = asyncio.create_task(run_endable(["attach"]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not await programs.end(KEY)
    is_free.set()
    with pytest.raises(CommandFailed):
        await call


async def test_outside_a_call_a_program_runs_as_always() -> None:
    assert (await run_endable(["/bin/echo", "well"])).text == "well"
