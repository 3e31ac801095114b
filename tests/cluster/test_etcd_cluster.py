"""A cluster whose state is in etcd, with real daemons: masters are elected by themselves, and lose nothing."""

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.errors import GanetiError
from ganeti.bootstrap.daemons import ETCD, MASTERD, NODED
from ganeti.clients.luxi import LuxiClient
from ganeti.store.etcd.settings import has_data
from ganeti.store.register import RegisterFile
from tests.support.etcd_servers import require_etcd
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.masters import DELAY, Client, fail_over, is_follower, job_ids, serves

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
FAILOVER_S = 15.0
BUSY_S = 30.0
"""How much later it may be on a machine whose processors have other work too."""
NODES = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    require_etcd()
    with local_cluster("--state", "etcd", nodes=3) as made:
        yield made


def master_of(cluster: LocalCluster, *nodes: int) -> int:
    """The node that serves as the master, once there is one."""
    found: list[int] = []

    def is_so() -> bool:
        found[:] = [node for node in nodes or NODES if serves(cluster, node)]
        return bool(found)

    wait_until(is_so, "a master is elected", FAILOVER_S + BUSY_S)
    return found[0]


def first_job(cluster: LocalCluster, *nodes: int) -> int:
    """Return once one of the nodes has acknowledged a job; which one."""
    end = time.monotonic() + FAILOVER_S + BUSY_S
    while True:
        for node in nodes:
            try:
                with LuxiClient(cluster.node(node).paths, timeout_s=5) as client:
                    client.call("SubmitJob", [DELAY])
                    return node
            except (GanetiError, OSError):
                continue
        assert time.monotonic() < end, "no master is elected"
        time.sleep(0.1)


class Load:
    """Clients that submit jobs to whoever is the master."""

    def __init__(self, cluster: LocalCluster, count: int = 3) -> None:
        paths = [cluster.node(node).paths for node in NODES]
        self._clients = [
            Client(paths, random.Random(seed).randrange, pause_s=0.005) for seed in range(count)
        ]
        for client in self._clients:
            client.start()

    def judge(self, cluster: LocalCluster) -> None:
        """No acknowledged job is lost, none is there twice, ids grow for each client."""
        promised = [client.end() for client in self._clients]
        kept = job_ids(cluster.node(master_of(cluster)).paths)
        everything = [job for one in promised for job in one]
        assert len(everything) == len(set(everything))
        assert set(everything) <= kept
        for one in promised:
            assert one
            assert one == sorted(one)


def verified(cluster: LocalCluster) -> None:
    """The check of the whole cluster finds nothing, soon."""

    def is_so() -> bool:
        done = cluster.run("gnt-cluster", "verify", node=master_of(cluster))
        return done.status == 0

    wait_until(is_so, "verify finds nothing", BUSY_S * 2)


def epochs(cluster: LocalCluster) -> list[int]:
    """What the nodes' registers have promised."""
    registers = [RegisterFile(cluster.node(node).paths.register).read() for node in NODES]
    return [register.promised.epoch for register in registers if register]


def killed_under_load(cluster: LocalCluster, times: int, *, alone: int) -> list[float]:
    """Kill one master after the other; how long it took each time until the next acknowledged a job.

    Every `alone`-th stays away until then; the others are started again at once, as systemd does.
    """
    load, took = Load(cluster), []
    master = master_of(cluster)
    for number in range(1, times + 1):
        stays_away = number % alone == 0
        before = max(epochs(cluster))
        time.sleep(0.2 + random.random() / 2)
        cluster.kill(MASTERD, master)
        died = time.monotonic()
        if not stays_away:
            cluster.start(MASTERD, master)
        killed, master = master, first_job(cluster, *NODES)
        took.append(time.monotonic() - died)
        assert max(epochs(cluster)) > before
        if stays_away:
            assert master != killed
            cluster.start(MASTERD, killed)
    load.judge(cluster)
    return took


@pytest.mark.requirement("G1", "G2", "G4", "G7", "G8", "G19")
def test_masters_killed_under_load_are_replaced_by_themselves(cluster: LocalCluster) -> None:
    took = killed_under_load(cluster, 6, alone=3)
    assert max(took) < FAILOVER_S + BUSY_S
    verified(cluster)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.requirement("G1", "G2", "G4", "G7", "G8", "G19")
def test_twenty_masters_killed_under_load_are_replaced_in_time(cluster: LocalCluster) -> None:
    assert max(killed_under_load(cluster, 20, alone=1)) < FAILOVER_S + BUSY_S
    assert max(killed_under_load(cluster, 20, alone=20)) < FAILOVER_S + BUSY_S


@pytest.mark.soak
@pytest.mark.requirement("G1", "G4", "F4")
def test_a_master_that_hangs_is_replaced_and_obeys_when_it_wakes(cluster: LocalCluster) -> None:
    load = Load(cluster)
    master = master_of(cluster)
    stopped = [cluster.pid(name, master) for name in (MASTERD, NODED)]
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        first_job(cluster, *[node for node in NODES if node != master])
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    wait_until(lambda: is_follower(cluster, master), "the old master obeys", BUSY_S)
    load.judge(cluster)


@pytest.mark.requirement("G1", "G2")
def test_a_machine_that_dies_with_its_server_of_etcd_is_replaced(cluster: LocalCluster) -> None:
    load = Load(cluster)
    master = master_of(cluster)
    others = [node for node in NODES if node != master]
    for name in (MASTERD, ETCD):
        cluster.kill(name, master)
    first_job(cluster, *others)
    cluster.start(ETCD, master)
    cluster.start(MASTERD, master)
    load.judge(cluster)
    wait_until(lambda: is_follower(cluster, master), "the old master follows", BUSY_S)


@pytest.mark.requirement("G19")
def test_the_mastership_is_handed_over_when_that_is_asked_for(cluster: LocalCluster) -> None:
    master = master_of(cluster)
    target = next(node for node in NODES if node != master)
    load = Load(cluster)
    assert "epoch" in fail_over(cluster, target)
    assert master_of(cluster) == target
    load.judge(cluster)
    other = next(node for node in NODES if node not in (master, target))
    done = cluster.run(
        "gnt-cluster", "master-failover", "--no-voting", "--yes-do-it", node=other, timeout_s=95
    )
    assert done.status != 0
    assert "no force without its quorum" in done.out + done.err


@pytest.mark.requirement("G22")
def test_a_candidate_that_is_none_any_more_leaves_etcd_and_comes_back(
    cluster: LocalCluster,
) -> None:
    master = master_of(cluster)
    other = next(node for node in NODES if node != master)
    name = cluster.node(other).name
    done = cluster.run(
        "gnt-node", "modify", "--master-candidate=no", "--auto-promote", name, node=master
    )
    assert done.status == 0, done.out + done.err
    paths = cluster.node(other).paths
    wait_until(lambda: not paths.etcd_directory.exists(), "its data is gone", BUSY_S)
    assert not Path(paths.state_settings).exists()
    done = cluster.run("gnt-node", "modify", "--master-candidate=yes", name, node=master)
    assert done.status == 0, done.out + done.err
    assert paths.etcd_data.exists()
    wait_until(lambda: is_follower(cluster, other), "it follows again", BUSY_S)


@pytest.mark.requirement("G19")
def test_a_master_that_is_stopped_in_order_is_followed_by_another_and_follows_it(
    cluster: LocalCluster,
) -> None:
    load = Load(cluster)
    master = master_of(cluster)
    begun = time.monotonic()
    cluster.stop(MASTERD, master)
    first_job(cluster, *[node for node in NODES if node != master])
    assert time.monotonic() - begun < FAILOVER_S + BUSY_S
    # A candidate without a master daemon is none: the new master starts it there.
    wait_until(lambda: is_follower(cluster, master), "the former master follows", BUSY_S)
    load.judge(cluster)


@pytest.mark.requirement("G1", "G22")
def test_a_server_that_is_down_is_named_and_one_without_its_data_is_replaced(
    cluster: LocalCluster,
) -> None:
    load = Load(cluster)
    master = master_of(cluster)
    other = next(node for node in NODES if node != master)
    node = cluster.node(other)
    cluster.kill(ETCD, other)
    done = cluster.run("gnt-cluster", "verify", "--error-codes", node=master)
    assert done.status != 0
    assert f"ERROR:ENODESETUP:node:{node.name}:its etcd server does not answer" in done.out
    assert f"--master-candidate=no --auto-promote {node.name}" in done.out
    shutil.rmtree(node.paths.etcd_data)
    wait_until(lambda: has_data(node.paths), "another member is in its place", BUSY_S * 2)
    verified(cluster)
    load.judge(cluster)
    # It counts again: the state is not lost with one of the others.
    cluster.kill(ETCD, master)
    cluster.kill(MASTERD, master)
    first_job(cluster, *[node for node in NODES if node != master])
    cluster.start(ETCD, master)
    cluster.start(MASTERD, master)
    verified(cluster)
