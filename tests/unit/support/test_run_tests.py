import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "run_tests.py"
FLAKY = """
from pathlib import Path

def test_once():
    mark = Path("was-here")
    was_here = mark.exists()
    mark.touch()
    assert was_here
"""
BROKEN = """
def test_never():
    assert False
"""
SLOW = """
import subprocess, time
from pathlib import Path
import pytest

@pytest.fixture
def service():
    yield
    Path("ended-in-order").touch()

def test_with_a_daemon(service):
    subprocess.run(["sh", "-c", "setsid sleep 987 & echo $! >daemon.pid"])
    Path("ready").touch()
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def start(folder: Path) -> "subprocess.Popen[str]":
    own = {"XDG_CACHE_HOME": str(folder / "cache"), "PYTEST_ADDOPTS": ""}
    # The plugins of the project's own tests take most of a start.
    environment = {**os.environ, **own, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = [sys.executable, str(SCRIPT), "-q", "-p", "no:xdist"]
    return subprocess.Popen(
        words, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )  # fmt: skip


def run(folder: Path) -> tuple[int, str]:
    process = start(folder)
    said, _ = process.communicate()
    return process.returncode, said


def test_flaky_test_passes_the_run_and_is_named_by_the_next_one(folder: Path) -> None:
    (folder / "test_it.py").write_text(FLAKY)
    status, said = run(folder)
    assert status == 0
    assert "passed alone:\n  test_it.py::test_once" in said
    status, said = run(folder)
    assert status == 0
    assert said.startswith("Flaky in earlier runs")
    assert said.count("test_it.py::test_once") == 1, "the second run has no flaky test"


def test_broken_test_fails_the_run_beside_a_flaky_one(folder: Path) -> None:
    (folder / "test_it.py").write_text(FLAKY + BROKEN)
    status, said = run(folder)
    assert status == 1
    assert "passed alone:\n  test_it.py::test_once\n" in said


def test_many_failures_are_not_run_again(folder: Path) -> None:
    (folder / "test_it.py").write_text("".join(BROKEN.replace("never", f"n{n}") for n in range(11)))
    status, said = run(folder)
    assert status == 1
    assert "once more" not in said


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_terminated_run_leaves_no_process(folder: Path, number: int) -> None:
    (folder / "test_it.py").write_text(SLOW)
    process = start(folder)
    while not (folder / "ready").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    said, _ = process.communicate()
    assert process.returncode == 128 + number
    assert (folder / "ended-in-order").exists()
    assert "sleep 987" in said
    assert not Path(f"/proc/{(folder / 'daemon.pid').read_text().strip()}").exists()
