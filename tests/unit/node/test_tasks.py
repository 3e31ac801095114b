import asyncio
import contextlib
import os
import signal
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ganeti.base.errors import HostError, InputError
from ganeti.guest_os.scripts import TIMED_OUT
from ganeti.node import tasks as node_tasks
from ganeti.node.tasks import (
    RECORD_LIFETIME_S,
    SUPERVISOR,
    Program,
    Tasks,
    open_port,
    supervisor_words,
)
from tests.support.predictable import FrozenClock


class Bench:
    """One directory of tasks, and daemons that come and go over it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "tasks"
        self.log = directory / "log"
        self.clock = FrozenClock()
        self.gate = directory / "gate"
        os.mkfifo(self.gate)

    def daemon(self) -> Tasks:
        return Tasks(self.directory, self.clock)

    async def run(
        self, tasks: Tasks, script: str, *, key: str = "7/0/1", timeout_s: float = 60, **env: str
    ) -> int:
        argv = ["/bin/sh", "-c", script, "sh", str(self.gate)]
        return await tasks.run(key, argv, env=env, log_path=self.log, timeout_s=timeout_s)

    def open_gate(self) -> None:
        """Let a script go on that waits in `read` from the gate."""
        descriptor = os.open(self.gate, os.O_RDWR | os.O_NONBLOCK)
        os.write(descriptor, b"\n")
        self._opened = descriptor

    def close(self) -> None:
        with contextlib.suppress(AttributeError):
            os.close(self._opened)

    def path(self, ending: str) -> Path:
        return next(self.directory.glob(f"*{ending}"))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.mark.requirement("G23")
async def test_secret_reaches_the_program_by_a_pipe_and_no_file(bench: Bench) -> None:
    secret = b"5ecret" * 400
    script = 'eval "exec 9<&$PIPE"; wc -c <&9; grep -c 5[e]cret /proc/$$/environ /proc/$$/cmdline; wc -c <&9'
    program = Program(
        ["/bin/bash", "-c", script],
        env={},
        log_path=bench.log,
        timeout_s=60,
        secret=secret,
        secret_variable="PIPE",
    )
    assert "5ecret" not in repr(program)
    tasks = bench.daemon()
    await tasks.complete("7/0/1", program)
    said = bench.log.read_text().split()
    assert said[0] == str(len(secret))
    assert [one.rpartition(":")[2] for one in said[1:3]] == ["0", "0"]
    assert said[3] == "0"  # it can be read once
    for file in bench.directory.iterdir():
        assert b"5ecret" not in file.read_bytes()


WAIT = 'echo begun; read line <"$1"; echo over; exit 3'


async def until(condition: "object") -> None:
    assert callable(condition)
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - another process is waited for
            await asyncio.sleep(0.01)


async def begun(bench: Bench) -> None:
    await until(lambda: bench.log.exists() and "begun" in bench.log.read_text())


async def test_the_status_of_the_program_comes_back_and_its_output_is_kept(bench: Bench) -> None:
    assert await bench.run(bench.daemon(), "echo hello; echo problem >&2; exit 5") == 5
    assert bench.log.read_text().splitlines() == ["hello", "problem"]


async def test_the_same_key_gives_the_same_status_without_a_second_run(bench: Bench) -> None:
    for tasks in (bench.daemon(), bench.daemon()):
        assert await bench.run(tasks, "echo once; exit 4") == 4
        assert await bench.run(tasks, "echo once; exit 4") == 4
    assert bench.log.read_text() == "once\n"


async def test_two_callers_at_once_share_one_program(bench: Bench) -> None:
    tasks = bench.daemon()
    both = asyncio.gather(bench.run(tasks, WAIT), bench.run(tasks, WAIT))
    await begun(bench)
    bench.open_gate()
    assert list(await both) == [3, 3]
    assert bench.log.read_text() == "begun\nover\n"


async def test_a_new_daemon_waits_for_the_program_that_the_old_one_started(bench: Bench) -> None:
    old, new = bench.daemon(), bench.daemon()
    first = asyncio.create_task(bench.run(old, WAIT))
    await begun(bench)
    await old.close()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert new.running() == ["7/0/1"]
    again = asyncio.create_task(bench.run(new, WAIT))
    await asyncio.sleep(0)
    assert new.running() == ["7/0/1"]
    bench.open_gate()
    assert await again == 3
    assert new.running() == []
    assert bench.log.read_text() == "begun\nover\n"


async def test_a_cancelled_caller_leaves_the_program_running(bench: Bench) -> None:
    tasks = bench.daemon()
    caller = asyncio.create_task(bench.run(tasks, WAIT))
    await begun(bench)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    bench.open_gate()
    assert await bench.run(tasks, WAIT) == 3


async def test_a_key_that_was_another_program_is_refused(bench: Bench) -> None:
    tasks = bench.daemon()
    await bench.run(tasks, "exit 0")
    with pytest.raises(HostError, match="another program"):
        await bench.run(tasks, "exit 1")


async def test_without_a_key_nothing_is_started(bench: Bench) -> None:
    with pytest.raises(InputError):
        await bench.run(bench.daemon(), "exit 0", key="")
    assert not bench.directory.exists()


async def test_a_program_beyond_its_deadline_is_ended(bench: Bench) -> None:
    assert await bench.run(bench.daemon(), 'read line <"$1"', timeout_s=1) == TIMED_OUT


async def test_a_program_that_does_not_exist_has_the_shells_status(bench: Bench) -> None:
    argv = ["/no/such/program"]
    status = await bench.daemon().run("k", argv, env={}, log_path=bench.log, timeout_s=9)
    assert status == 127
    assert "/no/such/program" in bench.log.read_text()


async def test_task_with_killed_supervisor_and_program_is_reported_as_interrupted(
    bench: Bench,
) -> None:
    tasks = bench.daemon()
    caller = asyncio.create_task(bench.run(tasks, f"exec sleep 1000 # {WAIT}"))
    await until(lambda: bench.directory.exists() and list(bench.directory.glob("*.pid")))
    await until(lambda: bench.path(".pid").read_text().endswith("\n"))
    session = int(bench.path(".pid").read_text())
    kill_session(session)
    with pytest.raises(HostError, match="did not finish"):
        await caller
    with pytest.raises(HostError, match="did not finish"):
        await bench.run(bench.daemon(), f"exec sleep 1000 # {WAIT}")


def command_lines() -> list[bytes]:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes())
    return lines


def kill_session(supervisor: int) -> None:
    session = os.getsid(supervisor)
    os.kill(supervisor, signal.SIGKILL)
    while members := _members(session):  # one may begin another before it is ended
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _members(session: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            alive = (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
            if alive and os.getsid(int(entry.name)) == session:
                found.append(int(entry.name))
    return found


async def test_a_task_that_was_recorded_but_never_started_is_started(bench: Bench) -> None:
    await bench.run(bench.daemon(), "exit 0")
    for ending in (".pid", ".status", ".lock"):
        bench.path(ending).unlink()  # as after a power cut between the record and the start
    assert await bench.run(bench.daemon(), "exit 0") == 0
    assert bench.path(".status").exists()


@pytest.mark.requirement("A58", "G23")
async def test_secrets_of_the_environment_are_not_in_the_process_list(bench: Bench) -> None:
    tasks = bench.daemon()
    caller = asyncio.create_task(bench.run(tasks, f"echo $SECRET; {WAIT}", SECRET="canary-4711"))
    await begun(bench)
    lines = command_lines()
    assert any(b"ganeti-task" in line for line in lines)
    assert not any(b"canary-4711" in line for line in lines)
    records = [path.read_bytes() for path in bench.directory.iterdir()]
    assert not any(b"canary-4711" in record for record in records)
    bench.open_gate()
    await caller
    assert "canary-4711" in bench.log.read_text()


@pytest.mark.requirement("G24")
async def test_words_and_keys_reach_no_shell(bench: Bench, tmp_path: Path) -> None:
    evil = f"$(touch {tmp_path}/x); `touch {tmp_path}/x` ' \" \n ../../x"
    argv = ["/bin/echo", evil]
    status = await bench.daemon().run(evil, argv, env={}, log_path=bench.log, timeout_s=9)
    assert status == 0
    assert bench.log.read_text() == evil + "\n"
    assert not (tmp_path / "x").exists()
    assert all(path.parent == bench.directory for path in bench.directory.rglob("*"))
    assert supervisor_words(Path("/base"), 1.0, [evil])[2] == SUPERVISOR


async def test_records_are_for_root_only_and_older_than_a_week_they_go(bench: Bench) -> None:
    tasks = bench.daemon()
    await bench.run(tasks, "exit 0")
    assert stat.S_IMODE(bench.directory.stat().st_mode) == 0o700
    assert all(not stat.S_IMODE(path.stat().st_mode) & 0o077 for path in bench.directory.iterdir())
    assert tasks.forget_old() == 0
    bench.clock.advance(RECORD_LIFETIME_S + 1)
    assert tasks.forget_old() == 1
    assert list(bench.directory.iterdir()) == []


async def test_the_record_of_a_running_task_is_never_forgotten(bench: Bench) -> None:
    tasks = bench.daemon()
    caller = asyncio.create_task(bench.run(tasks, WAIT))
    await begun(bench)
    bench.clock.advance(RECORD_LIFETIME_S + 1)
    assert tasks.forget_old() == 0
    bench.open_gate()
    assert await caller == 3


async def test_a_damaged_record_is_an_error_and_does_not_stop_the_others(bench: Bench) -> None:
    tasks = bench.daemon()
    await bench.run(tasks, "exit 0")
    bench.path(".json").write_bytes(b"\0garbage")
    with pytest.raises(InputError):
        await bench.run(tasks, "exit 0")
    assert await bench.run(tasks, "exit 6", key="8/0/1") == 6
    assert tasks.running() == []


async def test_a_link_in_place_of_the_log_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    bench.log.symlink_to(tmp_path / "victim")
    with pytest.raises(HostError, match="cannot be started"):
        await bench.run(bench.daemon(), "echo x")
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("stream", ["1", "2"])
async def test_a_program_that_prints_a_lot_does_not_fill_the_disk(
    bench: Bench, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_tasks, "LOG_LIMIT", 1_000_000)
    monkeypatch.setattr(node_tasks, "LOG_KEPT", 8192)
    script = f"{{ echo first; head -c 40000000 /dev/zero | tr '\\0' x; echo; echo last; }} >&{stream}; exit 7"
    assert await bench.run(bench.daemon(), script) == 7
    said = bench.log.read_bytes()
    assert bench.log.stat().st_blocks * 512 < 1_200_000
    assert said.startswith(b"first\nxxx")
    assert said.endswith(b"xxx\nlast\n")
    assert said[2_000_000] == 0


async def test_output_and_messages_may_go_to_two_files(bench: Bench, tmp_path: Path) -> None:
    argv = ["/bin/sh", "-c", "echo out; echo message >&2"]
    output = tmp_path / "output"
    await bench.daemon().run(
        "k", argv, env={}, log_path=bench.log, timeout_s=60, stdout_path=output
    )
    assert (bench.log.read_text(), output.read_text()) == ("message\n", "out\n")


async def test_a_program_that_kills_its_parent_has_failed_and_is_ended(bench: Bench) -> None:
    tasks = bench.daemon()
    assert await bench.run(tasks, "kill -9 $PPID; exec sleep 76543") == 128 + 9
    assert tasks.running() == []
    assert b"sleep\x0076543\0" not in command_lines()


HEARS = "import socket; socket.socket(fileno=0).accept()[0].sendall(b'hello')"


async def test_a_port_is_open_before_its_program_begins_and_only_once(
    bench: Bench, tmp_path: Path
) -> None:
    port_file = tmp_path / "port"
    opened = partial(open_port, "127.0.0.1", port_file)
    program = Program([sys.executable, "-c", HEARS], {}, bench.log, 60, listens=opened)
    tasks = bench.daemon()
    await asyncio.gather(*(tasks.begin("7/0/1", program) for _ in range(2)))
    port = int(port_file.read_text())
    restarted = bench.daemon()
    await restarted.begin("7/0/1", program)
    assert int(port_file.read_text()) == port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await reader.read() == b"hello"
    writer.close()
    assert await tasks.complete("7/0/1", program) == 0
    assert await restarted.complete("7/0/1", program) == 0
    elsewhere = replace(program, listens=partial(open_port, "192.0.2.1", port_file))
    with pytest.raises(HostError, match="cannot listen for the data"):
        await tasks.begin("7/0/2", elsewhere)
