"""Real LVM and real DRBD: nodes that are machines, whose power is cut, under a real master outside."""

from collections.abc import Iterator

import pytest

from tests.support.local_cluster import wait_until
from tests.support.machine_cluster import MachineCluster, machine_cluster

pytestmark = [pytest.mark.host, pytest.mark.soak, pytest.mark.timeout(3600)]

WEB, LONE = "web1.example.com", "lone.example.com"
LONG_S = 1200


@pytest.fixture(scope="module")
def cluster() -> Iterator[MachineCluster]:
    with machine_cluster() as made:
        yield made


def add(cluster: MachineCluster, name: str, template: str, nodes: str, size: str = "16m") -> None:
    cluster.ok(
        *("gnt-instance", "add", "-t", template, "-n", nodes, "--disk", f"0:size={size}"),
        *("-B", "memory=16m", "--no-install", "--no-nics", name),
        timeout_s=LONG_S,
    )


def fill(cluster: MachineCluster, node: int, device: str, mib: int) -> str:
    """Write to a disk and sync it; its checksum."""
    write = f"dd if=/dev/urandom of={device} bs=1M count={mib} conv=fsync 2>/dev/null"
    cluster.inside(node, f"{write} && sync")
    return checksum(cluster, node, device)


def checksum(cluster: MachineCluster, node: int, device: str) -> str:
    return cluster.inside(node, f"sha256sum <{device}").split()[0]


def statuses(cluster: MachineCluster, name: str = WEB) -> list[str]:
    """The state of each part of the disks."""
    done = cluster.run("gnt-instance", "disk-status", name, timeout_s=LONG_S)
    return [line.split()[2] for line in done.lines[1:]]


@pytest.mark.requirement("S77", "S97", "G11", "G13", "F22", "F25")
def test_an_instance_survives_the_death_of_its_node_and_the_node_comes_back(
    cluster: MachineCluster,
) -> None:
    add(cluster, LONE, "plain", "node2")
    add(cluster, WEB, "drbd", "node2:node3")
    assert statuses(cluster) == ["ok", "ok"]
    before = fill(cluster, 2, "/dev/drbd0", 16)
    assert "s3cret" not in cluster.inside(2, "cat /proc/*/cmdline")
    volumes = cluster.inside(2, "lvs --noheadings -o lv_name xenvg").split()
    assert len(volumes) == 3
    cluster.machine(2).cut_power()
    cluster.ok("gnt-node", "modify", "--offline=yes", "node2", timeout_s=LONG_S)
    cluster.ok("gnt-instance", "failover", "-f", WEB, timeout_s=LONG_S)
    assert checksum(cluster, 3, "/dev/drbd0") == before
    after = fill(cluster, 3, "/dev/drbd0", 4)
    assert after != before
    cluster.power_on(2)
    cluster.ok("gnt-node", "modify", "--offline=no", "node2", timeout_s=LONG_S)
    cluster.ok("gnt-instance", "activate-disks", "--wait-for-sync", WEB, timeout_s=LONG_S)
    assert statuses(cluster) == ["ok", "ok"]
    received = cluster.inside(2, "grep -o 'nr:[0-9]*' /proc/drbd")
    assert int(received.partition(":")[2]) < 8 * 1024, "all was copied, not what had changed"
    cluster.ok("gnt-instance", "failover", "-f", WEB, timeout_s=LONG_S)
    assert checksum(cluster, 2, "/dev/drbd0") == after
    cluster.ok("gnt-cluster", "verify-disks", timeout_s=LONG_S)


def test_it_migrates_and_grows_and_its_copies_are_replaced(cluster: MachineCluster) -> None:
    before = checksum(cluster, 2, "/dev/drbd0")
    cluster.ok("gnt-instance", "migrate", "-f", WEB, timeout_s=LONG_S)
    assert checksum(cluster, 3, "/dev/drbd0") == before
    assert "allow-two-primaries" not in cluster.inside(3, "drbdsetup show")
    for mode in ("-s", "-p"):
        cluster.ok("gnt-instance", "replace-disks", mode, WEB, timeout_s=LONG_S)
        assert statuses(cluster) == ["ok", "ok"]
        assert checksum(cluster, 3, "/dev/drbd0") == before
    cluster.ok("gnt-instance", "grow-disk", WEB, "0", "16m", timeout_s=LONG_S)
    assert cluster.inside(3, "blockdev --getsize64 /dev/drbd0").strip() == str(32 << 20)


@pytest.mark.requirement("F22", "G13")
def test_a_split_brain_is_told_and_a_person_chooses(cluster: MachineCluster) -> None:
    cluster.ok("gnt-instance", "shutdown", WEB, timeout_s=LONG_S)
    cluster.ok("gnt-instance", "activate-disks", "--wait-for-sync", WEB, timeout_s=LONG_S)
    for node in (2, 3):
        cluster.inside(node, "ip link set eth0 down; sleep 12")
    for node in (2, 3):
        cluster.inside(node, "drbdsetup primary 0; dd if=/dev/urandom of=/dev/drbd0 bs=4k count=9")
        cluster.inside(node, "drbdsetup secondary 0; ip link set eth0 up")
    wait_until(lambda: "split-brain" in statuses(cluster), "the split brain is told", LONG_S)
    cluster.ok("gnt-instance", "replace-disks", "-s", WEB, timeout_s=LONG_S)
    cluster.ok("gnt-instance", "activate-disks", "--wait-for-sync", WEB, timeout_s=LONG_S)
    assert statuses(cluster) == ["ok", "ok"]
    cluster.ok("gnt-instance", "deactivate-disks", WEB, timeout_s=LONG_S)


@pytest.mark.requirement("G11", "F24")
def test_nothing_is_left_of_removed_instances(cluster: MachineCluster) -> None:
    for name in (WEB, LONE):
        cluster.ok("gnt-instance", "remove", "-f", name, timeout_s=LONG_S)
    for node in (2, 3):
        assert cluster.inside(node, "lvs --noheadings -o lv_name xenvg") == ""
        assert "cs:" not in cluster.inside(node, "cat /proc/drbd")
