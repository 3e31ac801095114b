"""Making and ending clusters on this machine: side by side, twice, and to the last process."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import MASTERD
from tests.support.local_cluster import (
    VCLUSTER,
    local_cluster,
    processes_of,
    short_directory,
    vcluster,
    wait_until,
)

pytestmark = [pytest.mark.cluster, pytest.mark.in_turn, pytest.mark.timeout(300)]


def test_two_clusters_do_not_disturb_each_other() -> None:
    with local_cluster(nodes=2) as first:
        before = first.processes()
        with local_cluster(nodes=1) as second:
            second.ok(
                "gnt-instance", "add", "-t", "diskless", "--no-install", "--no-nics", "a.test"
            )
            assert first.names("instance") == set()
            daemons = {words.split()[2] for words in second.processes().values()}
            assert daemons == {"ganeti.daemons.noded", "ganeti.daemons.masterd"}
        assert not second.directory.exists()
        assert processes_of(second.directory) == {}
        assert first.processes() == before
        first.ok("gnt-cluster", "verify")
        directory = first.directory
    assert processes_of(directory) == {}


def test_up_and_down_may_be_repeated() -> None:
    with local_cluster(nodes=1) as cluster:
        before = cluster.processes()
        assert "it was not changed" in vcluster(cluster.directory, "up", "--nodes", "3")
        assert cluster.processes() == before
        assert "down" not in vcluster(cluster.directory, "status")
        cluster.kill(MASTERD)
        status = subprocess.run(
            [str(VCLUSTER), "--dir", str(cluster.directory), "status"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (status.returncode, "down" in status.stdout) == (1, True)
        assert "started ganeti-masterd" in vcluster(cluster.directory, "up")
        cluster.ok("gnt-node", "list")
        vcluster(cluster.directory, "down")
        assert "No cluster exists" in vcluster(cluster.directory, "down")
        assert not cluster.directory.exists()


@pytest.mark.requirement("G1", "G2")
def test_cluster_recovers_after_all_daemons_died() -> None:
    with local_cluster(nodes=2) as cluster:
        cluster.install_noop()
        add = ["gnt-instance", "add", "-n", "node2", *cluster.noop_options(), "a.example.com"]
        cluster.ok(*add)
        jobs = cluster.ok("gnt-job", "list").out
        for pid in cluster.processes():
            with contextlib.suppress(ProcessLookupError):  # a command that ended meanwhile
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not cluster.processes(), "nothing runs")
        assert cluster.run("gnt-node", "list").status == 1
        assert vcluster(cluster.directory, "up").count("started ganeti-") == 4
        assert cluster.ok("gnt-job", "list").out == jobs
        assert cluster.value("instance", "a", "status") == "running"
        cluster.ok("gnt-cluster", "verify")


def test_node_loses_power_and_its_out_of_band_program_switches_it_on() -> None:
    with local_cluster(nodes=2) as cluster:
        program = "--node-parameters=oob_program=/usr/local/sbin/vcluster-power"
        cluster.ok("gnt-cluster", "modify", program)
        name = cluster.node(2).name
        cluster.install_noop()
        cluster.ok("gnt-instance", "add", "-n", name, *cluster.noop_options(), "a.test")
        vcluster(cluster.directory, "power", "power-off", "node2")
        assert not any("node2" in words for words in cluster.processes().values())
        status = cluster.ok("gnt-node", "power", "status", "--no-headers", name)
        assert "unpowered" in status.out
        cluster.ok("gnt-node", "power", "on", name)
        wait_until(
            lambda: "ERROR_down" in cluster.ok("gnt-instance", "list", "-o", "status").out,
            "the node answers without its instance",
        )


def test_down_ends_scripts_that_still_run() -> None:
    with local_cluster(nodes=1) as cluster:
        cluster.install_noop()
        options = cluster.noop_options(sleep="600")
        cluster.ok("gnt-instance", "add", "--submit", "-n", "node1", *options, "a.example.com")
        wait_until(cluster.record.exists, "the create script runs")
        directory = cluster.directory
        wait_until(lambda: bool(_sleepers()), "the create script sleeps")
        sleeps = _sleepers()
        vcluster(directory, "down")
        assert processes_of(directory) == {}
        assert not _sleepers() & sleeps


def _sleepers() -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if (entry / "cmdline").read_bytes() == b"sleep\x00600\x00":
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def test_an_interrupted_up_leaves_nothing() -> None:
    with short_directory() as parent, begun(parent / "c") as process:
        process.terminate()
        assert process.wait(timeout=30) == 128 + 15
        wait_until(lambda: not processes_of(parent), "all processes are gone", 5)
        assert not (parent / "c").exists()


def test_unfinished_cluster_is_created_again() -> None:
    with short_directory() as parent:
        directory = parent / "c"
        with begun(directory) as process:
            process.kill()
        try:
            assert "was interrupted" in vcluster(directory, "up", "--nodes", "1")
            assert len(vcluster(directory, "status").splitlines()) == 2
        finally:
            vcluster(directory, "down")
        assert processes_of(directory) == {}


@contextlib.contextmanager
def begun(directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """An `up` that has started something and is not finished."""
    with subprocess.Popen(
        [str(VCLUSTER), "--dir", str(directory), "up", "--nodes", "3"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            wait_until(lambda: len(processes_of(directory)) > 1, "daemons are there")
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_a_cluster_shrinks_to_its_master_and_is_destroyed() -> None:
    with local_cluster(nodes=2) as cluster:
        cluster.ok("gnt-node", "remove", "node2")
        assert cluster.names("node") == {"node1.vcluster.test"}
        cluster.ok("gnt-cluster", "verify")
        cluster.ok("gnt-cluster", "destroy", "--yes-do-it")
        wait_until(lambda: not cluster.processes(), "all daemons have ended")
        assert cluster.run("gnt-cluster", "info").status == 5


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_nodes_live_in_network_namespaces_of_their_own() -> None:
    if subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine allows no network namespaces")
    with local_cluster("--netns") as cluster:
        bridge, spaces = cluster.cluster.bridge, [one.namespace for one in cluster.cluster.nodes]
        cluster.install_noop()
        add = ["gnt-instance", "add", "-I", "hail", *cluster.noop_options(), "a.example.com"]
        cluster.ok(*add)
        assert cluster.value("instance", "a", "status") == "running"
        cluster.ok("gnt-cluster", "verify")
        assert set(spaces) <= set(_namespaces())
        assert Path(f"/sys/class/net/{bridge}").exists()
    assert not set(spaces) & set(_namespaces())
    assert not Path(f"/sys/class/net/{bridge}").exists()


def _namespaces() -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)
    return [line.split()[0] for line in listed.stdout.splitlines()]
