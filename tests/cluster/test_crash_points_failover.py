"""A candidate dies, or its disk fails, at the 1st, 2nd, 3rd … call of a master failover until that completes."""

import contextlib
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from ganeti.base.errors import GanetiError
from ganeti.bootstrap.daemons import MASTERD
from ganeti.clients.luxi import LuxiClient
from tests.support.crash_points import FILE_CALLS, HAS_STRACE, NETWORK_CALLS, at_call
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.masters import DELAY, NOT_MASTER, fail_over, job_ids

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.in_turn,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not HAS_STRACE, reason="strace is not installed"),
]

NODES = (1, 2, 3)
MOST = 120


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(nodes=3) as made:
        yield made


def role_of(cluster: LocalCluster, node: int) -> int:
    """0 the master, 11 a follower, anything else: it does not serve."""
    with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
        cluster.pid(MASTERD, node)
        return cluster.run("gnt-cluster", "master-ping", node=node, timeout_s=10).status
    return -1


def all_serve(cluster: LocalCluster) -> None:
    """Every candidate's daemon runs; those that have died are started again."""
    for node in NODES:
        if role_of(cluster, node) in (0, NOT_MASTER):
            continue
        with contextlib.suppress(AssertionError, ProcessLookupError):
            cluster.kill(MASTERD, node)
        cluster.start(MASTERD, node)
        wait_until(lambda one=node: role_of(cluster, one) in (0, NOT_MASTER), "it serves", 30)  # type: ignore[misc] # a default


def masters(cluster: LocalCluster) -> list[int]:
    return [node for node in NODES if role_of(cluster, node) == 0]


def submit(cluster: LocalCluster, node: int, promised: list[int]) -> None:
    with LuxiClient(cluster.node(node).paths, timeout_s=20) as client:
        promised.append(client.submit_job([DELAY]))


def make_master(cluster: LocalCluster, node: int) -> None:
    """Whatever has happened: with all candidates alive the node becomes the master, and is the only one (G19).

    A daemon whose disk was full looks each second whether it still is (G16).
    """

    def has_space() -> bool:
        try:
            fail_over(cluster, node)
        except AssertionError as err:
            if "cannot be written" not in str(err):
                raise
            return False
        return True

    wait_until(has_space, f"the disk of node{node} is no longer full", 10)
    wait_until(lambda: masters(cluster) == [node], f"node{node} is the only master", 40)


def check(cluster: LocalCluster, master: int, promised: list[int]) -> None:
    """Every acknowledged job is there, ids only rise, and the cluster finds nothing wrong with itself."""
    submit(cluster, master, promised)
    assert promised == sorted(set(promised))
    assert set(promised) <= job_ids(cluster.node(master).paths)
    done = cluster.run("gnt-cluster", "verify", "--error-codes", node=master)
    assert done.status == 0, done.out


def enumerate_points(
    cluster: LocalCluster,
    who: str,
    step: int,
    *,
    error: str = "",
    calls: Sequence[str] = FILE_CALLS,
) -> int:
    """How many points a failover has on the old or the new master; each `step`-th is tried."""
    promised: list[int] = []
    all_serve(cluster)
    make_master(cluster, 1)
    old, new = 1, 2
    for number in range(1, MOST, step):
        submit(cluster, old, promised)
        failing = old if who == "old" else new
        with (
            at_call(cluster.pid(MASTERD, failing), number, calls=calls, error=error) as point,
            contextlib.suppress(GanetiError, subprocess.TimeoutExpired),
        ):
            cluster.run("gnt-cluster", "master-failover", node=new, timeout_s=95)
        for node in masters(cluster):  # at most one of them can acknowledge anything
            with contextlib.suppress(GanetiError, OSError):
                submit(cluster, node, promised)
        all_serve(cluster)
        make_master(cluster, new)
        check(cluster, new, promised)
        if not point.was_reached:
            return number
        old, new = new, old
    raise AssertionError(f"a failover does not complete in {MOST} calls")


@pytest.mark.requirement("G1", "G2", "G4", "G8", "G19", "F2", "F6")
def test_a_candidate_that_dies_while_it_becomes_the_master_harms_nothing(
    cluster: LocalCluster,
) -> None:
    assert enumerate_points(cluster, "new", 4) > 4


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.requirement("G1", "G2", "G4", "G8", "G16", "G19", "F1", "F2", "F6")
@pytest.mark.parametrize("who", ["new", "old"])
@pytest.mark.parametrize("error", ["", "EIO", "ENOSPC"])
def test_every_point_of_a_failover(cluster: LocalCluster, who: str, error: str) -> None:
    assert enumerate_points(cluster, who, 1, error=error) > 3


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.requirement("G1", "G2", "G4", "G8", "G19")
@pytest.mark.parametrize("who", ["new", "old"])
def test_every_message_of_a_failover(cluster: LocalCluster, who: str) -> None:
    assert enumerate_points(cluster, who, 4, calls=NETWORK_CALLS) > 1
