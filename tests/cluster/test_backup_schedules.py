"""Schedules of backups by the real commands and daemons of a local cluster."""

import json
import time
from collections.abc import Callable

import pytest

from tests.cluster.test_gnt_backup import add, install_os
from tests.support.local_cluster import LocalCluster
from tests.support.patience import patience

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

NewName = Callable[[], str]


def schedule(cluster: LocalCluster, *words: str) -> str:
    return cluster.ok("gnt-backup", "schedule", *words).out


def state_of(cluster: LocalCluster, name: str) -> tuple[str, str]:
    words = ("--no-headers", "--separator=|", "-o", "backup_state,backup_last", name)
    state, last = cluster.ok("gnt-instance", "list", *words).out.strip().split("|")
    return state, last


def points_of(cluster: LocalCluster, name: str) -> list[str]:
    return cluster.ok("gnt-backup", "points", "--no-headers", "-o", "backup", name).lines


def saved_after(cluster: LocalCluster, name: str, former: str | None) -> str:
    """Wait for the next backup of the only instance of a schedule."""
    deadline = time.monotonic() + 60 * patience()
    while True:
        [found] = json.loads(schedule(cluster, "info", name, "--json"))
        for run in found["runs"]:
            if run["backup"] not in (None, former) and not run["running"]:
                return str(run["backup"])
        assert time.monotonic() < deadline, found
        time.sleep(0.3)


def test_schedule_saves_prunes_and_is_reported(cluster: LocalCluster, new_name: NewName) -> None:
    install_os(cluster, "empty", ["create", "verify"])
    short = new_name()
    add(cluster, short, "empty")
    name = cluster.value("instance", short, "name")
    own = f"of-{short}"
    schedule(
        cluster, "add", own, "--calendar=yearly", "--time-zone=Europe/Berlin", f"--instances={short}", "-n", "node2",
        "--keep-last=1", "--bandwidth=100", "--window=00:00-00:01",
    )  # fmt: skip
    try:
        assert schedule(cluster, "run", own) == f"Saving {name}\n"
        first = saved_after(cluster, own, None)
        assert points_of(cluster, name) == [first]
        schedule(cluster, "run", own, short)
        second = saved_after(cluster, own, first)
        assert points_of(cluster, name) == [second]
        [found] = json.loads(schedule(cluster, "info", own, "--json"))
        assert (found["keep_rules"]["last"], found["owner"]) == (1, "local")
        assert state_of(cluster, short)[0] == "good"
        assert own in schedule(cluster, "list", "--no-headers", own)
        assert "good, last backup" in schedule(cluster, "info", own)
        schedule(cluster, "pause", own)
        schedule(cluster, "modify", own, "--alert-after=1", "--instance-tags=x", "--instances=")
        said = cluster.fails("gnt-backup", "schedule", "modify", own, "--calendar=often")
        assert "not a calendar expression" in said
    finally:
        schedule(cluster, "remove", own)
    assert state_of(cluster, short)[0] in ("", "-")
