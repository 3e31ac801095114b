"""Limits that grow with the load: of a command, of a wait, and of a test."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import patience
from tests.support.patience import ran

SLEEPS = [sys.executable, "-c", "import time; time.sleep(0.2); print('done')"]
HANGS = [sys.executable, "-c", "import time; time.sleep(600)"]
CASE = """
import time
def test_slow():
    time.sleep(0.6)
"""


def loaded(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    load = factor * (os.cpu_count() or 1)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))


def test_patience_is_never_below_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for factor, found in ((0.0, 1.0), (0.5, 1.0), (7.0, 7.0)):
        loaded(monkeypatch, factor)
        assert patience.patience() == found


def test_command_may_take_longer_on_a_loaded_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SLICE_S", 0.01)
    loaded(monkeypatch, 1000.0)
    assert ran(SLEEPS, limit_s=0.05).stdout == "done\n"
    loaded(monkeypatch, 1.0)
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        ran(HANGS, limit_s=0.05)
    assert time.monotonic() - begun < 60


def test_command_reads_what_it_is_given_and_its_status_is_returned() -> None:
    code = "import sys; sys.stderr.write(sys.stdin.read()); sys.exit(3)"
    done = ran([sys.executable, "-c", code], limit_s=60, given="x" * 200_000)
    assert (done.returncode, done.stdout, len(done.stderr)) == (3, "", 200_000)
    assert ran([sys.executable, "-c", code], limit_s=60).stderr == ""


@pytest.mark.parametrize(("factor", "passes"), [(1, False), (1000, True)])
def test_limit_of_a_test_grows_with_the_load(tmp_path: Path, factor: int, *, passes: bool) -> None:
    (tmp_path / "test_case.py").write_text(CASE)
    (tmp_path / "conftest.py").write_text(
        "import os\n"
        f"os.getloadavg = lambda: ({factor} * (os.cpu_count() or 1),) * 3\n"
        "from tests.conftest import pytest_timeout_set_timer\n"
    )
    done = ran(
        [sys.executable, "-m", "pytest", "-q", "--timeout=0.2", "-p", "no:cacheprovider",
         "--override-ini=addopts=", f"--rootdir={tmp_path}", tmp_path],
        limit_s=60, cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert ("1 passed" in done.stdout) is passes, done.stdout + done.stderr
    assert ("Timeout" in done.stdout) is not passes
