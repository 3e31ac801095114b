"""Locking memory, in processes of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

from ganeti.base.errors import HostError
from ganeti.node import memory

LOCKED = """
import os, re, sys
from ganeti.node.memory import lock_memory
def locked():
    return int(re.search(r"VmLck:\\s+(\\d+)", open("/proc/self/status").read()).group(1))
before = locked()
lock_memory()
print(before == 0, locked() > 0)
sys.stdout.flush()
if os.fork() == 0:
    print(locked() > 0)
    sys.stdout.flush()
    os._exit(0)
os.wait()
import subprocess
print(subprocess.run(["grep", "VmLck", "/proc/self/status"], capture_output=True, text=True).stdout.split()[1])
"""


@pytest.mark.requirement("S29")
@pytest.mark.skipif(not memory.may_lock(), reason="this process may not lock memory")
def test_the_process_and_what_it_forks_are_locked_and_programs_are_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOCKED], capture_output=True, text=True, check=True, timeout=15
    )
    assert done.stdout.split() == ["True", "True", "True", "0"]


def test_process_without_the_capability_gets_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "may_lock", lambda: False)
    monkeypatch.setattr(memory, "_lock", lambda: pytest.fail("must not be tried"))
    with pytest.raises(HostError, match=r"CAP_IPC_LOCK.*--no-mlock"):
        memory.lock_memory()


@pytest.mark.parametrize(
    ("line", "has"),
    [("CapEff:\t000001ffffffffff", True), ("CapEff:\t0000000000000000", False),
     ("CapEff:\t0000000000004000", True), ("CapPrm:\t0000000000004000", False)],
)  # fmt: skip
def test_a_capability_is_read_from_its_bit(tmp_path: Path, line: str, has: bool) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tx\n{line}\n")
    assert memory.has_capability(memory.CAP_IPC_LOCK, status) is has
