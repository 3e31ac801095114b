"""The loop watchdog names what blocks, never from its handler; a loop that stands still ends its daemon."""

import asyncio
import itertools
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

import pytest

from ganeti.daemons import watchdog as watchdogs
from ganeti.daemons.watchdog import BUSY_WAITS, LIMIT_S, LoopWatchdog, RunQueue

UNITS = Path(__file__).parents[3] / "packaging" / "systemd"
LOGGING_UNDER_ALARMS = """
import asyncio, logging, sys, threading, time
from pathlib import Path
from ganeti.base.logs import logging_to
from ganeti.daemons.watchdog import LoopWatchdog

def log_until(is_over):
    while not is_over():
        logging.getLogger("test").info("a line")

def is_an_alarm_logged():
    return "the loop was blocked for " in Path(sys.argv[1]).read_text()

async def main():
    watchdog = LoopWatchdog(0.001)  # an alarm each millisecond
    watchdog.start()
    for _ in range(15):  # an alarm while others have the processor is not counted
        end = time.monotonic() + 2
        log_until(lambda: time.monotonic() > end)
        await asyncio.sleep(0.1)
        if is_an_alarm_logged():
            break
    await watchdog.stop()

stop = threading.Event()
threads = [threading.Thread(target=log_until, args=(stop.is_set,), daemon=True) for _ in range(2)]
with logging_to(Path(sys.argv[1]), "test"):
    for thread in threads:
        thread.start()
    asyncio.run(main())
    stop.set()
    for thread in threads:
        thread.join()
"""

STANDS_STILL = """
import asyncio, ctypes, sys, threading
from pathlib import Path
from ganeti.daemons.watchdog import StallGuard

def waits_for_itself():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def is_in_c_code():
    ctypes.PyDLL(None).sleep(100)  # lets no other thread run Python code

async def main(guard, how):
    guard.watch()
    await asyncio.sleep(1)
    print("serves", flush=True)
    how()

guard = StallGuard(Path(sys.argv[1]), 0.5, 0.05)
with guard.armed():
    asyncio.run(main(guard, globals()[sys.argv[2]]))
"""


def blocks(caplog: pytest.LogCaptureFixture) -> list[tuple[float, str]]:
    """Each block of the loop that was logged: how long it took, and what blocked."""
    found = re.findall(r"the loop was blocked for (\d+) ms by (.+)", caplog.text)
    return [(float(took_ms), culprit) for took_ms, culprit in found]


async def greedy() -> None:
    end = time.thread_time() + 0.2  # of a processor, however many others want it
    while time.thread_time() < end:
        pass


async def test_a_loop_that_gets_no_processor_is_not_blamed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waited = itertools.count(step=10_000)
    monkeypatch.setattr(RunQueue, "waited_ms", lambda _self: next(waited))
    watchdog = LoopWatchdog()
    watchdog.start()
    await asyncio.create_task(greedy())
    await asyncio.sleep(0.05)
    await watchdog.stop()
    assert blocks(caplog) == []


async def test_what_blocks_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = LoopWatchdog()
    watchdog.start()

    await asyncio.create_task(greedy(), name="job-7")
    await asyncio.sleep(0.05)
    await watchdog.stop()
    took_ms, culprit = blocks(caplog)[-1]
    assert culprit.startswith("job-7: greedy")
    assert took_ms > 100


async def test_a_loop_that_only_waits_is_not_blamed(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = LoopWatchdog()
    watchdog.start()
    await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=0.2)
    await watchdog.stop()
    assert blocks(caplog) == []


async def test_a_watched_loop_that_waits_has_no_alarms() -> None:
    watchdog = LoopWatchdog()
    alarms = 0

    def count(_number: int, _frame: FrameType | None) -> None:
        nonlocal alarms
        alarms += 1

    watchdog.start()
    signal.signal(signal.SIGALRM, count)
    await asyncio.sleep(0.5)  # ten times the limit
    await watchdog.stop()
    assert alarms == 0


async def test_after_many_short_waits_the_timer_stays_armed_and_then_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    armed: list[float] = []
    monkeypatch.setattr(signal, "setitimer", lambda _which, seconds: armed.append(seconds))
    monkeypatch.setattr(watchdogs, "SHORT_WAIT_S", 60.0)
    watchdog = LoopWatchdog()
    watchdog.start()
    for _ in range(3 * BUSY_WAITS):
        await asyncio.sleep(0.0001)
    waits = len(armed)
    assert armed == [LIMIT_S, *(0, LIMIT_S) * BUSY_WAITS]
    watchdog._waits = True
    watchdog._fired(signal.SIGALRM, None)  # the loop waits at last: nothing is armed again
    watchdog._waits = False
    assert len(armed) == waits
    await asyncio.sleep(0.0001)
    assert armed[waits:] == [LIMIT_S]  # the next turn has its alarm
    await watchdog.stop()
    assert armed[-1] == 0
    assert blocks(caplog) == []


async def test_a_block_after_many_short_waits_is_named(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = LoopWatchdog()
    watchdog.start()
    for _ in range(2 * BUSY_WAITS):
        await asyncio.sleep(0.0001)
    await asyncio.create_task(greedy(), name="job-8")
    await watchdog.stop()
    assert [culprit.split()[0] for _, culprit in blocks(caplog)] == ["job-8:"]


async def test_many_short_turns_are_not_a_block(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = LoopWatchdog()
    watchdog.start()
    for _ in range(5000):
        await asyncio.sleep(0)
    await watchdog.stop()
    assert blocks(caplog) == []


async def test_a_block_after_many_short_turns_is_named(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = LoopWatchdog()
    watchdog.start()
    for _ in range(1000):
        await asyncio.sleep(0)
    await asyncio.create_task(greedy(), name="job-8")
    await watchdog.stop()
    assert [culprit.split()[0] for _, culprit in blocks(caplog)] == ["job-8:"]


@pytest.mark.sampled(0)
@pytest.mark.timeout(90)
def test_an_alarm_while_the_loop_logs_never_lets_it_wait_for_itself(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOGGING_UNDER_ALARMS, tmp_path / "log"],
        capture_output=True,
        text=True,
        check=False,
        timeout=80,
    )
    assert done.returncode == 0, done.stderr
    assert "the loop was blocked for " in (tmp_path / "log").read_text()  # it has seen alarms


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["waits_for_itself", "is_in_c_code"])
def test_stalled_loop_ends_its_daemon_and_logs_the_position(tmp_path: Path, how: str) -> None:
    log = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", STANDS_STILL, log, how],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.stdout == "serves\n"  # twice the limit has passed by then
    assert done.returncode == 1
    words = log.read_text()
    assert words.startswith("Timeout")
    assert f"in {how}" in words


def test_the_service_manager_starts_a_daemon_again_that_ended_so() -> None:
    for name in ("ganeti-masterd", "ganeti-noded"):
        assert "\nRestart=on-failure\n" in (UNITS / f"{name}.service").read_text()
