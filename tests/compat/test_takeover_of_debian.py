"""A running cluster of Debian's Ganeti is taken over by `ganeti-takeover`, and given back."""

import pytest

from tests.support.debian_cluster import NO_SSH, DebianCluster, debian_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(3600)]
LIST = ("gnt-instance", "list", "--no-headers", "-o", "name,pnode,status")
NODES = (1, 2)


def instances(said: str) -> dict[str, tuple[str, str]]:
    return {name: (node, status) for name, node, status in map(str.split, said.splitlines())}


def add_instances(cluster: DebianCluster) -> None:
    add = ["gnt-instance", "add", "-o", "noop+default", "--no-nics", "--no-name-check", "--no-ip-check",
           "-B", "memory=16M,vcpus=1"]  # fmt: skip
    for number in NODES:
        cluster.theirs(1, *add, "-t", "diskless", "-n", f"peernode{number}", f"i{number}.peer")
    cluster.theirs(
        1, *add, "-t", "file", "--disk=0:size=4m", "--no-start", "-n", "peernode2", "f.peer"
    )


@pytest.mark.requirement("G28")
def test_a_running_cluster_is_taken_over_and_given_back() -> None:
    with debian_cluster(len(NODES)) as cluster:
        add_instances(cluster)
        cluster.theirs(1, "gnt-cluster", "verify", *NO_SSH)
        before = instances(cluster.theirs(1, *LIST))
        assert {status for _, status in before.values()} == {"running", "ADMIN_down"}

        for number in NODES:
            said = cluster.ours(number, "ganeti-takeover")
            assert f"keeps running the guests i{number}.peer" in said
        original = cluster.root(1) / "var/lib/ganeti/original/config.data"
        assert "refused" not in cluster.ours(1, "gnt-cluster", "import", "--dry-run", str(original))
        cluster.ours(1, "gnt-cluster", "import", str(original))
        with cluster.joining(2) as token:
            add = ["gnt-node", "add", "--readd", "--token-file=-", "peernode2"]
            cluster.ours(1, *add, stdin=token)
        assert instances(cluster.ours(1, *LIST)) == before
        said = cluster.ours(1, "gnt-cluster", "verify")
        assert "ERROR" not in said
        assert "WARNING" not in said
        cluster.ours(1, "gnt-instance", "shutdown", "i1.peer")
        cluster.ours(1, "gnt-instance", "startup", "f.peer")
        cluster.ours(1, "gnt-instance", "add-tags", "f.peer", "was-here")

        config = cluster.top / "exported"
        cluster.ours(1, "gnt-cluster", "export", str(config))
        for number in reversed(NODES):
            cluster.ours(number, "ganeti-takeover", "--back", f"--config={config}")
            cluster.theirs(number, "/usr/lib/ganeti/ensure-dirs", "--full-run")
        cluster.theirs(2, "/usr/lib/ganeti/daemon-util", "start", "ganeti-noded")
        cluster.theirs(1, "/usr/lib/ganeti/daemon-util", "start-all")
        cluster.theirs(1, "gnt-cluster", "redist-conf")
        after = {
            **before,
            "i1.peer": ("peernode1", "ADMIN_down"),
            "f.peer": ("peernode2", "running"),
        }
        assert instances(cluster.theirs(1, *LIST)) == after
        assert "was-here" in cluster.theirs(1, "gnt-instance", "list-tags", "f.peer")
        cluster.theirs(1, "gnt-cluster", "verify", *NO_SSH)
        check_that_nothing_is_left(cluster)
        go_over_and_back_again(cluster)
        assert instances(cluster.theirs(1, *LIST)) == after


def check_that_nothing_is_left(cluster: DebianCluster) -> None:
    """Upstream's watcher works again, and a later takeover finds nothing of this one."""
    for number in NODES:
        data = cluster.root(number) / "var/lib/ganeti"
        for name in ("original", "watcher.pause", "state.room", "state.db", "register", "node.pem"):
            assert not (data / name).exists(), f"{name} on node {number}"


def go_over_and_back_again(cluster: DebianCluster) -> None:
    for number in NODES:
        cluster.ours(number, "ganeti-takeover")
    original = cluster.root(1) / "var/lib/ganeti/original/config.data"
    said = cluster.ours(1, "gnt-cluster", "import", str(original))
    assert "job ids begin at" in said
    for number in reversed(NODES):
        cluster.ours(number, "ganeti-takeover", "--back")
        cluster.theirs(number, "/usr/lib/ganeti/ensure-dirs", "--full-run")
    check_that_nothing_is_left(cluster)
    cluster.theirs(2, "/usr/lib/ganeti/daemon-util", "start", "ganeti-noded")
    cluster.theirs(1, "/usr/lib/ganeti/daemon-util", "start-all")
    cluster.theirs(1, "gnt-cluster", "verify", *NO_SSH)
