"""A real node daemon whose disk is of no use any more is told to restart its host."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import NODED
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(nodes=2) as one:
        yield one


def locked_kib(pid: int) -> int:
    found = re.search(r"VmLck:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


@pytest.mark.requirement("S29")
def test_node_daemons_are_in_memory(cluster: LocalCluster) -> None:
    for number in (1, 2):
        assert locked_kib(cluster.pid(NODED, number)) > 0


@pytest.mark.requirement("S31", "S32")
def test_a_node_whose_files_are_gone_is_restarted(cluster: LocalCluster) -> None:
    node = cluster.node(2)
    trigger = node.paths.below("/proc/sysrq-trigger")
    assert "a virtual node without" in cluster.fails("gnt-node", "powercycle", "-f", "node2")
    trigger.parent.mkdir()
    trigger.touch()
    # The register cannot be read, the log not be written, no program and no task be started.
    node.paths.register.unlink()
    node.paths.register.mkdir()
    shutil.rmtree(node.paths.log)
    shutil.rmtree(node.paths.tasks, ignore_errors=True)
    done = cluster.ok("gnt-node", "powercycle", "-f", "node2")
    assert "Reboot scheduled in 5 seconds" in done.out
    wait_until(lambda: trigger.read_text() == "b", "the host was told to restart", 15)


def test_the_master_is_not_restarted_without_force(cluster: LocalCluster) -> None:
    done = cluster.run("gnt-node", "powercycle", "node1")
    assert done.status == 13
    assert "--force" in done.err
