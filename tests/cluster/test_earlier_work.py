"""A create script that outlives its master is ended before its disks are taken away (R11)."""

from collections.abc import Iterator

import pytest

from ganeti.bootstrap.daemons import MASTERD, NODED
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(150)]

NAME = "slow.example.com"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(nodes=2) as made:
        made.install_noop()
        yield made


def script_runs(cluster: LocalCluster) -> bool:
    return any("/noop/create" in command for command in cluster.processes().values())


@pytest.mark.requirement("G4", "G7", "G11", "F11", "F24")
@pytest.mark.parametrize("dies", [(MASTERD,), (MASTERD, NODED)], ids=["master", "master and node"])
def test_the_next_master_ends_the_script_and_then_undoes(
    cluster: LocalCluster, dies: tuple[str, ...]
) -> None:
    options = cluster.noop_options(sleep="100")
    cluster.ok("gnt-instance", "add", "--submit", *options, "-n", "node1", NAME)
    wait_until(lambda: script_runs(cluster), "the script runs", 30)
    assert cluster.disks()
    for name in dies:
        cluster.kill(name, 1)
    assert script_runs(cluster)  # it outlives the daemons
    for name in reversed(dies):
        cluster.start(name, 1)
    wait_until(lambda: not cluster.disks(), "what the creation had begun is undone", 40)
    assert not script_runs(cluster)
    assert NAME not in cluster.names("instance")
    assert f"{NAME} ends" not in cluster.record.read_text()
    assert "undo" in cluster.ok("gnt-job", "list", "--no-headers", "-o", "opresult").out
    cluster.ok("gnt-cluster", "verify")
