"""Backups booted by the real commands, between real daemons: no guest of a drill outlives its job."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import MASTERD, NODED
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.patience import patience
from tests.support.tiny_guest import build_tiny_guest

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(300),
    pytest.mark.requirement("G11", "F24", "A51"),
]

READY = "--expect=GANETI-TINY READY"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    guest = build_tiny_guest()
    with local_cluster("--hypervisor", "kvm", "--guest", str(guest), nodes=2) as one:
        yield one


@pytest.fixture
def name(cluster: LocalCluster) -> Iterator[str]:
    """An instance that is down, with one backup on the other node."""
    name = f"web{next(_numbers)}.example.com"
    cluster.ok(
        *("gnt-instance", "add", "-n", "node1", "-t", "file", "--disk", "0:size=64m"),
        *("-o", "tiny+default", "-B", "memory=96m", "--no-nics", "--no-start", name),
        timeout_s=120,
    )
    cluster.ok("gnt-backup", "save", "-n", "node2", name)
    yield name
    cluster.ok("gnt-instance", "remove", "-f", "--shutdown-timeout=0", name)


def shown(cluster: LocalCluster, name: str, field: str) -> list[str]:
    return cluster.ok("gnt-backup", "points", "--no-headers", "-o", field, name).lines


def drills(cluster: LocalCluster) -> list[int]:
    """The guests of this cluster's drills: QEMU gets open files, so only its directory shows whose guest it is."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal() and _is_drill(entry, cluster)
    ]


def _is_drill(process: Path, cluster: LocalCluster) -> bool:
    try:
        is_drill = b"guest=drill" in (process / "cmdline").read_bytes().split(b"\0")
        return is_drill and (process / "cwd").readlink().is_relative_to(cluster.directory)
    except OSError:
        return False


def begin_endless(cluster: LocalCluster, name: str) -> str:
    """Begin a drill whose sign of life never comes; its job, once the guest runs."""
    words = ("gnt-backup", "drill", "--submit", "--timeout=600", "--expect=never seen", name)
    found = re.search(r"\d+", cluster.ok(*words).out)
    assert found
    wait_until(lambda: bool(drills(cluster)), "the guest of the drill runs", 60)
    return found[0]


def test_backup_boots_beside_its_instance(cluster: LocalCluster, name: str) -> None:
    cluster.ok("gnt-instance", "startup", name)
    assert shown(cluster, name, "proof") == ["unproven"]
    with cluster.in_background("gnt-backup", "drill", READY, name) as process:
        wait_until(lambda: bool(drills(cluster)), "the guest of the drill runs", 60)
        assert cluster.names("instance") == {name}
        assert "unknown" not in cluster.ok("gnt-cluster", "verify").out
        out, _err = process.communicate(timeout=120 * patience())
    assert process.returncode == 0, out
    assert re.search(r"boots: 'GANETI-TINY READY' after \d+\.\d s \(96 MiB, tcg\)", out)
    assert drills(cluster) == []
    assert shown(cluster, name, "proof") == ["good"]
    assert cluster.value("instance", name, "status") == "running"


def test_drill_outlives_the_node_daemon(cluster: LocalCluster, name: str) -> None:
    (point,) = shown(cluster, name, "backup")
    with cluster.in_background("gnt-backup", "drill", READY, name, point) as process:
        wait_until(lambda: bool(drills(cluster)), "the guest of the drill runs", 60)
        cluster.kill(NODED, 2)
        cluster.start(NODED, 2)
        out, _err = process.communicate(timeout=120 * patience())
    assert process.returncode == 0, out
    assert drills(cluster) == []
    assert shown(cluster, name, "proof") == ["good"]


def test_drill_ends_with_its_master(cluster: LocalCluster, name: str) -> None:
    begin_endless(cluster, name)
    cluster.kill(MASTERD)
    cluster.start(MASTERD)
    wait_until(lambda: not drills(cluster), "the guest of the drill ends", 60)
    assert shown(cluster, name, "proof") == ["unproven"]  # a drill was requested


def test_cancelled_drill_ends(cluster: LocalCluster, name: str) -> None:
    job = begin_endless(cluster, name)
    cluster.ok("gnt-job", "cancel", "--kill", "--yes-do-it", job)
    wait_until(lambda: not drills(cluster), "the guest of the drill ends", 60)


def test_backup_of_an_empty_disk_fails_with_the_last_lines_of_its_console(
    cluster: LocalCluster, name: str
) -> None:
    (disk,) = cluster.disks()
    with disk.open("r+b") as file:
        file.write(bytes(4096))
    cluster.ok("gnt-backup", "save", name)
    assert "did not pass" in cluster.fails("gnt-backup", "drill", READY, name)
    assert shown(cluster, name, "proof") == ["unproven", "failed"]
    failure = shown(cluster, name, "failure")[1]
    assert "without 'GANETI-TINY READY'; the console ends: " in failure
