"""`make demo` as a newcomer meets it: real daemons, a real virtual machine, and nothing left behind."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_cluster import processes_of, short_directory
from tests.support.patience import patience, ran
from tests.support.tiny_guest import build_tiny_guest

pytestmark = [pytest.mark.host, pytest.mark.in_turn, pytest.mark.timeout(360)]

LIMIT_S = 300
"""The demo's own promise, installation included."""


def demo(directory: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ganeti.vcluster.demo", "--dir", str(directory), *words]
    return ran(command, limit_s=LIMIT_S, stderr=subprocess.STDOUT)


@pytest.fixture
def directory() -> Iterator[Path]:
    with short_directory() as parent:
        try:
            yield parent / "demo"
        finally:
            demo(parent / "demo", "down")


COMMANDS = [
    "gnt-cluster init", "gnt-node add", "gnt-node add", "gnt-cluster info", "gnt-node list",
    "gnt-os list", "gnt-image import", "gnt-image list", "gnt-instance add", "gnt-instance list",
    "gnt-instance console",
    "gnt-instance migrate", "gnt-instance list", "gnt-instance console", "gnt-instance shutdown",
    "gnt-instance list", "gnt-instance startup", "gnt-instance console", "gnt-instance reboot",
    "gnt-instance console", "gnt-job list", "gnt-cluster verify",
]  # fmt: skip


@pytest.mark.requirement("G11")
def test_the_demo_shows_a_virtual_machine_and_leaves_nothing_behind(directory: Path) -> None:
    build_tiny_guest()  # where there is none yet, its packages are fetched first
    begun = time.monotonic()
    done = demo(directory, "up")
    said = done.stdout
    assert done.returncode == 0, said
    assert time.monotonic() - begun < LIMIT_S * patience()

    assert re.findall(r"^node1# (gnt-\w+ [a-z]+)", said, re.MULTILINE) == COMMANDS
    assert re.search(r"Selected nodes for the instance: node\d", said)
    places = re.findall(r"^web1\.example\.com .* (node\d)\S* +running", said, re.MULTILINE)
    assert len(places) == 2
    assert places[0] != places[1]
    assert "ADMIN_down" in said
    boots = re.findall(r"GANETI-TINY READY hostname=web1.example.com boot=(\d)", said)
    assert boots == ["1", "2", "3"]
    assert "ERROR" not in said
    assert "Traceback" not in said
    assert "gnt-instance console web1.example.com" in said.partition("To continue:")[2]

    running = processes_of(directory)
    assert sum("qemu-system" in command for command in running.values()) == 1
    again = demo(directory, "up")
    assert (again.returncode, "is up already" in again.stdout) == (0, True)
    assert processes_of(directory) == running

    assert demo(directory, "down").returncode == 0
    assert not any(_is_alive(pid) for pid in running)
    assert processes_of(directory) == {}
    assert not directory.exists()
    again = demo(directory, "down")
    assert (again.returncode, "not running" in again.stdout) == (0, True)


@pytest.mark.requirement("D6", "D7")
def test_demo_shows_how_an_instance_survives_its_node(directory: Path) -> None:
    build_tiny_guest()
    done = demo(directory, "--ha", "up")
    said = done.stdout
    assert done.returncode == 0, said
    assert re.search(r"After \d+ seconds web1\.example\.com runs on node[13]", said)
    boots = re.findall(r"GANETI-TINY READY hostname=web1.example.com boot=(\d)", said)
    assert boots == ["1", "2"]
    assert re.search(r"^node2\S+ +fenced .*confirms that the power is off", said, re.MULTILINE)
    assert "INSTANCE_FAILOVER(web1.example.com)" in said
    assert sum("qemu-system" in words for words in processes_of(directory).values()) == 1


def test_failed_demo_reports_the_reason_and_leaves_nothing(directory: Path) -> None:
    directory.parent.chmod(0o700)
    directory.write_text("somebody's file\n")
    done = demo(directory, "up")
    assert done.returncode == 1
    assert f"demo: {directory}" in done.stdout
    assert "Traceback" not in done.stdout
    assert directory.read_text() == "somebody's file\n"
    directory.unlink()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
