"""Automatic recovery of instances on real DRBD: no acknowledged write is lost, whatever fails.

The nodes are machines whose power an out-of-band program cuts. A program in them writes the log of a guest, because a
guest inside an emulated machine would take minutes to boot.
"""

import json
import os
import signal
import time
from collections.abc import Iterator

import pytest

from ganeti.bootstrap.daemons import MASTERD
from tests.support.local_cluster import wait_until
from tests.support.machine_cluster import POWER, MachineCluster, machine_cluster
from tests.support.numbered_log import NumberedLog

pytestmark = [pytest.mark.host, pytest.mark.soak, pytest.mark.timeout(7200)]

WEB = "web1.example.com"
LONG_S = 1800


@pytest.fixture(scope="module")
def cluster() -> Iterator[MachineCluster]:
    with machine_cluster() as made:
        made.install_power()
        # A busy host may stop a machine for longer than recovery waits: only the one that is lost can be fenced.
        params = f"--node-parameters=oob_program={POWER},fence_methods=none"
        made.ok("gnt-cluster", "modify", params)
        yield made


def fence_by(cluster: MachineCluster, methods: str) -> None:
    """Choose how node 2 is fenced."""
    cluster.ok("gnt-node", "modify", f"--node-parameters=fence_methods={methods}", "node2")


@pytest.fixture
def log(cluster: MachineCluster) -> Iterator[NumberedLog]:
    """The log of a protected instance that runs on node 2, with a copy on node 3; nothing is left of it."""
    cluster.ok(
        *("gnt-instance", "add", "-t", "drbd", "-n", "node2:node3", "--disk", "0:size=64m"),
        *("-B", "memory=16m,recovery=failover", "--no-install", "--no-nics", WEB),
        timeout_s=LONG_S,
    )
    do(cluster, "startup", WEB)
    wait_current(cluster)
    made = NumberedLog(cluster)
    made.write_on(2)
    wait_until(lambda: made.done_on(2) > 5, "the log is written", LONG_S)
    yield made
    do(cluster, "remove", "-f", WEB)


def do(cluster: MachineCluster, *words: str) -> None:
    done = cluster.run("gnt-instance", *words, timeout_s=LONG_S)
    assert done.status == 0, f"{words}:\n{done.out}{done.err}\n{cluster.kernel_said()}"


def why(cluster: MachineCluster) -> str:
    """What is said of the instance's protection; '' if all is well."""
    status = json.loads(cluster.ok("gnt-cluster", "ha-status", "--json", timeout_s=LONG_S).out)
    return next(str(one["why"]) for one in status["instances"] if one["name"] == WEB)


def wait_current(cluster: MachineCluster) -> None:
    wait_until(lambda: not why(cluster), "both copies are current", LONG_S)


def drbd(cluster: MachineCluster, number: int) -> str:
    return cluster.inside(number, "grep cs: /proc/drbd")


def cut_link(cluster: MachineCluster) -> None:
    """Nodes 2 and 3 do not reach each other; the master reaches both."""
    for node, peer in ((2, 3), (3, 2)):
        cluster.inside(node, f"ip route add blackhole {cluster.node(peer).address}/32")


def heal_link(cluster: MachineCluster) -> None:
    for node, peer in ((2, 3), (3, 2)):
        cluster.inside(node, f"ip route del blackhole {cluster.node(peer).address}/32")


def wait_goes_on(log: NumberedLog, number: int) -> None:
    before = log.done_on(number)
    wait_until(lambda: log.done_on(number) > before + 5, "writes go on", LONG_S)


@pytest.mark.requirement("D3", "D4", "D5", "D6")
def test_writes_wait_for_the_master_when_the_link_is_cut_and_the_copy_joins_again(
    cluster: MachineCluster, log: NumberedLog
) -> None:
    cut_link(cluster)
    wait_until(lambda: "WFConnection" in drbd(cluster, 2), "the cut is noticed", LONG_S)
    wait_goes_on(log, 2)
    assert "does not have every write yet" in why(cluster)
    refused = cluster.run("gnt-instance", "failover", "-f", WEB, timeout_s=LONG_S)
    assert refused.status != 0
    heal_link(cluster)
    wait_current(cluster)
    wait_goes_on(log, 2)
    log.end_on(2)
    last = log.done_on(2)
    do(cluster, "failover", "-f", WEB)
    log.write_on(3)
    wait_until(lambda: log.found_on(3) is not None, "the log continues", LONG_S)
    assert log.found_on(3) == last
    log.end_on(3)


@pytest.mark.requirement("D5")
def test_writes_wait_as_long_as_the_master_does_not_answer_either(
    cluster: MachineCluster, log: NumberedLog
) -> None:
    master = cluster.pid(MASTERD)
    os.kill(master, signal.SIGSTOP)
    try:
        cut_link(cluster)
        wait_until(lambda: "s-----" in drbd(cluster, 2), "writes wait", LONG_S)
        waiting = log.done_on(2)
        time.sleep(30)
        assert log.done_on(2) == waiting
    finally:
        os.kill(master, signal.SIGCONT)
    wait_goes_on(log, 2)
    heal_link(cluster)
    wait_current(cluster)
    log.end_on(2)


@pytest.mark.requirement("D4", "D6", "D7", "D9")
def test_log_of_a_lost_node_continues_on_the_other_one_and_the_node_comes_back(
    cluster: MachineCluster, log: NumberedLog
) -> None:
    fence_by(cluster, "power")
    cluster.machine(2).cut_power()
    last = log.done_on(2)
    wait_until(
        lambda: (
            cluster.value("instance", WEB, "pnode").startswith("node3")
            and cluster.value("instance", WEB, "status") == "running"
        ),
        "the instance runs on its other node",
        LONG_S,
    )
    log.write_on(3)
    wait_until(lambda: log.found_on(3) is not None, "the log continues", LONG_S)
    found = log.found_on(3)
    # An entry may be on both disks although its end was not told.
    assert found is not None
    assert last <= found <= last + 1
    fence_by(cluster, "none")
    cluster.power_on(2)
    wait_current(cluster)
    wait_until(
        lambda: cluster.value("node", "node2", "offline") == "N", "the node is online", LONG_S
    )
    wait_goes_on(log, 3)
    log.end_on(3)
    last = log.done_on(3)
    do(cluster, "failover", "-f", WEB)
    log.write_on(2)
    wait_until(lambda: log.found_on(2) is not None, "the log continues", LONG_S)
    assert log.found_on(2) == last
    log.end_on(2)
