"""Processes that are known by more than their id."""

import os
import sys
from pathlib import Path

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.base.process_table import ProcessId
from ganeti.hypervisor.kvm.processes import HostProcesses

SLEEPER = [sys.executable, "-c", "import time; time.sleep(300)"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


async def test_a_process_is_seen_until_it_is_killed(log: Path) -> None:
    host = HostProcesses()
    process = host.spawn(SLEEPER, log)
    assert host.is_alive(process)
    assert os.getsid(process.pid) == process.pid
    assert host.cpu_time_s(process) >= 0
    assert not await host.ended_within(process, 0)
    host.kill(process)
    assert await host.ended_within(process, 10)
    assert not host.is_alive(process)
    host.kill(process)
    assert await host.ended_within(process, 0)
    assert host.cpu_time_s(process) == 0


async def test_another_process_of_the_same_id_is_not_touched(log: Path) -> None:
    host = HostProcesses()
    process = host.spawn(SLEEPER, log)
    stranger = ProcessId(process.pid, process.start_ticks + 1)
    assert not host.is_alive(stranger)
    host.kill(stranger)
    assert host.is_alive(process)
    host.kill(process)
    assert await host.ended_within(process, 10)


async def test_a_process_is_found_by_its_very_words(log: Path) -> None:
    host = HostProcesses()
    words = [*SLEEPER, f"marked {os.getpid()}"]
    assert host.find(words) is None
    process = host.spawn(words, log)
    for _ in range(1000):
        if host.find(words):
            break
        await host.ended_within(process, 0.01)
    assert host.find(words) == process
    assert host.find([*words[:-1], "other"]) is None
    host.kill(process)
    assert await host.ended_within(process, 10)
    assert host.find(words) is None


async def test_its_output_is_kept_and_no_descriptor_of_ours_is_inherited(log: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        code = f"import os,sys; print(os.path.exists('/proc/self/fd/{writer}'), file=sys.stderr)"
        host = HostProcesses()
        process = host.spawn([sys.executable, "-c", code], log)
        assert await host.ended_within(process, 20)
    finally:
        os.close(reader)
        os.close(writer)
    assert log.read_text() == "False\n"


def test_a_program_that_is_not_there_is_named(log: Path) -> None:
    with pytest.raises(HypervisorError, match="/nowhere/qemu cannot be started"):
        HostProcesses().spawn(["/nowhere/qemu"], log)
