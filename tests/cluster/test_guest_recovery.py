"""Automatic recovery with real daemons: a guest ends by itself, and is started again, but not for ever."""

import time

import pytest

from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.patience import patience

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(300)]

NAME = "web.example.com"


def state(cluster: LocalCluster) -> str:
    """The state that recovery shows of the instance; '' while it watches nothing."""
    rows = (line.split() for line in cluster.run("gnt-cluster", "ha-status").lines)
    return next((" ".join(words) for words in rows if words[:1] == [NAME]), "")


@pytest.mark.requirement("D13")
def test_crashed_guest_is_restarted_until_its_attempts_are_used_up() -> None:
    with local_cluster(nodes=3) as cluster:
        options = ("-t", "diskless", "--no-install", "--no-nics")
        cluster.ok(
            *("gnt-instance", "add", "-n", "node2", *options),
            *("-B", "memory=16m,recovery=restart,recovery_attempts=1", NAME),
        )
        cluster.ok("gnt-instance", "start", NAME)
        uuid = cluster.value("instance", NAME, "uuid")
        guest = cluster.node(2).paths.fake_hypervisor / f"{uuid}.json"
        wait_until(lambda: bool(state(cluster)), "recovery watches the instance", 20)
        time.sleep(5)  # its node has seen the guest run
        guest.unlink()
        begun = time.monotonic()
        wait_until(guest.exists, "the guest runs again", 20)
        assert time.monotonic() - begun < 10 * patience()
        time.sleep(5)
        guest.unlink()
        wait_until(lambda: "given" in state(cluster), "recovery gives up", 30)
        assert not guest.exists()
        assert f"gnt-instance start {NAME}" in cluster.run("gnt-cluster", "ha-status").out
        cluster.ok("gnt-instance", "start", NAME)
        wait_until(lambda: "given" not in state(cluster), "recovery watches it again", 20)
