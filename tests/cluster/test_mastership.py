"""Who is the master, with real daemons: hand-over, kill -9, hung masters, force; and nothing is lost."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import MASTERD, NODED
from ganeti.clients.luxi import LuxiClient
from tests.support.local_cluster import LocalCluster, all_in_sync_set, local_cluster, wait_until
from tests.support.masters import (
    DELAY,
    NOT_MASTER,
    FrozenMaster,
    Load,
    fail_over,
    is_follower,
    job_ids,
    lose_state,
    serves,
)
from tests.support.patience import patience
from tests.support.shared_cluster import SharedCluster, shared_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedCluster]:
    with shared_cluster(lambda: local_cluster(nodes=3)) as made:
        yield made


@pytest.fixture
def cluster(shared: SharedCluster, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Node 1 is the master, and the two others hold the state too."""
    with shared.lent(request) as lent:
        if not serves(lent, 1):
            fail_over(lent, 1)
        all_in_sync_set(lent, 3)
        yield lent


def archived(cluster: LocalCluster) -> str:
    """The id of a job that has ended, and was archived."""
    job = cluster.ok("gnt-debug", "delay", "0", "--submit").out.split()[-1]
    cluster.ok("gnt-job", "wait", job)
    cluster.ok("gnt-job", "archive", job)
    return job


@pytest.mark.requirement("G1", "G2", "G4", "G8", "G19", "F2", "F4", "F10")
def test_masters_killed_under_load_lose_no_acknowledged_and_no_archived_job(
    cluster: LocalCluster,
) -> None:
    cluster.kill(MASTERD, 3)  # it is away while the first is archived
    in_archive = [archived(cluster)]
    cluster.start(MASTERD, 3)
    all_in_sync_set(cluster, 3)
    in_archive.append(archived(cluster))
    promised: list[int] = []
    master = 1
    for target in (2, 3):
        with Load(cluster, [master], count=1, pause_s=0) as load:
            time.sleep(0.3 + random.random())
            cluster.kill(MASTERD, master)
        assert load.end()
        promised += load.end()
        fail_over(cluster, target)
        kept = job_ids(cluster.node(target).paths)
        assert set(promised) <= kept
        for job in in_archive:
            shown = cluster.run("gnt-job", "info", job, node=target)
            assert shown.status == 0, shown.out + shown.err
            assert "success" in shown.out
        with LuxiClient(cluster.node(target).paths) as client:
            new = client.call("SubmitJob", [DELAY])
        assert new > max(kept)
        promised.append(new)
        cluster.start(MASTERD, master)
        wait_until(lambda old=master: is_follower(cluster, old), "the old master follows", 20)  # type: ignore[misc] # a default
        master = target
    assert promised == sorted(set(promised))
    done = cluster.run("gnt-node", "list", node=1)
    assert done.status == NOT_MASTER
    assert "node3" in done.err
    assert cluster.run("gnt-cluster", "getmaster", node=1).out.strip().startswith("node3")


@pytest.mark.requirement("G19", "F4", "F6")
def test_a_master_that_answers_hands_over_at_once(cluster: LocalCluster) -> None:
    cluster.ok("gnt-debug", "delay", "0")
    before = job_ids(cluster.node(1).paths)
    begun = time.monotonic()
    assert "epoch" in fail_over(cluster, 2)
    assert time.monotonic() - begun < 8 * patience()
    assert before <= job_ids(cluster.node(2).paths)
    assert is_follower(cluster, 1)
    again = cluster.run("gnt-cluster", "master-failover", node=2)
    assert again.status == 0
    assert "this node is the master already" in again.out
    assert cluster.run("gnt-debug", "delay", "0", node=2).status == 0
    fail_over(cluster, 1)
    cluster.ok("gnt-cluster", "verify")


@pytest.mark.requirement("G1", "G8", "G19")
def test_a_busy_master_hands_over_at_once(cluster: LocalCluster) -> None:
    with Load(cluster, (1, 2), count=4, pause_s=0) as load:
        for target in (2, 1, 2):
            time.sleep(0.5)
            begun = time.monotonic()
            fail_over(cluster, target)
            assert time.monotonic() - begun < 8 * patience()
        load.judge(2)


@pytest.mark.requirement("G4", "F3", "F4", "F6")
def test_a_master_that_hangs_is_replaced_and_obeys_when_it_wakes(cluster: LocalCluster) -> None:
    frozen = FrozenMaster(cluster, 1)
    stopped = [cluster.pid(name, 1) for name in (MASTERD, NODED)]
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        fail_over(cluster, 3)
        with LuxiClient(cluster.node(3).paths) as client:
            new = client.call("SubmitJob", [DELAY])
        frozen.ask(new)
        time.sleep(0.5)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    frozen.judge()
    wait_until(lambda: is_follower(cluster, 1), "the old master obeys", 20)
    fail_over(cluster, 1)
    assert new in job_ids(cluster.node(1).paths)


@pytest.mark.requirement("G1", "G2", "F2")
def test_a_master_that_lost_its_state_gets_it_back_from_another(cluster: LocalCluster) -> None:
    cluster.ok("gnt-cluster", "add-tags", "kept")
    cluster.ok("gnt-debug", "delay", "0")
    for node in (1, 2, 3):
        cluster.kill(MASTERD, node)
    lose_state(cluster, 1)
    cluster.start(MASTERD, 1)
    refused = cluster.run("gnt-cluster", "master-failover", node=1, timeout_s=95)
    assert refused.status == 1
    assert "this node holds no state (its database is new, or was lost)" in refused.err
    asked = cluster.run("gnt-node", "list", node=1)
    assert asked.status == NOT_MASTER
    assert (
        "it was the master and tries to become the master again: this node holds no state"
        in asked.err
    )
    for node in (2, 3):
        cluster.start(MASTERD, node)
    fail_over(cluster, 2)
    all_in_sync_set(cluster, 3, node=2)
    fail_over(cluster, 1)
    assert cluster.ok("gnt-cluster", "list-tags").out.split() == ["kept"]


@pytest.mark.requirement("F3", "G19")
def test_of_two_nodes_the_other_one_needs_force() -> None:
    with local_cluster(nodes=2) as cluster:
        cluster.ok("gnt-debug", "delay", "0")
        for name in (MASTERD, NODED):
            cluster.kill(name, 1)
        begun = time.monotonic()
        refused = cluster.run("gnt-cluster", "master-failover", node=2, timeout_s=95)
        assert refused.status == 1
        assert time.monotonic() - begun < 90  # G19
        assert "1 of 2 voters agree, which is not a majority (node1.vcluster.test: " in refused.err
        assert "--no-voting" in refused.err
        unsure = cluster.run("gnt-cluster", "master-failover", "--no-voting", node=2)
        assert unsure.status == 13
        told = fail_over(cluster, 2, "--no-voting", "--yes-do-it")
        assert "may be lost" in told
        assert "degraded" in told
        assert cluster.run("gnt-debug", "delay", "0", node=2).status == 0
        for name in (NODED, MASTERD):
            cluster.start(name, 1)
        wait_until(lambda: is_follower(cluster, 1), "the old master obeys", 20)


@pytest.mark.requirement("G1")
def test_a_node_becomes_a_candidate_with_the_key_and_a_daemon(cluster: LocalCluster) -> None:
    paths = cluster.node(3).paths
    cluster.ok("gnt-node", "modify", "--master-candidate=no", "-f", "node3")
    wait_until(lambda: not paths.authority_key.exists(), "the key is gone")
    cluster.ok("gnt-node", "modify", "--master-candidate=yes", "node3")
    all_in_sync_set(cluster, 3)
    for number in (2, 3):
        paths = cluster.node(number).paths
        assert paths.authority_key.read_bytes() == cluster.node(1).paths.authority_key.read_bytes()
        assert _mode(paths.authority_key) == 0o600
        assert _mode(paths.state) == 0o600


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777
