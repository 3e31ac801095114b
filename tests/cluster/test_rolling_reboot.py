"""Nodes of a real cluster are restarted one after the other; their guests run elsewhere meanwhile, and return."""

from collections.abc import Iterator

import pytest

from tests.support.local_cluster import LocalCluster, local_cluster
from tests.support.virtual_hosts import VirtualHosts, virtual_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(nodes=3) as one:
        yield one


@pytest.fixture
def hosts(cluster: LocalCluster) -> Iterator[VirtualHosts]:
    with virtual_hosts(cluster, 2, 3) as found:
        yield found


def add(cluster: LocalCluster, number: int, name: str) -> None:
    cluster.ok("gnt-instance", "add", "-t", "diskless", "--no-install", "--no-nics", "-o", "noop",
               "-B", "memory=128m", "-n", f"node{number}", name)  # fmt: skip


def primary(cluster: LocalCluster, name: str) -> str:
    return cluster.value("instance", name, "pnode")


def test_nodes_restart_one_after_the_other_and_guests_return(
    cluster: LocalCluster, hosts: VirtualHosts
) -> None:
    for number in (2, 3):
        add(cluster, number, f"web{number}.example.com")
    homes = {name: primary(cluster, name) for name in ("web2.example.com", "web3.example.com")}
    plan = cluster.ok("gnt-cluster", "rolling-reboot", "--by=powercycle", "--dry-run")
    assert "is the master and is left out" in plan.out
    assert hosts.restarted == []
    done = cluster.ok("gnt-cluster", "rolling-reboot", "--by=powercycle", "-f", "-I", "hail")
    assert "All 2 nodes have been restarted." in done.out
    assert "about 0 minutes left" in done.out
    assert hosts.restarted == [2, 3]
    assert {name: primary(cluster, name) for name in homes} == homes
    for number in (2, 3):
        assert cluster.value("node", f"node{number}", "maintenance") == "N"
        assert cluster.value("node", f"node{number}", "drained") == "N"
    cluster.ok("gnt-cluster", "verify")


def test_node_in_maintenance_is_empty_until_its_end(cluster: LocalCluster) -> None:
    add(cluster, 2, "web9.example.com")
    home = primary(cluster, "web9.example.com")
    said = cluster.fails("gnt-node", "maintenance", "on", "node1")
    assert "gnt-cluster master-failover" in said
    cluster.ok("gnt-node", "maintenance", "on", "-I", "hail", "node2")
    assert primary(cluster, "web9.example.com") != home
    assert cluster.value("node", "node2", "maintenance") == "Y"
    assert cluster.value("node", "node2", "pinst_cnt") == "0"
    assert "maintenance: True" in cluster.ok("gnt-node", "info", "node2").out
    cluster.ok("gnt-node", "maintenance", "off", "--failback", "node2")
    assert primary(cluster, "web9.example.com") == home
