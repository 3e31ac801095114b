"""Signals that administrators and logrotate send to daemons; none but SIGTERM and SIGINT ends one."""

import os
import signal

import pytest

from ganeti.bootstrap.daemons import CONFD, MASTERD, MOND, NODED, RAPI
from tests.support.local_cluster import LocalCluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
LOGS = {MASTERD: "master-daemon.log", NODED: "node-daemon.log"}


def test_daemons_continue_after_signals_and_write_to_a_rotated_log(cluster: LocalCluster) -> None:
    found = [name for name in (MASTERD, NODED, CONFD, MOND, RAPI) if cluster.runs(name)]
    pids = {name: cluster.pid(name) for name in found}
    assert {MASTERD, NODED} <= pids.keys()
    logs = cluster.node(1).paths.log
    for name in LOGS.values():
        (logs / name).rename(logs / f"{name}.1")
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        for pid in pids.values():
            os.kill(pid, number)

    def is_new(name: str) -> bool:
        return (logs / name).exists() and "SIGHUP" in (logs / name).read_text()

    wait_until(lambda: all(map(is_new, LOGS.values())), "the logs are new ones")
    cluster.ok("gnt-debug", "delay", "0")
    cluster.ok("gnt-cluster", "verify")
    assert pids == {name: cluster.pid(name) for name in found}
