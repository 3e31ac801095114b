"""A witness: a third node that only votes lets the other two replace each other without force."""

from collections.abc import Iterator

import pytest

from ganeti.bootstrap.daemons import MASTERD, NODED
from ganeti.clients.luxi import LuxiClient
from tests.support.local_cluster import LocalCluster, all_in_sync_set, local_cluster, wait_until
from tests.support.masters import DELAY, fail_over, is_follower, job_ids

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

WITNESS = 3


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(nodes=3) as made:
        made.install_noop()
        # The role goes first, and the pool is as large as there are nodes that hold the state.
        made.ok("gnt-cluster", "modify", "--candidate-pool-size=2")
        made.ok("gnt-node", "modify", "--master-candidate=no", "node3")
        made.ok("gnt-node", "modify", "--master-capable=no", "--vm-capable=no", "node3")
        all_in_sync_set(made, 2)
        yield made


@pytest.mark.requirement("G1", "G19", "F3")
def test_with_a_witness_the_second_node_takes_over_without_force(cluster: LocalCluster) -> None:
    witness = cluster.node(WITNESS).paths
    wait_until(lambda: not witness.authority_key.exists(), "the witness has no key", 20)
    assert cluster.run("gnt-cluster", "verify").status == 0
    # It gets no guest, neither by name nor by the allocator.
    options = cluster.noop_options()
    refused = cluster.fails("gnt-instance", "add", *options, "-n", "node3", "w1.example.com")
    assert "node3" in refused
    for number in range(3):
        name = f"g{number}.example.com"
        cluster.ok("gnt-instance", "add", *options, "--no-start", name)
        assert cluster.value("instance", name, "pnode") != "node3.vcluster.test"
    with cluster.luxi() as luxi:
        promised = [luxi.call("SubmitJob", [DELAY]) for _ in range(10)]
    # Nor can it be the master.
    assert cluster.run("gnt-cluster", "master-failover", node=WITNESS).status != 0
    for name in (MASTERD, NODED):
        cluster.kill(name, 1)
    assert "degraded" in fail_over(cluster, 2)  # the witness counts the votes, and holds nothing
    assert set(promised) <= job_ids(cluster.node(2).paths)
    with LuxiClient(cluster.node(2).paths) as luxi:
        luxi.call("SubmitJob", [DELAY])
    for name in (NODED, MASTERD):
        cluster.start(name, 1)
    wait_until(
        lambda: is_follower(cluster, 1),
        "the old master follows",
        30,
    )
