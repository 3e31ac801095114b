"""What root on a node that is not a candidate can do to the cluster: the threat model of identity.md."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ganeti.bootstrap.daemons import MASTERD
from ganeti.store.interface import MAX_EPOCH
from ganeti.store.register import Answer, Promise, Register, RegisterFile
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.masters import serves

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(nodes=4) as made:
        made.ok("gnt-cluster", "modify", "--candidate-pool-size=3")
        made.ok("gnt-node", "modify", "--master-candidate=no", "node4")
        yield made


def spoil_register(cluster: LocalCluster, node: int, epoch: int) -> None:
    """Have a node promise an epoch that no master ever had."""

    def rule(register: Register | None) -> Answer:
        assert register is not None
        promised = Promise(epoch, register.promised.candidate)
        return Answer(granted=True, register=replace(register, promised=promised))

    RegisterFile(cluster.node(node).paths.register).decide(rule)


def verified(cluster: LocalCluster) -> str:
    done = cluster.run("gnt-cluster", "verify")
    return done.out + done.err


@pytest.mark.requirement("A26", "G4", "G19")
def test_register_of_a_regular_node_takes_the_master_away_from_no_one(
    cluster: LocalCluster,
) -> None:
    name, before = cluster.node(4).name, cluster.pid(MASTERD)
    spoil_register(cluster, 4, MAX_EPOCH)
    time.sleep(5)  # two renewals of the master's epoch
    cluster.ok("gnt-debug", "delay", "0")
    found = verified(cluster)
    assert f"{name}: its register has promised epoch {MAX_EPOCH}" in found
    assert f"gnt-node add --readd {name}" in found
    cluster.kill(MASTERD)
    cluster.start(MASTERD)
    wait_until(lambda: serves(cluster, 1), "the master to serve again")
    assert cluster.pid(MASTERD) != before
    cluster.ok("gnt-debug", "delay", "0")
    for force in ([], ["--no-voting", "--yes-do-it"]):
        target = 3 if force else 2
        done = cluster.run("gnt-cluster", "master-failover", *force, node=target)
        assert done.status == 0, done.out + done.err
        wait_until(lambda number=target: serves(cluster, number), "the new master")  # type: ignore[misc] # a default
