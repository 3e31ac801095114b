"""A backup of a running cluster, its loss, and its restore: real daemons on three nodes."""

import stat
from collections.abc import Iterator

import pytest

from ganeti.bootstrap.daemons import MASTERD
from tests.support.local_cluster import LocalCluster, all_in_sync_set, local_cluster, wait_until
from tests.support.masters import lose_state

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

CONFIRM = 13


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(nodes=3) as made:
        yield made


def last_job(cluster: LocalCluster) -> int:
    with cluster.luxi() as client:
        return max(int(row[0]) for row in client.call("QueryJobs", None, ["id"]))


@pytest.mark.requirement("G1", "G8")
def test_a_lost_state_is_restored_and_the_other_nodes_accept_it(cluster: LocalCluster) -> None:
    backup = cluster.directory / "backup"
    cluster.ok("gnt-cluster", "add-tags", "before")
    said = cluster.ok("gnt-cluster", "backup", str(backup)).out
    assert str(backup) in said
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert "in use" not in cluster.fails("gnt-cluster", "restore", str(backup))
    cluster.ok("gnt-cluster", "add-tags", "after")
    cluster.ok("gnt-debug", "delay", "0")
    used = last_job(cluster)
    cluster.kill(MASTERD, 2)
    lives = cluster.run("gnt-cluster", "restore", "--yes-do-it", str(backup), node=2)
    assert lives.status == 1
    assert "node1.vcluster.test is the master" in lives.err
    cluster.start(MASTERD, 2)

    cluster.kill(MASTERD)
    newer = cluster.fails("gnt-cluster", "restore", str(backup), status=CONFIRM)
    assert "newer than the backup" in newer
    for number in (2, 3):
        cluster.kill(MASTERD, number)
    for number in (1, 2, 3):
        lose_state(cluster, number)
    others = cluster.fails("gnt-cluster", "restore", str(backup), status=CONFIRM)
    assert "master-failover" in others
    restored = cluster.ok("gnt-cluster", "restore", "--yes-do-it", str(backup), timeout_s=120)
    assert "restored cluster" in restored.out
    assert "in between are lost" not in restored.out

    assert cluster.ok("gnt-cluster", "list-tags").out.split() == ["before"]
    cluster.ok("gnt-cluster", "add-tags", "restored")
    assert last_job(cluster) > used + 100_000
    for number in (2, 3):
        cluster.start(MASTERD, number)
    all_in_sync_set(cluster, 3)
    done = cluster.run("gnt-cluster", "master-failover", node=2, timeout_s=95)
    assert done.status == 0, done.out + done.err
    tags = cluster.run("gnt-cluster", "list-tags", node=2)
    assert tags.out.split() == ["before", "restored"]


@pytest.mark.requirement("G1", "G2")
def test_going_back_to_a_backup_replaces_the_newer_state_of_followers(
    cluster: LocalCluster,
) -> None:
    backup = cluster.directory / "backup"
    cluster.ok("gnt-cluster", "add-tags", "before")
    cluster.ok("gnt-cluster", "backup", str(backup))
    cluster.ok("gnt-cluster", "add-tags", "after")
    cluster.kill(MASTERD)
    done = cluster.ok("gnt-cluster", "restore", "--yes-do-it", str(backup), timeout_s=120)
    assert "lost: 2 jobs" in done.out or "lost: 1 jobs" in done.out
    assert "state.db.aside-" in done.out
    assert cluster.ok("gnt-cluster", "list-tags").out.split() == ["before"]
    wait_until(
        lambda: bool(list(cluster.node(2).paths.data.glob("state.db.aside-*"))),
        "a follower has moved its newer state aside",
    )
    cluster.ok("gnt-cluster", "add-tags", "goes-on")
