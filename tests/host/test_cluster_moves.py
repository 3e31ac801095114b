"""Guests that change nodes in a cluster of real daemons, and whatever dies meanwhile.

Every guest writes numbered lines to its disk, each synced before it is said on the console. So at the
end every line that was ever said must be on the one disk that is left, and none was said twice.
"""

import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import MASTERD, NODED
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.patience import text_of
from tests.support.tiny_guest import are_consecutive, build_tiny_guest, disk_heartbeats, heartbeats

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(240),
    pytest.mark.requirement("G5", "G11"),
]

SOURCE, TARGET, MASTER = 2, 3, 1
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def module_cluster() -> Iterator[LocalCluster]:
    guest = build_tiny_guest()
    with local_cluster("--hypervisor", "kvm", "--guest", str(guest), nodes=3) as cluster:
        # Slow enough that there is time for something to die.
        cluster.ok("gnt-cluster", "modify", "-H", "kvm:migration_bandwidth=16")
        yield cluster


@pytest.fixture
def cluster(module_cluster: LocalCluster) -> Iterator[LocalCluster]:
    yield module_cluster
    for number in (1, 2, 3):
        module_cluster.start(NODED, number)
    module_cluster.start(MASTERD)
    for name in sorted(module_cluster.names("instance")):
        module_cluster.ok("gnt-instance", "remove", "-f", "--shutdown-timeout=0", name)
    assert machines(module_cluster) == {}
    assert module_cluster.disks() == set()


@pytest.fixture
def name() -> str:
    return f"web{next(_numbers)}.example.com"


def add(cluster: LocalCluster, name: str, *, template: str, node: int = SOURCE) -> None:
    words = ["-t", template, "--disk", "0:size=64m", "-o", "tiny+default", "-B", "memory=96m", "--no-nics"]  # fmt: skip
    cluster.ok("gnt-instance", "add", "-n", f"node{node}", *words, name, timeout_s=120)
    beats(cluster, name)


def machines(cluster: LocalCluster) -> dict[int, int]:
    """Number of a node -> its QEMU process."""
    found = {}
    for pid, words in cluster.machines().items():
        (node,) = re.findall(r"path=\S+/node(\d+)/\S+\.m,", words)
        found[int(node)] = pid
    return found


def consoles(cluster: LocalCluster, name: str) -> list[Path]:
    """What the guest said, on every node on which it was."""
    uuid = cluster.value("instance", name, "uuid")
    paths = [node.paths.log / "kvm" / f"{uuid[:13]}.console" for node in cluster.cluster.nodes]
    return [path for path in paths if path.exists()]


def heard(cluster: LocalCluster, name: str) -> list[int]:
    """Every line that was said, in order of their numbers."""
    return sorted(beat for path in consoles(cluster, name) for beat in heartbeats(path))


def beats(cluster: LocalCluster, name: str, more: int = 3) -> None:
    """Wait until the guest has said some further lines."""
    before = set(heard(cluster, name))
    wait_until(lambda: len(set(heard(cluster, name)) - before) >= more, f"{name} goes on", 60)


def only_disk(cluster: LocalCluster) -> Path:
    (disk,) = cluster.disks()
    return disk


def status(cluster: LocalCluster, name: str) -> str:
    return cluster.value("instance", name, "status")


def at(cluster: LocalCluster, name: str) -> str:
    return cluster.value("instance", name, "pnode").partition(".")[0]


def lost(disk: Path, said: list[int]) -> list[int]:
    """The lines that were said and are not on the disk."""
    return sorted(set(said) - set(disk_heartbeats(disk)))


@pytest.mark.soak
@pytest.mark.parametrize("words", [[], ["--non-live"]])
def test_a_guest_migrates_with_its_disk_there_and_back(
    cluster: LocalCluster, name: str, words: list[str]
) -> None:
    add(cluster, name, template="file")
    for target in ("node3", "node2"):
        said_before = set(heard(cluster, name))
        cluster.ok("gnt-instance", "migrate", "-f", "-n", target, *words, name, timeout_s=120)
        assert at(cluster, name) == target
        assert f"/{target}/" in str(only_disk(cluster))
        beats(cluster, name)
        assert are_consecutive(sorted(said_before | set(heard(cluster, name))))
    assert len(machines(cluster)) == 1
    cluster.ok("gnt-instance", "shutdown", name)
    said = heard(cluster, name)
    assert lost(only_disk(cluster), said) == []
    assert set(disk_heartbeats(only_disk(cluster)).values()) == {1}  # one boot all the time
    cluster.ok("gnt-cluster", "verify")


def test_an_instance_moves_with_its_disk(cluster: LocalCluster, name: str) -> None:
    add(cluster, name, template="file")
    done = cluster.ok("gnt-instance", "move", "-f", "-n", "node3", name, timeout_s=120)
    assert f"{name} runs on node3" in done.out
    assert at(cluster, name) == "node3"
    assert "/node3/" in str(only_disk(cluster))
    beats(cluster, name)
    said = heard(cluster, name)
    assert are_consecutive(said)
    words = ["--stop", "--compress=gzip-fast", "--bandwidth=200"]
    done = cluster.ok("gnt-instance", "move", "-f", "-n", "node2", *words, name, timeout_s=120)
    assert re.search(r"disk 0: \d+ MiB in", done.out)
    assert at(cluster, name) == "node2"
    assert "/node2/" in str(only_disk(cluster))
    beats(cluster, name)
    assert lost(only_disk(cluster), said + heard(cluster, name)) == []
    assert set(disk_heartbeats(only_disk(cluster)).values()) == {1, 2}  # one boot for each start
    cluster.ok("gnt-cluster", "verify")


def test_an_instance_fails_over(cluster: LocalCluster, name: str) -> None:
    add(cluster, name, template="sharedfile")
    said = heard(cluster, name)
    cluster.ok("gnt-instance", "failover", "-f", "-n", "node3", name, timeout_s=120)
    assert at(cluster, name) == "node3"
    assert set(machines(cluster)) == {3}
    beats(cluster, name)
    assert lost(only_disk(cluster), said + heard(cluster, name)) == []


@pytest.mark.requirement("F21")
def test_only_a_node_that_is_marked_offline_is_taken_for_dead(
    cluster: LocalCluster, name: str
) -> None:
    add(cluster, name, template="sharedfile")
    cluster.kill(NODED, SOURCE)
    words = ["gnt-instance", "failover", "-f", "-n", "node3", name]
    assert "gnt-node modify --offline yes" in cluster.fails(*words)
    assert set(machines(cluster)) == {SOURCE}
    # The administrator makes sure that it is dead, and says so.
    os.kill(machines(cluster)[SOURCE], signal.SIGKILL)
    said = heard(cluster, name)
    cluster.ok("gnt-node", "modify", "--offline", "yes", "node2")
    try:
        cluster.ok(*words, timeout_s=120)
        beats(cluster, name)
        assert set(machines(cluster)) == {TARGET}
        assert lost(only_disk(cluster), said + heard(cluster, name)) == []
    finally:
        cluster.start(NODED, SOURCE)
        cluster.ok("gnt-node", "modify", "--offline", "no", "node2", timeout_s=120)


@pytest.mark.requirement("S99")
def test_a_node_is_emptied_and_every_job_is_shown(cluster: LocalCluster, name: str) -> None:
    add(cluster, name, template="sharedfile")
    other = f"other-{name}"
    add(cluster, other, template="file")
    done = cluster.ok("gnt-node", "migrate", "-f", "-n", "node3", "node2", timeout_s=180)
    assert [line.split()[1] for line in done.lines[-2:]] == ["success", "success"]
    assert at(cluster, name) == at(cluster, other) == "node3"
    for one in (name, other):
        beats(cluster, one)
        assert are_consecutive(heard(cluster, one))  # none is missing, and none was said twice
    assert "Nothing to do" in cluster.ok("gnt-node", "evacuate", "-f", "-n", "node1", "node2").out
    done = cluster.ok("gnt-node", "evacuate", "-f", "-n", "node1", "node3", timeout_s=180)
    assert at(cluster, name) == at(cluster, other) == "node1"
    for one in (name, other):
        beats(cluster, one)
        cluster.ok("gnt-instance", "shutdown", one)
        (disk,) = (path for path in cluster.disks() if holds(path, one))
        assert lost(disk, heard(cluster, one)) == []


def holds(disk: Path, name: str) -> bool:
    """Whether this guest is installed on the disk."""
    with disk.open("rb") as file:
        return f"\nhostname={name}\n".encode() in file.read(4096)


PARTIES = ("source noded", "target noded", "source QEMU", "target QEMU", "master")
MOMENTS = {
    "begins": (r"preparing", 0.0),
    "is about to send": (r"migrating the", 0.0),
    "sends": (r"migrating the", 0.6),
    "hands over": (r"resuming the guest", 0.0),
    "ends": (r"ending what is left", 0.0),
}
FEW = list(zip(PARTIES, MOMENTS, strict=True))
"""One cell of each row and column."""


@pytest.mark.rotated(2)
@pytest.mark.requirement("F20", "F23", "F30")
@pytest.mark.parametrize(
    ("party", "moment", "command", "template"),
    [(party, moment, "move", "file") for party, moment in FEW]
    + [
        pytest.param(party, moment, "migrate", template, marks=pytest.mark.soak)
        for template in ("file", "sharedfile")
        for party, moment in itertools.product(PARTIES, MOMENTS)
    ],
)
def test_any_death_during_a_migration_leaves_one_guest_with_its_data(
    cluster: LocalCluster, name: str, party: str, moment: str, command: str, template: str
) -> None:
    add(cluster, name, template=template)
    said = heard(cluster, name)
    words = ["gnt-instance", command, "-f", "-n", "node3", name]
    with cluster.in_background(*words) as run:
        wait_for_line(run, MOMENTS[moment][0])
        time.sleep(MOMENTS[moment][1])
        said += heard(cluster, name)
        kill(cluster, party)
        text_of(run, 180)
    jobs = ["gnt-job", "list", "--no-headers", "--running", "--pending"]
    wait_until(lambda: not cluster.ok(*jobs).lines, "the job has ended", 120)
    if run.returncode:
        cluster.ok("gnt-instance", "migrate", "-f", "--cleanup", name, timeout_s=120)
    running = machines(cluster)
    assert len(running) <= 1
    said += heard(cluster, name)
    if not running:
        assert "QEMU" in party  # nothing else may end a guest
        wait_until(lambda: status(cluster, name) == "ERROR_down", "it is known to be down")
        cluster.ok("gnt-instance", "startup", name)
    wait_until(lambda: status(cluster, name) == "running", "it is known to run")
    (node,) = machines(cluster)
    assert at(cluster, name) == f"node{node}"
    beats(cluster, name)
    now = heard(cluster, name)
    assert len(now) == len(set(now))  # never twice
    cluster.ok("gnt-instance", "shutdown", name)
    said += heard(cluster, name)
    assert lost(only_disk(cluster), said) == []
    cluster.ok("gnt-cluster", "verify")


def wait_for_line(command: "subprocess.Popen[str]", pattern: str) -> None:
    """Read what a command says until a line matches."""
    assert command.stdout is not None
    assert any(re.search(pattern, line) for line in command.stdout), f"no line with {pattern}"


def kill(cluster: LocalCluster, party: str) -> None:
    """kill -9, and start again what an administrator, or systemd, would."""
    if party == "master":
        cluster.kill(MASTERD, MASTER)
        cluster.start(MASTERD, MASTER)
        return
    node = SOURCE if party.startswith("source") else TARGET
    if party.endswith("noded"):
        cluster.kill(NODED, node)
        cluster.start(NODED, node)
    elif pid := machines(cluster).get(node):
        os.kill(pid, signal.SIGKILL)
