"""A cluster with its state in etcd whose master is cut off, in both directions and in one."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.local_cluster import LocalCluster, wait_until
from tests.support.masters import (
    BUSY_S,
    NODES,
    Load,
    etcd_cluster,
    first_job,
    is_follower,
    master_of,
    serves,
)
from tests.support.partitions import cable
from tests.support.shared_cluster import SharedCluster, shared_cluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.in_turn,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedCluster]:
    probe = subprocess.run(["ip", "netns", "list"], check=False, capture_output=True)
    if probe.returncode:
        pytest.skip(f"no network namespaces here: {probe.stderr.decode().strip()}")
    with shared_cluster(lambda: etcd_cluster("--netns")) as made:
        yield made


@pytest.fixture
def cluster(shared: SharedCluster, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with shared.lent(request) as lent:
        yield lent


def cut(cluster: LocalCluster, node: int, direction: str, *, is_cut: bool) -> None:
    """Nothing leaves a node's namespace ("out"), or arrives there ("in"), or either ("both")."""
    if direction == "both":
        cable(cluster, node, "down" if is_cut else "up")
        return
    chain, option = ("OUTPUT", "-o") if direction == "out" else ("INPUT", "-i")
    rule = ["iptables", "-A" if is_cut else "-D", chain, "!", option, "lo", "-j", "DROP"]
    subprocess.run(cluster.node(node).words(rule), check=True, capture_output=True)


@pytest.mark.requirement("G1", "G2", "G4", "G8", "G19")
@pytest.mark.parametrize("direction", ["both", "out", pytest.param("in", marks=pytest.mark.soak)])
def test_isolated_master_is_replaced_and_answers_no_client(
    cluster: LocalCluster, direction: str
) -> None:
    master = master_of(cluster)
    with Load(cluster) as load:
        cut(cluster, master, direction, is_cut=True)
        try:
            first_job(cluster, *[node for node in NODES if node != master])
            wait_until(lambda: not serves(cluster, master), "the old master is read-only", BUSY_S)
        finally:
            cut(cluster, master, direction, is_cut=False)
        wait_until(lambda: is_follower(cluster, master), "the old master follows", BUSY_S)
        load.judge(master_of(cluster))
