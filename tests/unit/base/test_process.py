"""The one runner of programs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.process import OUTPUT_LIMIT, CommandFailed, run
from tests.unit.base.test_call_programs import is_gone


async def test_output_and_errors_are_kept_apart() -> None:
    done = await run(["sh", "-c", "echo out; echo err >&2"])
    assert (done.status, done.stdout, done.stderr) == (0, b"out\n", b"err\n")
    assert done.text == "out\nerr"


async def test_output_beyond_the_limit_is_dropped_and_the_program_continues() -> None:
    done = await run(["sh", "-c", "head -c 5000000 /dev/zero; echo done >&2; exit 0"])
    assert len(done.stdout) == OUTPUT_LIMIT
    assert done.stderr == b"done\n"


async def test_input_is_given_and_need_not_be_read() -> None:
    assert (await run(["cat"], stdin=b"text")).stdout == b"text"
    assert (await run(["true"], stdin=b"x" * 1_000_000)).status == 0


async def test_program_with_endless_output_is_killed_with_its_children() -> None:
    with pytest.raises(CommandFailed, match=r"did not end within 0\.2 s"):
        await asyncio.wait_for(run(["sh", "-c", "yes; true"], timeout_s=0.2), 10)


async def test_a_cancelled_run_leaves_no_program() -> None:
    task = asyncio.create_task(run(["sh", "-c", "yes & yes"]))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)


async def test_a_bad_end_is_an_error_unless_it_is_asked_about() -> None:
    with pytest.raises(CommandFailed, match="sh: exit status 3: why") as caught:
        await run(["sh", "-c", "echo why >&2; exit 3"])
    assert caught.value.completed.status == 3
    assert (await run(["sh", "-c", "exit 3"], check=False)).status == 3


async def test_a_program_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(CommandFailed, match="cannot be started"):
        await run(["/no/such/program"])


async def test_a_run_that_is_cancelled_while_it_starts_leaves_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, file = asyncio.get_running_loop(), tmp_path / "child"
    start = loop.subprocess_exec

    async def slow(*args: Any, **named: Any) -> Any:
        started = await start(*args, **named)
        while not file.exists() or not file.read_text():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        return started

    monkeypatch.setattr(loop, "subprocess_exec", slow)
    words = ["/bin/sh", "-c", f"sleep 1000 & echo $! >{file}; wait"]
    task = asyncio.create_task(run(words))
    while not file.exists() or not file.read_text():  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await is_gone(int(file.read_text()))
