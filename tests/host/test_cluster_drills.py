"""Backups booted by the real commands, between real daemons: no guest of a drill outlives its job."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import MASTERD, NODED
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.tiny_guest import build_tiny_guest

pytestmark = [
    pytest.mark.host,
    pytest.mark.timeout(300),
    pytest.mark.requirement("G11", "F24", "A51"),
]

READY = "--expect=GANETI-TINY READY"
NAME = "web1.example.com"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    guest = build_tiny_guest()
    with local_cluster("--hypervisor", "kvm", "--guest", str(guest), nodes=2) as one:
        one.ok(
            *("gnt-instance", "add", "-n", "node1", "-t", "file", "--disk", "0:size=64m"),
            *("-o", "tiny+default", "-B", "memory=96m", "--no-nics", "--no-start", NAME),
            timeout_s=120,
        )
        one.ok("gnt-backup", "save", "-n", "node2", NAME)
        yield one


def proof(cluster: LocalCluster) -> list[str]:
    return cluster.ok("gnt-backup", "points", "--no-headers", "-o", "proof", NAME).lines


def drills() -> list[int]:
    """The guests of drills: QEMU gets open files, so no word of its command names the cluster."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal() and _is_drill(entry)
    ]


def _is_drill(process: Path) -> bool:
    try:
        return b"guest=drill" in (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def test_backup_boots_beside_its_instance(cluster: LocalCluster) -> None:
    cluster.ok("gnt-instance", "startup", NAME)
    try:
        assert proof(cluster) == ["unproven"]
        with cluster.in_background("gnt-backup", "drill", READY, NAME) as process:
            wait_until(lambda: bool(drills()), "the guest of the drill runs", 60)
            assert cluster.names("instance") == {NAME}
            verified = cluster.ok("gnt-cluster", "verify").out
            assert "unknown" not in verified
            out, _err = process.communicate(timeout=120)
        assert process.returncode == 0, out
        assert re.search(r"boots: 'GANETI-TINY READY' after \d+\.\d s \(96 MiB, tcg\)", out)
        assert drills() == []
        assert proof(cluster) == ["good"]
        assert cluster.value("instance", NAME, "status") == "running"
    finally:
        cluster.ok("gnt-instance", "shutdown", "--timeout=0", NAME)


def test_drill_outlives_the_node_daemon(cluster: LocalCluster) -> None:
    with cluster.in_background("gnt-backup", "drill", READY, NAME) as process:
        wait_until(lambda: bool(drills()), "the guest of the drill runs", 60)
        cluster.kill(NODED, 2)
        cluster.start(NODED, 2)
        out, _err = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert drills() == []


def test_drill_ends_with_its_master(cluster: LocalCluster) -> None:
    words = ("gnt-backup", "drill", "--submit", "--timeout=600", "--expect=never seen", NAME)
    cluster.ok(*words)
    wait_until(lambda: bool(drills()), "the guest of the drill runs", 60)
    cluster.kill(MASTERD)
    cluster.start(MASTERD)
    wait_until(lambda: not drills(), "the guest of the drill ends", 60)
    assert proof(cluster) == ["good"]  # this drill had no result


def test_cancelled_drill_ends(cluster: LocalCluster) -> None:
    words = ("gnt-backup", "drill", "--submit", "--timeout=600", "--expect=never seen", NAME)
    found = re.search(r"\d+", cluster.ok(*words).out)
    assert found
    wait_until(lambda: bool(drills()), "the guest of the drill runs", 60)
    cluster.ok("gnt-job", "cancel", "--kill", "--yes-do-it", found[0])
    wait_until(lambda: not drills(), "the guest of the drill ends", 60)


def test_backup_of_an_empty_disk_fails_with_the_last_lines_of_its_console(
    cluster: LocalCluster,
) -> None:
    disk = next(one for one in cluster.disks())
    content = disk.read_bytes()
    try:
        with disk.open("r+b") as file:
            file.write(bytes(4096))
        cluster.ok("gnt-backup", "save", NAME)
        said = cluster.fails("gnt-backup", "drill", READY, NAME)
    finally:
        disk.write_bytes(content)
    assert "did not pass" in said
    assert proof(cluster) == ["good", "failed"]
    failure = cluster.ok("gnt-backup", "points", "--no-headers", "-o", "failure", NAME).lines
    assert "without 'GANETI-TINY READY'; the console ends: " in failure[1]
