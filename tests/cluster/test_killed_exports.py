"""A guest that was stopped for an export runs again after its master was killed, without the watcher."""

from collections.abc import Iterator

import pytest

from ganeti.bootstrap.daemons import MASTERD
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(150),
    pytest.mark.requirement("G7", "G11", "F11"),
]

NAME = "web1.example.com"
HANGS = """#!/bin/sh
sleep 1000
"""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(nodes=1) as made:
        made.install_noop()
        for name in ("export", "import"):
            script = made.node(1).paths.os_search_path[0] / "noop" / name
            script.write_text(HANGS)
            script.chmod(0o755)
        yield made


def test_a_guest_runs_again_after_the_master_of_its_export_was_killed(
    cluster: LocalCluster,
) -> None:
    cluster.ok("gnt-instance", "add", *cluster.noop_options(), "-n", "node1", NAME)
    assert cluster.value("instance", NAME, "status") == "running"
    cluster.ok("gnt-backup", "export", "--submit", "-n", "node1", NAME)

    def script_runs() -> bool:
        return any("/noop/export" in command for command in cluster.processes().values())

    wait_until(script_runs, "the export script runs", 30)
    assert cluster.value("instance", NAME, "status") == "ERROR_down"
    cluster.kill(MASTERD, 1)
    cluster.start(MASTERD, 1)
    wait_until(
        lambda: (
            cluster.run("gnt-instance", "list", "--no-headers", "-o", "status").out.strip()
            == "running"
        ),
        "the guest runs again",
        40,
    )
    assert not script_runs()
    assert cluster.ok("gnt-job", "pending-undo").out.count(NAME) == 0
    cluster.ok("gnt-cluster", "verify")
