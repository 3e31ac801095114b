"""kill -9 of a node daemon: guests and scripts outlive it."""

import os
import re
import signal
import time
from collections.abc import Callable

import pytest

from ganeti.bootstrap.daemons import NODED
from tests.support.local_cluster import LocalCluster, wait_until
from tests.support.patience import patience, text_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.mark.requirement("F30")
def test_a_guest_survives_the_kill_of_its_node_daemon(
    cluster: LocalCluster, new_name: Callable[[], str]
) -> None:
    name = new_name()
    cluster.ok("gnt-instance", "add", "-n", "node3", *cluster.noop_options(), name)
    cluster.kill(NODED, 3)
    wait_until(lambda: status(cluster, name) == "ERROR_nodedown", "the node's silence is seen")
    cluster.start(NODED, 3)
    wait_until(lambda: status(cluster, name) == "running", "the guest is seen again")
    cluster.ok("gnt-instance", "shutdown", name)


@pytest.mark.requirement("G17", "F31")
def test_a_hung_node_delays_only_what_needs_it(
    cluster: LocalCluster, new_name: Callable[[], str]
) -> None:
    here, there, another = new_name(), new_name(), new_name()
    cluster.ok("gnt-instance", "add", "-n", "node2", *cluster.noop_options(), here)
    cluster.ok("gnt-instance", "add", "-n", "node3", *cluster.noop_options(), there)
    hung = cluster.pid(NODED, 3)
    os.kill(hung, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        wait_until(lambda: status(cluster, there) == "ERROR_nodedown", "its silence is seen")
        assert status(cluster, here) == "running"
        cluster.ok("gnt-instance", "add", "-n", "node1", *cluster.noop_options(), another)
        cluster.ok("gnt-instance", "reboot", here)
        cluster.ok("gnt-debug", "delay", "0")
        assert time.monotonic() - begun < 20 * patience()
    finally:
        os.kill(hung, signal.SIGCONT)
    wait_until(lambda: status(cluster, there) == "running", "the node answers again")
    cluster.ok("gnt-instance", "reboot", there)


@pytest.mark.requirement("G7")
def test_a_create_script_survives_the_kill_of_its_node_daemon(
    cluster: LocalCluster, new_name: Callable[[], str]
) -> None:
    name = new_name()
    options = cluster.noop_options(sleep="2")
    with cluster.in_background("gnt-instance", "add", "-n", "node2", *options, name) as command:
        wait_until(lambda: _runs(cluster, name) == (1, 0), "the create script runs")
        cluster.kill(NODED, 2)
        cluster.start(NODED, 2)
        said = text_of(command, 60)[0]
        assert command.returncode == 0, said
    assert _runs(cluster, name) == (1, 1)
    assert cluster.value("instance", name, "status") == "running"


def status(cluster: LocalCluster, name: str) -> str:
    return cluster.value("instance", name, "status")


def _runs(cluster: LocalCluster, name: str) -> tuple[int, int]:
    """How often the create script has begun and ended for an instance."""
    text = cluster.record.read_text() if cluster.record.exists() else ""
    counts = (
        len(re.findall(f"^{re.escape(name)} {what}$", text, re.MULTILINE))
        for what in ("begins", "ends")
    )
    begun, ended = counts
    return begun, ended
