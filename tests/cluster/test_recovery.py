"""Automatic recovery with real daemons: a node loses its power, and its instance runs elsewhere."""

import time

import pytest

from tests.support.local_cluster import LocalCluster, local_cluster, vcluster, wait_until
from tests.support.patience import patience

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(400)]

NAME = "web.example.com"
OOB = "--node-parameters=oob_program=/usr/local/sbin/vcluster-power"


def node_state(cluster: LocalCluster, number: int) -> str:
    """The state that recovery shows of a node; '' while it watches nothing."""
    name = cluster.node(number).name
    rows = (line.split() for line in cluster.ok("gnt-cluster", "ha-status").lines)
    return next((words[1] for words in rows if words[:1] == [name]), "")


@pytest.mark.requirement("D7", "D12")
def test_instance_of_a_node_without_power_runs_elsewhere_and_the_node_returns() -> None:
    with local_cluster(nodes=3) as cluster:
        cluster.ok("gnt-cluster", "modify", OOB)
        options = ("-t", "diskless", "--no-install", "--no-nics", "-B", "memory=16m")
        cluster.ok("gnt-instance", "add", "-n", "node3", *options, NAME)
        cluster.ok("gnt-instance", "start", NAME)
        assert node_state(cluster, 3) == ""
        cluster.ok("gnt-instance", "modify", "-B", "recovery=failover", NAME)
        wait_until(lambda: node_state(cluster, 3) == "healthy", "the node answers heartbeats", 20)
        vcluster(cluster.directory, "power", "power-off", "node3")
        begun = time.monotonic()
        wait_until(
            lambda: (
                cluster.value("instance", NAME, "status") == "running"
                and not cluster.value("instance", NAME, "pnode").startswith("node3")
            ),
            "the instance runs elsewhere",
            90,
        )
        assert time.monotonic() - begun < 60 * patience()
        assert node_state(cluster, 3) == "fenced"
        vcluster(cluster.directory, "power", "power-on", "node3")
        wait_until(lambda: node_state(cluster, 3) == "healthy", "the node is back", 60)
        wait_until(
            lambda: cluster.value("node", "node3", "offline") == "N", "the node is online", 20
        )
        cluster.ok("gnt-cluster", "verify")
