import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ganeti.base.errors import HostError
from ganeti.base.files import is_locked
from ganeti.base.pidfile import (
    holding_pid_file,
    identity_of,
    is_ending,
    living_process,
    pid_file,
    serving_process,
)


def test_a_daemon_is_found_once_it_is_ready(tmp_path: Path) -> None:
    path = pid_file(tmp_path, "ganeti-test")
    assert serving_process(path) is None
    with holding_pid_file(path, "ganeti-test") as held:
        assert is_locked(path)
        assert serving_process(path) is None
        held.serves()
        assert serving_process(path) == identity_of(os.getpid())
    assert not is_locked(path)
    assert serving_process(path) is None


def test_a_daemon_that_ends_serves_no_more_and_lives(tmp_path: Path) -> None:
    path = tmp_path / "daemon.pid"
    with holding_pid_file(path, "ganeti-test") as held:
        assert not is_ending(path)
        held.ends()
        held.serves()  # it was told as it started
        assert is_ending(path)
        assert serving_process(path) is None
        assert living_process(path) == identity_of(os.getpid())
    assert not is_ending(path)
    assert living_process(path) is None


def test_second_daemon_is_refused_and_names_the_first(tmp_path: Path) -> None:
    path = tmp_path / "daemon.pid"
    with holding_pid_file(path, "ganeti-test") as held:
        held.serves()
        with (
            pytest.raises(HostError, match=f"already running.*{os.getpid()}"),
            holding_pid_file(path, "ganeti-test"),
        ):
            pass
        assert serving_process(path) is not None


def test_pid_file_of_a_killed_daemon_names_no_process(tmp_path: Path) -> None:
    path = tmp_path / "daemon.pid"
    script = (
        "import os, sys; from pathlib import Path; from ganeti.base.pidfile import holding_pid_file\n"
        "with holding_pid_file(Path(sys.argv[1]), 'x') as held:\n"
        "    held.serves(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert path.read_text().split()[0].isdecimal()
    assert serving_process(path) is None
    with holding_pid_file(path, "x") as held:
        held.serves()
        assert serving_process(path) == identity_of(os.getpid())


@pytest.mark.parametrize("content", ["", "garbage", "12", "-1 5", "1 2 3", "999999999 1"])
def test_damaged_pid_file_names_no_process(tmp_path: Path, content: str) -> None:
    path = tmp_path / "daemon.pid"
    with holding_pid_file(path, "ganeti-test"):
        path.write_text(content)
        assert serving_process(path) is None


def test_a_process_that_has_ended_has_no_identity() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert identity_of(process.pid) is None


def test_daemon_starts_while_another_process_checks_its_file(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    path.touch()
    with path.open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        timer = threading.Timer(0.05, fcntl.flock, (looking, fcntl.LOCK_UN))
        timer.start()
        with holding_pid_file(path, "x"):
            assert is_locked(path)
        timer.join()
