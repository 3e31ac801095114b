"""A node whose primary network fails and whose secondary network works is not lost; one that both have left is."""

import contextlib
import subprocess
from collections.abc import Iterator

import pytest

from ganeti.bootstrap.daemons import NODED
from tests.support.local_cluster import LocalCluster, wait_until
from tests.support.partitions import cable, cluster_with_cables

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(400)]

NAME = "web.example.com"
OOB = "--node-parameters=oob_program=/usr/local/sbin/vcluster-power"
LONG_ENOUGH_S = 30.0
"""Three times as long as a node without a second network takes to be lost."""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def second_end(cluster: LocalCluster, number: int) -> str:
    """The end of the node's second cable that is in the second bridge."""
    return f"w{cluster.node(number).namespace.removeprefix('gnt-')}"


def listen_everywhere(cluster: LocalCluster, number: int) -> None:
    """Start the node daemon as its service does, on all addresses."""
    cluster.stop(NODED, number)
    one = cluster.node(number)
    subprocess.run(
        ["setsid", "--fork", *one.words([NODED, "--bind-address="])],
        check=True,
        env=one.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: cluster.runs(NODED, number), "the node daemon serves")


@contextlib.contextmanager
def second_network(cluster: LocalCluster, nodes: int) -> Iterator[None]:
    """Another bridge with a cable to each node, which gets a secondary address there."""
    bridge = f"s{cluster.node(1).namespace.removeprefix('gnt-')}"
    ip("link", "add", bridge, "type", "bridge")
    try:
        ip("link", "set", bridge, "up")
        for number in range(1, nodes + 1):
            inside, end = cluster.node(number).namespace, second_end(cluster, number)
            ip("link", "add", end, "type", "veth", "peer", "name", "eth9", "netns", inside)
            ip("link", "set", end, "master", bridge, "up")
            ip("-n", inside, "addr", "add", f"198.51.100.{number}/24", "dev", "eth9")
            ip("-n", inside, "link", "set", "eth9", "up")
            listen_everywhere(cluster, number)
            name = cluster.node(number).name
            cluster.ok("gnt-node", "modify", f"--secondary-ip=198.51.100.{number}", name)
        yield
    finally:
        ip("link", "del", bridge)


def row(cluster: LocalCluster, number: int) -> str:
    """What people see of a node."""
    name = cluster.node(number).name
    lines = cluster.ok("gnt-cluster", "ha-status").lines
    return next((line for line in lines if line.split()[:1] == [name]), "")


def state(cluster: LocalCluster, number: int) -> str:
    return row(cluster, number).split()[1] if row(cluster, number) else ""


@pytest.mark.requirement("D7")
def test_node_is_lost_only_if_neither_network_reaches_it() -> None:
    with cluster_with_cables(nodes=3) as cluster, second_network(cluster, nodes=3):
        cluster.ok("gnt-cluster", "modify", OOB)
        options = ("-t", "diskless", "--no-install", "--no-nics", "-B", "memory=16m")
        cluster.ok("gnt-instance", "add", "-n", "node3", *options, NAME)
        cluster.ok("gnt-instance", "start", NAME)
        cluster.ok("gnt-instance", "modify", "-B", "recovery=failover", NAME)
        wait_until(lambda: state(cluster, 3) == "healthy", "the node answers heartbeats", 20)

        cable(cluster, 3, "down")
        wait_until(lambda: "secondary address" in row(cluster, 3), "the detour is shown", 60)
        with pytest.raises(AssertionError):
            wait_until(lambda: state(cluster, 3) in ("fencing", "fenced"), "", LONG_ENOUGH_S)
        assert cluster.value("instance", NAME, "pnode").startswith("node3")
        assert cluster.value("node", "node3", "offline") == "N"

        ip("link", "set", second_end(cluster, 3), "down")
        wait_until(
            lambda: not cluster.value("instance", NAME, "pnode").startswith("node3"),
            "the instance runs elsewhere",
            90,
        )
        assert state(cluster, 3) == "fenced"
