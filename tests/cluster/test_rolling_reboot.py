"""Nodes of a real cluster are restarted one after the other; their guests run elsewhere meanwhile, and return."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import NODED
from ganeti.node.host_restart import TRIGGER
from ganeti.node.lease_record import BOOT_ID
from tests.support.local_cluster import LocalCluster, local_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(nodes=3) as one:
        yield one


class Hosts:
    """The hosts below virtual nodes 2 and 3: a node whose trigger is written restarts with another boot id."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._end = threading.Event()
        self.restarted: list[int] = []
        for number in (2, 3):
            self._file(number, TRIGGER).parent.mkdir(parents=True, exist_ok=True)
            self._file(number, TRIGGER).touch()
            boot_id = self._file(number, BOOT_ID)
            boot_id.parent.mkdir(parents=True, exist_ok=True)
            boot_id.write_text("boot-0\n")
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _file(self, number: int, path: str) -> Path:
        return self._cluster.node(number).paths.below(path)

    def _watch(self) -> None:
        while not self._end.wait(0.2):
            for number in (2, 3):
                trigger = self._file(number, TRIGGER)
                if trigger.read_text() != "b":
                    continue
                trigger.write_text("")
                self._cluster.stop(NODED, number)
                self.restarted.append(number)
                self._file(number, BOOT_ID).write_text(f"boot-{len(self.restarted)}\n")
                self._cluster.start(NODED, number)

    def end(self) -> None:
        self._end.set()
        self._thread.join()


@pytest.fixture
def hosts(cluster: LocalCluster) -> Iterator[Hosts]:
    found = Hosts(cluster)
    yield found
    found.end()


def add(cluster: LocalCluster, number: int, name: str) -> None:
    cluster.ok("gnt-instance", "add", "-t", "diskless", "--no-install", "--no-nics", "-o", "noop",
               "-B", "memory=128m", "-n", f"node{number}", name)  # fmt: skip


def primary(cluster: LocalCluster, name: str) -> str:
    return cluster.value("instance", name, "pnode")


def test_nodes_restart_one_after_the_other_and_guests_return(
    cluster: LocalCluster, hosts: Hosts
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
