"""A node that changes its role, or returns in another one, keeps nothing that the role does not allow."""

from collections.abc import Iterator

import pytest

from ganeti.base.roles import held_files
from ganeti.bootstrap.daemons import MASTERD
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(nodes=3) as made:
        made.ok("gnt-cluster", "modify", "--candidate-pool-size=1")
        yield made


def held(cluster: LocalCluster, node: int) -> set[str]:
    return {path.name for path in held_files(cluster.node(node).paths)}


@pytest.mark.requirement("G22", "G23")
def test_candidate_that_returns_as_a_regular_node_keeps_no_secret(cluster: LocalCluster) -> None:
    wait_until(lambda: {"ca.key", "state.db"} <= held(cluster, 3), "the third node is a candidate")
    key = cluster.node(3).paths.authority_key.read_bytes()
    cluster.ok("gnt-node", "modify", "--offline=yes", "node3")
    assert "ca.key" in held(cluster, 3)
    cluster.ok("gnt-node", "modify", "--offline=no", "node3")
    assert held(cluster, 3) == set()
    assert not cluster.runs(MASTERD, 3)
    # Somebody puts a secret back: verify names it, and redist-conf removes it.
    cluster.node(3).paths.authority_key.write_bytes(key)
    done = cluster.run("gnt-cluster", "verify")
    assert "/var/lib/ganeti/ca.key, which a regular node must not have" in done.out + done.err
    assert "gnt-cluster redist-conf" in done.out + done.err
    cluster.ok("gnt-cluster", "redist-conf")
    assert held(cluster, 3) == set()
    cluster.node(2).paths.authority_key.unlink()
    cluster.fails("gnt-cluster", "verify")
    cluster.ok("gnt-cluster", "redist-conf")
    assert cluster.node(2).paths.authority_key.read_bytes() == key
    cluster.ok("gnt-cluster", "verify")
