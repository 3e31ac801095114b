import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import HostError
from ganeti.base.paths import Paths
from ganeti.base.pidfile import ProcessIdentity, identity_of
from ganeti.base.process import Completed
from ganeti.bootstrap import daemons as daemons_module
from ganeti.bootstrap.daemons import Daemons, daemon_environment
from ganeti.bootstrap.join import ssh_words

PROGRAM = """
import os, signal, sys, threading, time
from pathlib import Path
from ganeti.base.pidfile import holding_pid_file, pid_file
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
root = Path(os.environ["GANETI_ROOTDIR"])
if "fail" in sys.argv:
    sys.exit("no luck: " + os.environ.get("SECRET", "nothing inherited"))
with holding_pid_file(pid_file(root / "var/run/ganeti", "test-daemon"), "test-daemon") as held:
    stop.wait(0.6 if "slow" in sys.argv else 0)
    if "never" not in sys.argv:
        held.serves()
    stop.wait()
    if "lingers" in sys.argv:
        held.ends()
        while not (root / "may-end").exists():
            time.sleep(0.01)
"""


@pytest.fixture
def daemons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Daemons:
    (tmp_path / "daemon_for_test.py").write_text(PROGRAM)
    monkeypatch.setitem(daemons_module.MODULES, "test-daemon", "daemon_for_test")
    monkeypatch.setenv("SECRET", "canary")
    environment = {
        **os.environ,
        "GANETI_ROOTDIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
    }
    return Daemons(Paths(tmp_path), environment=environment, systemd=False)


async def test_a_daemon_is_started_once_found_and_stopped(daemons: Daemons) -> None:
    process = await daemons.start("test-daemon")
    assert daemons.status("test-daemon").process == process == identity_of(process.pid)
    assert os.getsid(process.pid) != os.getsid(0)
    assert await daemons.start("test-daemon") == process
    await daemons.stop("test-daemon")
    assert daemons.status("test-daemon").process is None
    assert identity_of(process.pid) is None
    await daemons.stop("test-daemon")


async def test_a_daemon_that_ends_is_waited_for_and_another_one_started(
    daemons: Daemons, tmp_path: Path
) -> None:
    process = await daemons.start("test-daemon", ["lingers"])
    os.kill(process.pid, signal.SIGTERM)
    async with asyncio.timeout(30):
        while not daemons.status("test-daemon").is_ending:  # noqa: ASYNC110 - a process is waited for
            await asyncio.sleep(0.01)
    assert daemons.status("test-daemon").is_alive
    starting = asyncio.create_task(daemons.start("test-daemon"))
    await asyncio.sleep(0.1)
    assert not starting.done()
    (tmp_path / "may-end").touch()
    second = await starting
    assert second != process
    assert identity_of(process.pid) is None
    await daemons.stop("test-daemon")


async def test_concurrent_starts_give_the_same_daemon(daemons: Daemons) -> None:
    one, other = await asyncio.gather(
        daemons.start("test-daemon", ["slow"]), daemons.start("test-daemon", ["slow"])
    )
    assert one == other
    await daemons.stop("test-daemon")


async def test_daemon_that_ends_during_its_start_is_reported_with_its_output(
    daemons: Daemons,
) -> None:
    with pytest.raises(HostError, match="ended as it started: no luck: nothing inherited"):
        await daemons.start("test-daemon", ["fail"])


async def test_a_daemon_that_starts_is_ended_as_one_that_serves(daemons: Daemons) -> None:
    starting = asyncio.create_task(daemons.start("test-daemon", ["never"]))
    async with asyncio.timeout(30):
        while not daemons.status("test-daemon").is_starting:  # noqa: ASYNC110 - a process is waited for
            await asyncio.sleep(0.01)
        await daemons.stop("test-daemon")
    assert not daemons.status("test-daemon").is_starting
    with pytest.raises(HostError, match="ended as it started"):
        await starting


async def test_daemon_that_has_not_written_its_pid_yet_is_awaited(
    daemons: Daemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await daemons.start("test-daemon")
    answers = [None, None]

    def late(_path: Path) -> ProcessIdentity | None:
        return answers.pop() if answers else process

    monkeypatch.setattr("ganeti.bootstrap.daemons.living_process", late)
    await daemons.stop("test-daemon")
    assert (answers, identity_of(process.pid)) == ([], None)


async def test_a_daemon_that_does_not_follow_is_ended_by_force(
    daemons: Daemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await daemons.start("test-daemon")
    os.kill(process.pid, 19)  # SIGSTOP: it cannot follow
    monkeypatch.setattr(daemons_module, "STOP_LIMIT_S", 0.2)
    async with asyncio.timeout(5):
        await daemons.stop("test-daemon")
    assert identity_of(process.pid) is None


async def test_on_a_host_with_systemd_its_units_are_asked(tmp_path: Path) -> None:
    asked: list[Sequence[str]] = []

    async def run(argv: Sequence[str], **_: Any) -> Completed:
        asked.append(argv)
        return Completed(tuple(argv), 0, b"", b"")

    await Daemons(Paths(tmp_path), run=run, systemd=True).stop("ganeti-noded")
    assert asked == [["systemctl", "stop", "ganeti-noded.service"]]


async def test_start_that_systemd_has_skipped_fails_at_once(tmp_path: Path) -> None:
    """`systemctl start` succeeds if a condition of the unit is not met."""

    async def run(argv: Sequence[str], **_: Any) -> Completed:
        if "is-active" in argv:
            raise HostError("systemctl: exit status 3")
        return Completed(tuple(argv), 0, b"", b"")

    with pytest.raises(HostError, match="systemctl status ganeti-masterd"):
        await Daemons(Paths(tmp_path), run=run, systemd=True).start("ganeti-masterd")


@pytest.mark.requirement("G23")
def test_daemon_inherits_only_variables_of_its_location() -> None:
    given = {"PATH": "/x", "GANETI_ROOTDIR": "/r", "SECRET": "s", "LD_PRELOAD": "l"}
    found = daemon_environment(given)
    assert (found["PATH"], found["GANETI_ROOTDIR"]) == ("/x", "/r")
    assert not {"SECRET", "LD_PRELOAD"} & found.keys()


@pytest.mark.requirement("G24")
def test_ssh_asks_nothing_and_what_it_runs_is_quoted() -> None:
    words = ssh_words("node2.example", ["ganeti-node-join", "--name", "a b; reboot"], port=2222)
    assert words[:6] == ["ssh", "-T", "-p", "2222", "-l", "root"]
    assert "BatchMode=yes" in words
    assert words[-3:] == ["--", "node2.example", "ganeti-node-join --name 'a b; reboot'"]
    assert "StrictHostKeyChecking=no" not in words
    assert "StrictHostKeyChecking=no" in ssh_words("h", ["x"], check_host_key=False)
