"""Monitoring daemons of real nodes, and repairs by what tags allow."""

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from ganeti.base.paths import MOND_PORT
from ganeti.bootstrap.daemons import MOND
from tests.support.local_cluster import LocalCluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
NewName = Callable[[], str]
COLLECTORS = "/1/list/collectors"


def told(cluster: LocalCluster, path: str, node: int = 1) -> Any:
    address = f"http://{cluster.node(node).address}:{MOND_PORT}{path}"
    with urllib.request.urlopen(address, timeout=20) as answer:
        return json.load(answer)


def tool(cluster: LocalCluster, name: str, *words: str) -> str:
    """A placement command, by its module: not every environment has the programs linked."""
    done = cluster.ok("python", "-m", f"ganeti.cli.{name}", *words)
    return done.out + done.err


def test_nodes_tell_what_they_find_and_what_the_cluster_switches_off_they_do_not(
    cluster: LocalCluster, new_name: NewName
) -> None:
    cluster.ok("gnt-instance", "add", "-n", "node2", *cluster.noop_options(), new_name())
    for number in (1, 2, 3):
        cluster.start(MOND, number)
    assert [0, "storage", "diskstats"] in told(cluster, COLLECTORS)
    assert told(cluster, "/1/report/storage/diskstats", 2)["data"]
    wait_until(
        lambda: all(
            "cpu_total" in told(cluster, "/1/report/default/cpu-avg-load", number)["data"]
            for number in (1, 2, 3)
        ),
        "all nodes know their load",
    )
    assert "Loaded 3 nodes, 1 instances" in tool(
        cluster, "hbal", "-L", "--mond", "--exit-on-missing-mond-data"
    )
    words = ["--enabled-data-collectors=diskstats=false", "--data-collector-interval=lv=30"]
    cluster.ok("gnt-cluster", "modify", *words)
    wait_until(
        lambda: all(
            [0, "storage", "diskstats"] not in told(cluster, COLLECTORS, number)
            for number in (1, 2, 3)
        ),
        "no node tells diskstats",
    )
    said = cluster.ok("gnt-cluster", "info").out
    assert "diskstats: off, every 5 s" in said
    assert "lv: on, every 30 s" in said
    cluster.kill(MOND, 3)
    assert "node3.vcluster.test did not report cpu-avg-load" in tool(
        cluster, "hbal", "-L", "--mond"
    )


def test_an_instance_leaves_a_drained_node_by_itself_when_its_tag_allows_it(
    cluster: LocalCluster, new_name: NewName
) -> None:
    name = new_name()
    options = ["sharedfile" if word == "file" else word for word in cluster.noop_options()]
    cluster.ok("gnt-instance", "add", "-n", "node2", *options, name)
    cluster.ok("gnt-node", "modify", "--drained=yes", "-f", "node2")
    try:
        assert "Needs repair: 1" in tool(cluster, "harep", "-L")
        cluster.ok("gnt-cluster", "add-tags", "ganeti:watcher:autorepair:migrate")
        assert "Pending repair: 1" in tool(cluster, "harep", "-L", "--job-delay=0.5")
        wait_until(
            lambda: cluster.value("instance", name, "pnode") != "node2.vcluster.test",
            "the instance has moved",
        )
        wait_until(lambda: "Healthy: 1" in tool(cluster, "harep", "-L"), "the repair has ended")
        assert cluster.value("instance", name, "status") == "running"
        tags = cluster.ok("gnt-instance", "list-tags", name).lines
        assert [tag.split(":")[3:5] for tag in tags] == [["result", "migrate"]]
    finally:
        cluster.ok("gnt-node", "modify", "--drained=no", "node2")
        cluster.run("gnt-cluster", "remove-tags", "ganeti:watcher:autorepair:migrate")
