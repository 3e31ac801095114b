"""Archived jobs are seen after a failover: real daemons on three nodes."""

from collections.abc import Iterator

import pytest

from ganeti.bootstrap.daemons import MASTERD
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.masters import all_in_sync_set, fail_over

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(150)]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(nodes=3) as made:
        all_in_sync_set(made, 3)
        yield made


def submitted(cluster: LocalCluster) -> str:
    return cluster.ok("gnt-debug", "delay", "0", "--submit").out.split()[-1]


@pytest.mark.requirement("F10", "F4", "G1")
def test_archived_jobs_are_seen_on_the_next_master(cluster: LocalCluster) -> None:
    cluster.kill(MASTERD, 3)  # it is away while the first is archived
    jobs = []
    for _ in range(2):
        jobs.append(submitted(cluster))
        cluster.ok("gnt-job", "wait", jobs[-1])
        cluster.ok("gnt-job", "archive", jobs[-1])
        if len(jobs) == 1:
            cluster.start(MASTERD, 3)
            all_in_sync_set(cluster, 3)
    master = 1
    for target in (2, 3):
        cluster.kill(MASTERD, master)
        fail_over(cluster, target)
        for job in jobs:
            shown = cluster.run("gnt-job", "info", job, node=target)
            assert shown.status == 0, shown.out + shown.err
            assert "success" in shown.out
        cluster.start(MASTERD, master)
        wait_until(
            lambda old=master: cluster.run("gnt-cluster", "master-ping", node=old).status == 11,  # type: ignore[misc] # a default
            "the old master follows",
            20,
        )
        master = target
