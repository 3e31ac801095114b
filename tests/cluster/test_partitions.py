"""Real partitions: nodes in network namespaces lose their cables; the majority goes on, nothing is lost."""

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Iterator

import pytest

from ganeti.bootstrap.daemons import MASTERD, NODED
from ganeti.clients.luxi import LuxiClient
from ganeti.store.stored_tail import read_stored_tail
from tests.support.local_cluster import LocalCluster, all_in_sync_set, wait_until
from tests.support.masters import (
    DELAY,
    NOT_MASTER,
    Load,
    fail_over,
    have_one_history,
    job_ids,
    serves,
)
from tests.support.partitions import cable, cluster_with_cables, start_inside, stopped
from tests.support.patience import patience
from tests.support.shared_cluster import SharedCluster, shared_cluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]

HISTORIES = 12
FAULTS = 6
FIRST = int(os.environ.get("GANETI_HISTORY_SEED", "0"))


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedCluster]:
    probe = subprocess.run(["ip", "netns", "list"], check=False, capture_output=True)
    if probe.returncode:
        pytest.skip(f"no network namespaces here: {probe.stderr.decode().strip()}")
    with shared_cluster(cluster_with_cables) as made:
        yield made


@pytest.fixture
def cluster(shared: SharedCluster, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Node 1 is the master, and the two others hold the state too."""
    with shared.lent(request) as lent:
        if not serves(lent, 1):
            fail_over(lent, 1)
        all_in_sync_set(lent, 3)
        yield lent


@pytest.mark.requirement("G1", "G2", "G4", "G8", "G19", "F2", "F3")
def test_majority_continues_without_an_isolated_master(cluster: LocalCluster) -> None:
    with Load(cluster, [1], count=1, pause_s=0.02) as load:
        time.sleep(1)
        cable(cluster, 1, "down")
        fail_over(cluster, 2)
        # It serves nobody any more, although nobody could tell it that there is another one.
        wait_until(lambda: not serves(cluster, 1), "the old master is read-only", 15)
    promised = load.end()
    assert promised
    kept = job_ids(cluster.node(2).paths)
    assert set(promised) <= kept
    with LuxiClient(cluster.node(2).paths) as luxi:
        new = [luxi.call("SubmitJob", [DELAY]) for _ in range(20)]
    assert min(new) > max(kept)
    refused = cluster.run("gnt-debug", "delay", "0", node=1)
    assert refused.status == NOT_MASTER
    cable(cluster, 1, "up")
    wait_until(lambda: have_one_history(cluster, 1, 2, 3), "the old master follows", 60)
    assert cluster.run("gnt-cluster", "verify", node=2).status == 0
    fail_over(cluster, 1)
    assert {*promised, *new} <= job_ids(cluster.node(1).paths)


@pytest.mark.requirement("G1", "F1")
def test_isolated_follower_delays_writes_only_briefly(cluster: LocalCluster) -> None:
    cable(cluster, 3, "down")
    begun = time.monotonic()
    with LuxiClient(cluster.node(1).paths, timeout_s=20) as luxi:
        ids = [luxi.call("SubmitJob", [DELAY]) for _ in range(50)]
    assert time.monotonic() - begun < 6 * patience()
    refused = cluster.run("gnt-cluster", "master-failover", node=3, timeout_s=95)
    assert refused.status == 1
    assert "1 of 3 voters agree" in refused.err  # the minority elects nobody
    cable(cluster, 3, "up")
    wait_until(lambda: have_one_history(cluster, 1, 3), "it has caught up", 60)
    assert set(ids) <= job_ids(cluster.node(1).paths)


def runs(cluster: LocalCluster, node: int) -> bool:
    with contextlib.suppress(AssertionError):
        return bool(cluster.pid(MASTERD, node))
    return False


class History:
    """One random history; the seed decides what happens, not when the daemons do what."""

    def __init__(self, cluster: LocalCluster, seed: int) -> None:
        self.cluster, self.dice = cluster, random.Random(seed)
        self.told: list[str] = []
        self.load = Load(cluster, count=4, pause_s=0.02, seed=seed + 1)

    def run(self) -> None:
        with self.load:
            for _ in range(FAULTS):
                time.sleep(self.dice.uniform(0.2, 3))
                fault = self.dice.choice((self.cut, self.cut, self.hang, self.kill, self.move))
                node = self.dice.randint(1, 3)
                self.told.append(f"{time.strftime('%H:%M:%S')} {fault.__name__} node{node}")
                fault(node)
        self.settle(set(self.load.end()))

    def move(self, node: int) -> None:
        done = self.cluster.run("gnt-cluster", "master-failover", node=node, timeout_s=95)
        end = "done" if not done.status else done.err.strip()
        self.told.append(f"{time.strftime('%H:%M:%S')} failover to node{node}: {end}")

    def cut(self, node: int) -> None:
        cable(self.cluster, node, "down")
        try:
            if self.dice.random() < 0.6:
                self.move(1 + node % 3)
            else:
                time.sleep(self.dice.uniform(0.5, 12))
        finally:
            cable(self.cluster, node, "up")

    def hang(self, node: int) -> None:
        pids = [self.cluster.pid(name, node) for name in (MASTERD, NODED)]
        with stopped(*pids):
            if self.dice.random() < 0.5:
                self.move(1 + node % 3)
            else:
                time.sleep(self.dice.uniform(0.5, 12))

    def kill(self, node: int) -> None:
        self.cluster.kill(MASTERD, node)
        time.sleep(self.dice.uniform(0.1, 4))
        start_inside(self.cluster, node)
        wait_until(lambda: runs(self.cluster, node), "the daemon is back", 30)

    def settle(self, promised: set[int]) -> None:
        # A master that was cut off, or hung, may not have heard of the next one yet (R9: for 10 s).
        wait_until(lambda: len(self.masters()) <= 1, "at most one master", 30)
        wait_until(self.has_one_master, "one master", 120)
        (master,) = self.masters()
        wait_until(lambda: have_one_history(self.cluster, 1, 2, 3), "one history", 120)
        lost = promised - job_ids(self.cluster.node(master).paths)
        assert not lost, f"acknowledged and lost: {sorted(lost)[:10]}"

    def masters(self) -> list[int]:
        return [node for node in (1, 2, 3) if serves(self.cluster, node)]

    def has_one_master(self) -> bool:
        """If there is none, an administrator makes one."""
        masters = self.masters()
        if not masters:
            self.move(1)
        return len(masters) == 1

    def tale(self) -> str:
        """What was done, where the histories of all nodes end, and what their daemons said last."""
        found = ["\n", "\n".join(self.told)]
        for node in (1, 2, 3):
            paths = self.cluster.node(node).paths
            log = (paths.log / "master-daemon.log").read_text(errors="replace")
            last = "\n".join(log.splitlines()[-25:])
            found.append(
                f"\nnode{node} (daemon {'up' if runs(self.cluster, node) else 'down'}):"
                f" {read_stored_tail(paths.state)}\n{last}"
            )
        return "".join(found)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.requirement("G1", "G2", "G4", "G8")
@pytest.mark.parametrize("seed", range(FIRST, FIRST + HISTORIES))
def test_no_real_history_loses_an_acknowledged_job(cluster: LocalCluster, seed: int) -> None:
    history = History(cluster, seed)
    try:
        history.run()
    except AssertionError as err:
        pytest.fail(f"GANETI_HISTORY_SEED={seed} make soak: {err}{history.tale()}")
