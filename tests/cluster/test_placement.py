"""Placement in a cluster of real daemons: defaults, explanations, capacity, balance, an allocator that fails."""

import re
from collections.abc import Callable

import pytest

from tests.support.local_cluster import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
NewName = Callable[[], str]


def diskless(*words: str) -> list[str]:
    """Words for an instance that needs nothing but memory."""
    return ["gnt-instance", "add", "-t", "diskless", "--no-install", "--no-nics", *words]


@pytest.mark.requirement("S184", "S185")
def test_new_cluster_allocates_by_default_and_explains(
    cluster: LocalCluster, new_name: NewName
) -> None:
    name = new_name()
    cluster.ok("gnt-node", "modify", "--drained=yes", "-f", "node3")
    try:
        words = ["-B", "memory=64", "--dry-run", "--explain", name]
        said = cluster.ok(*diskless(*words)).out
    finally:
        cluster.ok("gnt-node", "modify", "--drained=no", "node3")
    assert "The instance would be on: node" in said
    assert re.search(r" drained +node3\.vcluster\.test$", said, re.MULTILINE)
    assert name not in cluster.names("instance")


@pytest.mark.requirement("S182", "S237")
def test_what_fits_nowhere_has_a_reason_for_each_node(
    cluster: LocalCluster, new_name: NewName
) -> None:
    words = ["-I", "hail", "--ignore-ipolicy", "-B", "memory=900g", new_name()]
    said = cluster.fails(*diskless(*words))
    assert "Can't compute nodes using iallocator 'hail'" in said
    for number in (1, 2, 3):
        assert said.count(f"node{number}.vcluster.test") == 1


@pytest.mark.requirement("S187")
def test_capacity_is_counted(cluster: LocalCluster) -> None:
    words = ["-I", "hail", "-t", "diskless", "--memory=16m", "--max-instances=4"]
    said = cluster.ok("gnt-cluster", "capacity", *words).out
    assert said.count("Room for 4 instances") == 1


@pytest.mark.requirement("S186")
def test_a_cluster_is_balanced_by_jobs(cluster: LocalCluster, new_name: NewName) -> None:
    names = [new_name() for _ in range(3)]
    for name in names:
        options = cluster.noop_options()
        cluster.ok("gnt-instance", "add", "-n", "node1", *options, name)
    said = cluster.ok("gnt-cluster", "balance", "-I", "hail", "--dry-run", timeout_s=120).out
    done = cluster.ok("gnt-cluster", "balance", "-I", "hail", "-f", timeout_s=120).out
    if "no move would improve it" not in said:
        assert "success" in done
    assert {cluster.value("instance", name, "status") for name in names} == {"running"}


@pytest.mark.requirement("S188")
def test_every_kind_of_request_can_be_tried(cluster: LocalCluster) -> None:
    for mode in ("allocate", "multi-allocate"):
        words = ["-I", "hail", "-m", mode, "--dir=out", "x.example.com"]
        assert '"success":true' in cluster.ok("gnt-debug", "iallocator", *words).out
    for mode in ("balance", "capacity"):
        words = ["-I", "hail", "-m", mode, "--dir=out"]
        assert '"success":true' in cluster.ok("gnt-debug", "iallocator", *words).out


@pytest.mark.requirement("S183", "S187")
def test_the_placement_commands_ask_the_master(cluster: LocalCluster, new_name: NewName) -> None:
    cluster.ok(*diskless("-n", "node1", "-B", "memory=64", new_name()))
    assert "Loaded 3 nodes, " in cluster.ok("hinfo", "-L").out
    assert "Selected node group: default" in cluster.ok("hbal", "-L", "-C", "-p").out
    said = cluster.ok("hspace", "-L", "--disk-template=diskless", "--max-length=2").out
    assert "  -   2 instances allocated" in said
    assert "node1.vcluster.test" in cluster.ok("hroller", "-L", "--print-moves").out
    assert "Statistics for group default" in cluster.ok("hcheck", "-L", "--no-simulation").out


@pytest.mark.requirement("S235")
def test_the_command_that_sets_the_policy_again_is_shown(cluster: LocalCluster) -> None:
    said = cluster.ok("gnt-cluster", "show-ispecs-cmd").out
    assert said.startswith("gnt-cluster init --ipolicy-std-specs cpu-count=")
    assert cluster.ok("gnt-group", "show-ispecs-cmd").out == "gnt-group add default\n"
