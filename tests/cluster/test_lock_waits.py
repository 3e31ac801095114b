"""What the operating system sees of a job that waits for a lock."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import lock_waiter
from tests.support.patience import ran

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

_CALL = re.compile(r"^(?:\[pid +)?\d+\]? +([\d.]+) (.*)$")


@pytest.fixture
def strace() -> str:
    program = shutil.which("strace")
    if program is None:
        pytest.skip("strace is not installed")
    if subprocess.run([program, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no process may be traced here")
    return program


@pytest.mark.requirement("S27")
def test_a_wait_of_five_seconds_makes_fewer_than_five_system_calls(
    strace: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    done = ran(
        [strace, "-f", "-ttt", "-o", str(trace), sys.executable, lock_waiter.__file__],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)},
        limit_s=50,
    )
    assert done.returncode == 0, done.stderr
    calls = [found.groups() for found in map(_CALL.match, trace.read_text().splitlines()) if found]
    [begins] = [number for number, (_when, call) in enumerate(calls) if '"the wait begins' in call]
    [ends] = [number for number, (_when, call) in enumerate(calls) if '"the wait ends' in call]
    assert float(calls[ends][0]) - float(calls[begins][0]) >= lock_waiter.WAIT_S - 0.1
    waited = [call for _when, call in calls[begins + 1 : ends]]
    assert 0 < len(waited) < 5, waited
