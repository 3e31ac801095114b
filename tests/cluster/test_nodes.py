"""Roles, shared files, tags and the check of the cluster, by the real commands on real daemons."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import NODED
from tests.support.local_cluster import LocalCluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NewName = Callable[[], str]
LIST, ALLOWED = "/etc/ganeti/distributed-files", "/etc/ganeti/allowed-uploads"


def roles(cluster: LocalCluster) -> str:
    done = cluster.ok("gnt-node", "list", "--no-headers", "-o", "role")
    return "".join(done.lines)


def verified(cluster: LocalCluster, *options: str) -> str:
    return cluster.run("gnt-cluster", "verify", "--error-codes", *options).out


def test_a_check_right_after_a_change_finds_nothing(cluster: LocalCluster) -> None:
    cluster.ok("gnt-cluster", "add-tags", "seen")
    said = cluster.ok("gnt-cluster", "verify").out
    assert "ERROR" not in said
    assert "WARNING" not in said
    assert cluster.ok("gnt-cluster", "search-tags", "^se").out == "/cluster seen\n"
    cluster.ok("gnt-cluster", "remove-tags", "seen")
    assert cluster.ok("gnt-cluster", "list-tags").out == ""


def test_nodes_change_their_roles(cluster: LocalCluster) -> None:
    assert roles(cluster) == "MCC"
    cluster.ok("gnt-node", "modify", "--drained=yes", "node2")
    assert roles(cluster) == "MDC"
    cluster.ok("gnt-node", "modify", "-O", "yes", "node2")
    assert roles(cluster) == "MOC"
    assert "is the master" in cluster.fails("gnt-node", "modify", "-O", "yes", "node1")
    cluster.ok("gnt-node", "modify", "-O", "no", "node2")
    assert roles(cluster) == "MCC"
    cluster.ok("gnt-node", "modify", "-C", "no", "--force", "node2")
    assert roles(cluster) == "MRC"
    assert "WARNING:ECLUSTERCFG" in verified(cluster)
    cluster.ok("gnt-node", "modify", "-C", "yes", "node2")
    cluster.ok("gnt-cluster", "verify")


@pytest.mark.requirement("F9")
def test_a_node_that_does_not_answer_stays_offline(cluster: LocalCluster) -> None:
    cluster.ok("gnt-node", "modify", "-O", "yes", "node2")
    cluster.kill(NODED, 2)
    said = cluster.fails("gnt-node", "modify", "-O", "no", "node2")
    assert "start its node daemon first" in said
    assert roles(cluster) == "MOC"
    cluster.start(NODED, 2)
    cluster.ok("gnt-node", "modify", "-O", "no", "node2")


@pytest.mark.requirement("F29")
def test_node_marked_offline_is_notified_and_starts_nothing(
    cluster: LocalCluster,
) -> None:
    known = cluster.node(3).paths.data / "ssconf_offline_nodes"
    cluster.ok("gnt-node", "modify", "-O", "yes", "node3")
    wait_until(lambda: known.read_text().strip() == "node3.vcluster.test", "it was told", 10)
    # One that was away hears of it when it is back.
    cluster.ok("gnt-node", "modify", "-O", "no", "node3")
    assert known.read_text().strip() == ""  # it may start guests as soon as the command has ended
    cluster.kill(NODED, 3)
    cluster.ok("gnt-node", "modify", "-O", "yes", "node3")
    assert known.read_text().strip() == ""
    cluster.start(NODED, 3)
    wait_until(lambda: known.read_text().strip() == "node3.vcluster.test", "it was told", 30)
    cluster.ok("gnt-node", "modify", "-O", "no", "node3")
    cluster.ok("gnt-cluster", "verify")


@pytest.mark.requirement("S66", "S68", "S242", "F37")
def test_listed_files_are_on_all_nodes_that_allow_them(cluster: LocalCluster) -> None:
    master = cluster.node(1).paths
    listed = "/etc/own.conf\n/etc/ganeti/shared/motd\n"
    master.below(LIST).write_text(listed)
    master.below("/etc/own.conf").write_text("ours\n")
    master.shared_files.mkdir()
    (master.shared_files / "motd").write_text("listed once\n")
    master.rapi_certificate.touch(0o600)
    master.rapi_certificate.write_text("key\n")
    for number in (2, 3):
        cluster.node(number).paths.below(ALLOWED).write_text("/etc/own.conf\n")
    cluster.ok("gnt-cluster", "redist-conf")
    for number in (2, 3):
        paths = cluster.node(number).paths
        assert paths.below("/etc/own.conf").read_text() == "ours\n"
        assert paths.below(LIST).read_text() == listed
        assert (paths.shared_files / "motd").read_text() == "listed once\n"
        assert paths.rapi_certificate.read_text() == "key\n"
    cluster.ok("gnt-cluster", "verify")
    master.below("/etc/own.conf").write_text("changed\n")
    said = verified(cluster)
    assert "ERROR:ECLUSTERFILECHECK:node:node2.vcluster.test:has another /etc/own.conf" in said
    cluster.node(3).paths.below(ALLOWED).unlink()
    cluster.fails("gnt-cluster", "redist-conf")
    assert cluster.node(2).paths.below("/etc/own.conf").read_text() == "changed\n"
    assert cluster.node(3).paths.below("/etc/own.conf").read_text() == "ours\n"
    master.below(LIST).unlink()
    cluster.ok("gnt-cluster", "verify")


def test_lost_disks_and_forgotten_files_are_found(cluster: LocalCluster, new_name: NewName) -> None:
    name = new_name()
    cluster.ok("gnt-instance", "add", "-n", "node2", *cluster.noop_options(), name)
    assert "ERROR" not in verified(cluster)
    [disk] = cluster.disks()
    lost = disk.with_name("lost")
    disk.rename(lost)
    said = verified(cluster)
    assert f"ERROR:EINSTANCEMISSINGDISK:instance:{name}:disk/0 is missing" in said
    assert "WARNING:ENODEORPHANLV:node:node2.vcluster.test:the file /" in said
    assert "unknown" not in verified(cluster, "--ignore-errors=EINSTANCEMISSINGDISK")
    assert "unknown code: ENOSUCH" in cluster.fails(
        "gnt-cluster", "verify", "--ignore-errors=ENOSUCH"
    )
    lost.rename(disk)


def test_the_cluster_s_parameters_are_changed(cluster: LocalCluster) -> None:
    cluster.ok("gnt-cluster", "modify", "-I", "hail", "-B", "vcpus=2", "--max-running-jobs=50")
    said = cluster.ok("gnt-cluster", "info").out
    assert "default instance allocator: hail" in said
    assert "maximal number of jobs running simultaneously: 50" in said
    cluster.ok("gnt-cluster", "modify", "-B-vcpus", "--max-running-jobs=1000")
    assert "xen" in cluster.fails("gnt-cluster", "modify", "--enabled-hypervisors=xen")
    assert "--master-netdev" in cluster.fails("gnt-cluster", "activate-master-ip")


@pytest.mark.requirement("S91", "S93")
def test_renamed_node_keeps_its_instances_running(cluster: LocalCluster, new_name: NewName) -> None:
    name = new_name()
    cluster.ok("gnt-instance", "add", "-n", "node3", *cluster.noop_options(), name)
    uuid = cluster.value("node", "node3", "uuid")
    cluster.ok("gnt-node", "rename", "node3", "other.vcluster.test")
    assert cluster.value("instance", name, "pnode") == "other.vcluster.test"
    assert cluster.value("instance", name, "status") == "running"
    cluster.ok("gnt-node", "add-tags", uuid, "renamed")
    assert cluster.ok("gnt-node", "list-tags", "other").out == "renamed\n"
    cluster.ok("gnt-node", "rename", uuid, "node3.vcluster.test")


def test_the_watcher_is_paused(cluster: LocalCluster) -> None:
    cluster.ok("gnt-cluster", "watcher", "pause", "30m")
    assert "paused until" in cluster.ok("gnt-cluster", "watcher", "info").out
    cluster.ok("gnt-cluster", "watcher", "continue")
    assert "is not paused" in cluster.ok("gnt-cluster", "watcher", "info").out


@pytest.mark.requirement("A47")
def test_hook_installed_between_two_jobs_runs_until_it_is_removed(
    cluster: LocalCluster, new_name: NewName, tmp_path: Path
) -> None:
    """The master learns of it from the answers of the node to the calls of the second job."""
    name, record = new_name(), tmp_path / "ran"
    options = ["-t", "diskless", "--no-install", "--no-nics", "-n", "node2"]
    cluster.ok("gnt-instance", "add", *options, name)
    directory = cluster.node(2).paths.hooks / "instance-start-pre.d"
    directory.mkdir(mode=0o755, parents=True)
    program = directory / "10-record"
    program.write_text(f"#!/bin/sh\necho $GANETI_INSTANCE_NAME >> {record}\n")
    program.chmod(0o755)
    cluster.ok("gnt-instance", "startup", name)
    assert record.read_text() == f"{name}\n"
    program.unlink()
    cluster.ok("gnt-instance", "shutdown", "--timeout=0", name)
    cluster.ok("gnt-instance", "startup", name)
    assert record.read_text() == f"{name}\n"
