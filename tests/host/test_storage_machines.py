"""Real LVM and real DRBD: nodes that are machines, whose power is cut, under a real master outside."""

import re
import time
from collections.abc import Iterator

import pytest

from ganeti.bootstrap.daemons import MASTERD
from tests.support.local_cluster import wait_until
from tests.support.machine_cluster import MachineCluster, machine_cluster
from tests.support.machine_traps import Trap

pytestmark = [pytest.mark.host, pytest.mark.soak, pytest.mark.timeout(7200)]

WEB = "web1.example.com"
LONG_S = 1800
SIZE_MIB, FILLED_MIB = 32, 8
ROUNDS = 100


@pytest.fixture(scope="module")
def cluster() -> Iterator[MachineCluster]:
    with machine_cluster() as made:
        yield made


@pytest.fixture
def web(cluster: MachineCluster) -> Iterator[None]:
    """A mirrored instance that runs on node 2; nothing is left of it."""
    add(cluster, WEB, "drbd", "node2:node3", SIZE_MIB)
    do(cluster, "startup", WEB)
    assert statuses(cluster) == ["ok", "ok"]
    yield
    do(cluster, "remove", "-f", WEB)
    assert_nothing_left(cluster)


def add(cluster: MachineCluster, name: str, template: str, nodes: str, size: int = 16) -> None:
    cluster.ok(
        *("gnt-instance", "add", "-t", template, "-n", nodes, "--disk", f"0:size={size}m"),
        *("-B", "memory=16m", "--no-install", "--no-nics", name),
        timeout_s=LONG_S,
    )


def do(cluster: MachineCluster, *words: str) -> None:
    done = cluster.run("gnt-instance", *words, timeout_s=LONG_S)
    assert done.status == 0, f"{words}:\n{done.out}{done.err}\n{cluster.kernel_said()}"


def fill(cluster: MachineCluster, node: int, mib: int) -> str:
    """Write to the beginning of the disk and sync it; its checksum."""
    cluster.inside(node, f"dd if=/dev/urandom of=/dev/drbd0 bs=1M count={mib} conv=fsync")
    return checksum(cluster, node)


def checksum(cluster: MachineCluster, node: int, device: str = "/dev/drbd0") -> str:
    read = f"dd if={device} bs=1M count={FILLED_MIB} 2>/dev/null | sha256sum"
    return cluster.inside(node, read).split()[0]


def statuses(cluster: MachineCluster, name: str = WEB) -> list[str]:
    """The state of each part of the disks; what the job says stands before the table."""
    done = cluster.run("gnt-instance", "disk-status", name, timeout_s=LONG_S)
    return [line.split()[2] for line in done.lines if line[:1].isdigit()]


def both_good(cluster: MachineCluster) -> None:
    do(cluster, "activate-disks", "--wait-for-sync", WEB)
    assert statuses(cluster) == ["ok", "ok"]


def volumes(cluster: MachineCluster, node: int) -> list[str]:
    return cluster.inside(node, "lvs --noheadings -o lv_name xenvg").split()


@pytest.mark.requirement("S77", "S97", "G11", "G13", "F22", "F25")
@pytest.mark.usefixtures("web")
def test_an_instance_survives_the_death_of_its_node_and_the_node_comes_back(
    cluster: MachineCluster,
) -> None:
    before = fill(cluster, 2, FILLED_MIB)
    assert len(volumes(cluster, 2)) == 2
    cluster.machine(2).cut_power()
    cluster.ok("gnt-node", "modify", "--offline=yes", "node2", timeout_s=LONG_S)
    do(cluster, "failover", "-f", "--ignore-consistency", WEB)
    assert checksum(cluster, 3) == before
    after = fill(cluster, 3, 4)
    assert after != before
    cluster.power_on(2)
    cluster.ok("gnt-node", "modify", "--offline=no", "node2", timeout_s=LONG_S)
    both_good(cluster)
    received = re.search(r"\bnr:(\d+)", cluster.inside(2, "cat /proc/drbd"))
    assert received is not None
    assert int(received[1]) < SIZE_MIB * 1024 // 2, "all was copied, not what had changed"
    do(cluster, "failover", "-f", WEB)
    assert checksum(cluster, 2) == after
    cluster.ok("gnt-cluster", "verify-disks", timeout_s=LONG_S)


@pytest.mark.requirement("F22", "G13")
@pytest.mark.usefixtures("web")
def test_a_link_that_is_cut_while_it_is_written_to_costs_nothing(cluster: MachineCluster) -> None:
    cluster.inside(3, "(ip link set eth0 down; sleep 45; ip link set eth0 up) >/dev/null 2>&1 &")
    written = fill(cluster, 2, FILLED_MIB)
    wait_until(lambda: statuses(cluster) != ["ok", "ok"], "the cut is told", LONG_S)
    wait_until(lambda: "UP" in cluster.inside(3, "ip link show eth0"), "the link is back", LONG_S)
    both_good(cluster)
    do(cluster, "failover", "-f", WEB)
    assert checksum(cluster, 3) == written


@pytest.mark.requirement("S77", "G13")
@pytest.mark.usefixtures("web")
def test_it_migrates_and_grows_and_its_copies_are_replaced(cluster: MachineCluster) -> None:
    before = fill(cluster, 2, FILLED_MIB)
    do(cluster, "migrate", "-f", WEB)
    assert checksum(cluster, 3) == before
    assert "allow-two-primaries" not in cluster.inside(3, "drbdsetup show")
    for mode in ("-s", "-p"):
        do(cluster, "replace-disks", mode, WEB)
        assert statuses(cluster) == ["ok", "ok"]
        assert checksum(cluster, 3) == before
    do(cluster, "grow-disk", WEB, "0", "16m")
    size = cluster.inside(3, "blockdev --getsize64 /dev/drbd0").strip()
    assert size == str((SIZE_MIB + 16) << 20)
    assert checksum(cluster, 3) == before


def replaced(cluster: MachineCluster) -> bool:
    return cluster.run("gnt-instance", "replace-disks", "-s", WEB, timeout_s=LONG_S).status == 0


STEPS = ("lvcreate", "create-md", "drbdsetup detach", "drbdsetup attach", "lvremove")
"""What the node does as its parts are replaced, in order."""


@pytest.mark.requirement("G11", "G13", "F24")
@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("victim", ["node daemon", "master"])
def test_any_death_during_a_replacement_leaves_a_complete_mirror(
    cluster: MachineCluster, victim: str
) -> None:
    before, trap = fill(cluster, 2, FILLED_MIB), Trap(cluster, 3)
    for step in STEPS:
        trap.set(step, "hold" if victim == "master" else "kill")
        submitted = cluster.ok("gnt-instance", "replace-disks", "-s", "--submit", WEB)
        job = re.findall(r"\d+", submitted.out)[-1]
        trap.wait()
        if victim == "master":
            cluster.kill(MASTERD)
            cluster.start(MASTERD)
        else:
            trap.serve_again()
        cluster.run("gnt-job", "wait", job, timeout_s=LONG_S)
        # What the node still does for the master that died is waited for: the instance is left alone.
        wait_until(lambda: replaced(cluster), f"copies are replaced after {step}", LONG_S)
        assert statuses(cluster) == ["ok", "ok"], step
        wait_until(lambda: len(volumes(cluster, 3)) == 2, f"nothing is left after {step}", LONG_S)
        assert checksum(cluster, 2) == before
    do(cluster, "failover", "-f", WEB)
    assert checksum(cluster, 3) == before


@pytest.mark.usefixtures("web")
def test_it_becomes_plain_and_mirrored_again_where_it_is(cluster: MachineCluster) -> None:
    before = fill(cluster, 2, FILLED_MIB)
    do(cluster, "shutdown", WEB)
    do(cluster, "modify", "-t", "plain", WEB)
    (volume,) = volumes(cluster, 2)
    assert checksum(cluster, 2, f"/dev/xenvg/{volume}") == before
    assert volumes(cluster, 3) == []
    do(cluster, "modify", "-t", "drbd", "-n", "node3", WEB)
    assert len(volumes(cluster, 2)) == 2
    do(cluster, "startup", WEB)
    both_good(cluster)
    do(cluster, "failover", "-f", WEB)
    assert checksum(cluster, 3) == before


@pytest.mark.requirement("F22", "G13")
@pytest.mark.usefixtures("web")
def test_split_brain_is_reported_and_resolved_by_an_administrator(cluster: MachineCluster) -> None:
    do(cluster, "shutdown", WEB)
    both_good(cluster)
    for node in (2, 3):
        cluster.inside(node, "ip link set eth0 down; sleep 15")
    for node in (2, 3):
        cluster.inside(node, "drbdsetup primary 0; dd if=/dev/urandom of=/dev/drbd0 bs=4k count=9")
    kept = checksum(cluster, 2)
    for node in (2, 3):
        cluster.inside(node, "drbdsetup secondary 0; ip link set eth0 up")
    wait_until(lambda: "split-brain" in statuses(cluster), "the split brain is told", LONG_S)
    assert "repair-disks --keep=NODE" in refused(cluster, "startup", WEB)
    do(cluster, "repair-disks", "-f", "--keep=node2", WEB)
    both_good(cluster)
    assert checksum(cluster, 2) == kept
    do(cluster, "deactivate-disks", WEB)


def refused(cluster: MachineCluster, *words: str) -> str:
    """What a command says that must fail."""
    done = cluster.run("gnt-instance", *words, timeout_s=LONG_S)
    assert done.status != 0, done.out
    return done.out + done.err


def cut_link(cluster: MachineCluster) -> None:
    """Nodes 2 and 3 do not reach each other; the master reaches both."""
    for node, peer in ((2, 3), (3, 2)):
        cluster.inside(node, f"ip route add blackhole {cluster.node(peer).address}/32")


def heal_link(cluster: MachineCluster) -> None:
    for node, peer in ((2, 3), (3, 2)):
        cluster.inside(node, f"ip route del blackhole {cluster.node(peer).address}/32")


def reach(cluster: MachineCluster, *wanted: str) -> None:
    wait_until(lambda: statuses(cluster) == list(wanted), f"the copies are {wanted}", LONG_S)


@pytest.mark.requirement("F22", "G13")
@pytest.mark.usefixtures("web")
def test_a_cut_link_stops_no_guest_and_every_copy_is_named_and_repaired(
    cluster: MachineCluster,
) -> None:
    old = fill(cluster, 2, FILLED_MIB)
    cut_link(cluster)
    reach(cluster, "connecting", "stale")
    new = fill(cluster, 2, 4)
    for words in (("failover", "-f"), ("migrate", "-f")):
        assert "is older than the other copy" in refused(cluster, *words, WEB)
    before = time.monotonic()
    assert "cannot grow while" in refused(cluster, "grow-disk", WEB, "0", "16m")
    cluster.ok("gnt-cluster", "verify-disks", timeout_s=LONG_S)
    assert time.monotonic() - before < 60, "something waited for the copies to connect"
    assert "disk/0 is stale" in cluster.run("gnt-cluster", "verify", timeout_s=LONG_S).out
    assert checksum(cluster, 2) == new, "the guest's disk was closed"

    do(cluster, "shutdown", WEB)
    assert statuses(cluster) == ["closed", "stale"]
    do(cluster, "startup", WEB)
    assert checksum(cluster, 2) == new
    assert "Outdated" in cluster.inside(3, "drbdsetup status")
    heal_link(cluster)
    reach(cluster, "ok", "ok")

    cut_link(cluster)
    reach(cluster, "connecting", "stale")
    newest = fill(cluster, 2, 2)
    do(cluster, "failover", "-f", "--ignore-consistency", WEB)
    assert checksum(cluster, 3) == new
    heal_link(cluster)
    reach(cluster, "split-brain", "split-brain")
    assert "repair-disks --keep=NODE" in refused(cluster, "failover", "-f", WEB)
    do(cluster, "repair-disks", "-f", "--keep=node3", WEB)
    reach(cluster, "ok", "ok")
    received = re.search(r"\bnr:(\d+)", cluster.inside(2, "cat /proc/drbd"))
    assert received is not None
    assert int(received[1]) < SIZE_MIB * 1024 // 2, "all was copied, not what had changed"
    do(cluster, "failover", "-f", WEB)
    assert checksum(cluster, 2) == new
    assert len({old, new, newest}) == 3


@pytest.mark.requirement("G11", "F24", "F25")
def test_hundred_rounds_of_adding_failing_and_removing_leave_nothing(
    cluster: MachineCluster,
) -> None:
    for number in range(ROUNDS):
        name = f"round{number}.example.com"
        if number % 3 == 2:  # the second node has no space: what the first has made goes again
            cluster.inside(3, "lvcreate -q -W n -Z n -an -l 100%FREE -n stuffing xenvg")
            failed = cluster.run(
                *("gnt-instance", "add", "-t", "drbd", "-n", "node2:node3", "--disk", "0:size=4m"),
                *("-B", "memory=16m", "--no-install", "--no-nics", name),
                timeout_s=LONG_S,
            )
            assert failed.status != 0
            cluster.inside(3, "lvremove -q -f xenvg/stuffing")
        else:
            template, nodes = ("drbd", "node2:node3") if number % 3 else ("plain", "node2")
            add(cluster, name, template, nodes, 4)
            do(cluster, "remove", "-f", name)
        assert_nothing_left(cluster)


def assert_nothing_left(cluster: MachineCluster) -> None:
    for node in (2, 3):
        assert volumes(cluster, node) == []
        assert "cs:" not in cluster.inside(node, "cat /proc/drbd")
        assert cluster.inside(node, "ls /run/ganeti | grep tmp || true") == ""


@pytest.fixture
def two_devices(cluster: MachineCluster) -> Iterator[None]:
    """The volume group of node 3 lies on two physical volumes; new volumes on the second, `right`.

    The first does not begin where the disk does, or LVM would find its label there, too.
    """
    cluster.inside(3, _TWO_DEVICES)
    yield
    cluster.inside(3, _ONE_DEVICE)


_TWO_DEVICES = """
vgremove -q -f xenvg && pvremove -q -f /dev/vdd && half=$(($(blockdev --getsz /dev/vdd) / 2 - 2048))
echo 0 $half linear /dev/vdd 2048 | dmsetup create left --noudevsync
echo 0 $half linear /dev/vdd $((half + 2048)) | dmsetup create right --noudevsync
dmsetup mknodes
vgcreate -q xenvg /dev/mapper/left /dev/mapper/right && pvchange -q -x n /dev/mapper/left
"""
_ONE_DEVICE = """
vgremove -q -f xenvg && dmsetup remove left && dmsetup remove right
pvcreate -q -y -ff /dev/vdd && vgcreate -q xenvg /dev/vdd
"""
_LOSE_RIGHT = """
pvchange -q -x y /dev/mapper/left && half=$(blockdev --getsz /dev/mapper/right)
dmsetup suspend --nolockfs --noudevsync right && dmsetup load right --table "0 $half error"
dmsetup resume --noudevsync right
"""


@pytest.mark.requirement("S6", "S94")
@pytest.mark.usefixtures("two_devices")
def test_a_volume_group_that_lost_a_physical_volume_is_repaired(cluster: MachineCluster) -> None:
    add(cluster, WEB, "drbd", "node2:node3")
    do(cluster, "startup", WEB)
    cluster.inside(3, _LOSE_RIGHT)
    written = fill(cluster, 2, FILLED_MIB)
    assert statuses(cluster)[1] != "ok"
    cluster.ok("gnt-node", "repair-storage", "node3", "lvm-vg", "xenvg", timeout_s=LONG_S)
    do(cluster, "replace-disks", "-s", WEB)
    both_good(cluster)
    do(cluster, "failover", "-f", WEB)
    assert checksum(cluster, 3) == written
    do(cluster, "remove", "-f", WEB)
