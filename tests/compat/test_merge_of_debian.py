"""A running cluster of Debian's Ganeti is merged into one of ours, by ssh, and taken back where the merge is killed."""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ganeti.base.paths import Paths
from tests.support.debian_cluster import LIMIT_S, NO_SSH, DebianCluster, debian_cluster
from tests.support.debian_sshd import debian_sshd
from tests.support.sshd import PASSWORD, PORT

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(3600)]
LIST = ("gnt-instance", "list", "--no-headers", "-o", "name,pnode,status")
THEIRS, OURS = (1, 2), 3
CLUSTER_IP = "198.51.100.1/32"


@dataclass
class Two:
    """Theirs on two nodes, ours on a third."""

    cluster: DebianCluster
    known_hosts: str

    def merge(self, *options: str, status: int = 0, killed_at: str = "") -> str:
        """Run the merge on our master, and kill it in a step, if one is named; what it said."""
        words = ("ganeti-cluster-merge", "--password-stdin", f"--ssh-port={PORT}",
                 f"--known-hosts={self.known_hosts}", "--groups=merge", "--parameters=ours",
                 "--keep-unknown", *options)  # fmt: skip
        said = ""
        with subprocess.Popen(
            self.cluster.words(OURS, words), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{PASSWORD}\n")
            process.stdin.close()
            for line in process.stdout:
                said += line
                if killed_at and line.startswith(killed_at):
                    process.kill()
                    break
            process.wait(LIMIT_S)
        assert killed_at or process.returncode == status, said
        assert killed_at in said
        return said

    def their_instances(self) -> dict[str, list[str]]:
        return listed(self.cluster.theirs(1, *LIST))


def listed(said: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in said.splitlines()}


@pytest.fixture
def two() -> Iterator[Two]:
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(debian_cluster(len(THEIRS), spare=1))
        add = ["gnt-instance", "add", "-o", "noop+default", "--no-nics", "--no-name-check", "--no-ip-check",
               "-B", "memory=16M,vcpus=1"]  # fmt: skip
        for number in THEIRS:
            cluster.theirs(1, *add, "-t", "diskless", "-n", f"peernode{number}", f"i{number}.peer")
        cluster.theirs(
            1, *add, "-t", "file", "--disk=0:size=4m", "--no-start", "-n", "peernode2", "f.peer"
        )
        subprocess.run([*cluster.inside, "mkdir", "-p", str(cluster.root(OURS))], check=True)
        cluster.ours(OURS, "gnt-cluster", "init", "--enabled-hypervisors=fake",
                     "--enabled-disk-templates=file,diskless", "ours.peer")  # fmt: skip
        known = stack.enter_context(debian_sshd(cluster, *THEIRS))
        path = f"{cluster.root(OURS)}/known-hosts"
        words = [*cluster.inside, "sh", "-c", 'printf %s "$1" >"$2"', "sh", known, path]
        subprocess.run(words, check=True)
        for number in THEIRS:  # as the manual page asks
            allowed = f"{cluster.root(number)}/etc/ganeti/file-storage-paths"
            ours = f"{cluster.root(number)}/srv/ganeti/file-storage"
            change = f"mkdir -p {ours}; echo /srv/ganeti/file-storage >>{allowed}"
            line = [*cluster.inside, "sh", "-c", change]
            subprocess.run(line, check=True)
        yield Two(cluster, path)


def addresses(cluster: DebianCluster) -> str:
    words = [*cluster.inside, "ip", "-o", "address", "show", "dev", "lo"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def check_taken_back(two: Two, step: str, before: dict[str, list[str]]) -> None:
    """Kill a merge in a step: it is taken back, and the original runs as it did."""
    cluster = two.cluster
    two.merge("--force", cluster.address(1), killed_at=step)
    two.merge("--rollback")
    assert two.their_instances() == before
    cluster.theirs(1, "gnt-cluster", "verify", *NO_SSH)
    ours = cluster.ours(OURS, "gnt-node", "list", "--no-headers", "-o", "name").split()
    assert ours == ["peernode3"]
    cluster.ours(OURS, "gnt-cluster", "verify")


@pytest.mark.requirement("S33", "S41", "S43", "S45", "S46", "S47", "S48", "G28")
def test_a_running_cluster_of_the_original_is_merged_or_taken_back(two: Two) -> None:
    before, cluster = two.their_instances(), two.cluster
    assert {status for _node, status in before.values()} == {"running", "ADMIN_down"}
    said = two.merge("--dry-run", cluster.address(1))
    assert "cluster.peer: Ganeti 3.0.2, 2 nodes (peernode1, peernode2)" in said
    for step in ("Fetching the configurations", "Starting our master daemon with"):
        check_taken_back(two, step, before)
    assert CLUSTER_IP in addresses(cluster)
    two.merge("--force", cluster.address(1), killed_at="Distributing the files")
    assert CLUSTER_IP not in addresses(cluster)
    two.merge()
    assert listed(cluster.ours(OURS, *LIST)) == before
    said = cluster.ours(OURS, "gnt-cluster", "verify")
    assert "ERROR" not in said
    for number in THEIRS:
        cluster.ours(OURS, "gnt-instance", "shutdown", f"i{number}.peer")
    cluster.ours(OURS, "gnt-instance", "startup", "f.peer")
    for number in THEIRS:
        there = f"{cluster.root(number)}/var/lib/ganeti"
        subprocess.run(
            [*cluster.inside, "test", "-e", f"{there}/original/ssconf_cluster_name"], check=True
        )
        keys = str(Paths(cluster.root(number)).root_ssh / "authorized_keys")
        assert subprocess.run([*cluster.inside, "test", "-e", keys], check=False).returncode == 1
