"""The master daemon dies, or its disk fails, at the 1st, 2nd, 3rd … call of an operation until it completes."""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence

import pytest

from ganeti.base.errors import GanetiError
from ganeti.bootstrap.daemons import MASTERD
from ganeti.clients.luxi import FINAL, LuxiClient
from tests.support.crash_points import FILE_CALLS, HAS_STRACE, NETWORK_CALLS, at_call
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.masters import DELAY

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not HAS_STRACE, reason="strace is not installed"),
]

MOST = 300
NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """One node: every call of the daemon is one of the operation, or of its own housekeeping."""
    with local_cluster(nodes=1) as made:
        made.install_noop()
        yield made


def serving(cluster: LocalCluster, promised: list[int]) -> None:
    """The daemon takes jobs; it is started again if it has died."""
    if cluster.run("gnt-cluster", "master-ping").status != 0:
        with contextlib.suppress(AssertionError, ProcessLookupError):
            cluster.kill(MASTERD)
        cluster.start(MASTERD)
    wait_until(lambda: takes_jobs(cluster, promised), "it takes jobs", 30)


def takes_jobs(cluster: LocalCluster, promised: list[int]) -> bool:
    try:
        submit(cluster, promised, 0)
    except (GanetiError, OSError):
        return False
    return True


def jobs_of(cluster: LocalCluster) -> dict[int, str]:
    with cluster.luxi() as client:
        return {int(row[0]): row[1] for row in client.query_jobs([], ["id", "status"]) if row}


def submit(cluster: LocalCluster, promised: list[int], number: int) -> None:
    with LuxiClient(cluster.cluster.master.paths, timeout_s=10) as client:
        promised.append(client.submit_job([DELAY]))


def modify(cluster: LocalCluster, promised: list[int], number: int) -> None:
    op = {"OP_ID": "OP_TAGS_SET", "kind": "cluster", "name": None, "tags": [f"point{number}"]}
    with LuxiClient(cluster.cluster.master.paths, timeout_s=10) as client:
        job = client.submit_job([op])
        promised.append(job)
        info = None
        for _ in range(20):
            news = client.call("WaitForJobChange", job, ["status"], info, 2**31, 1)
            info = info if news == "nochange" else news[0]
            if info and info[0] in FINAL:
                assert info == ["success"], info
                return


def create(cluster: LocalCluster, promised: list[int], number: int) -> None:
    words = [*cluster.noop_options(), "-n", "node1", "--submit", f"p{number}.example.com"]
    done = cluster.run("gnt-instance", "add", *words, timeout_s=20)
    if done.status:
        raise GanetiError(done.err)
    job = int(done.out.split()[-1])
    promised.append(job)
    with contextlib.suppress(GanetiError):
        wait_until(lambda: has_ended(cluster, job), "the creation ends", 20)


def has_ended(cluster: LocalCluster, job: int) -> bool:
    try:
        return jobs_of(cluster)[job] in FINAL
    except (GanetiError, OSError):
        return True  # the daemon is dead: that is an end, too


OPERATIONS: dict[str, Callable[[LocalCluster, list[int], int], None]] = {
    "submit": submit,
    "cluster modify": modify,
    "instance add": create,
}


def check(cluster: LocalCluster, promised: list[int]) -> None:
    """From outside: jobs, files and the checker of the cluster itself (G1, G2, G8, G11)."""
    assert promised == sorted(set(promised))
    wait_until(lambda: set(jobs_of(cluster).values()) <= FINAL_SET, "all jobs end", 60)
    assert set(promised) <= set(jobs_of(cluster))
    instances = cluster.names("instance")
    assert {disk.parent.name for disk in cluster.disks()} == instances
    found = cluster.run("gnt-cluster", "verify", "--error-codes")
    wrong = [line for line in found.out.splitlines() if "ERROR" in line]
    # An instance whose start was interrupted is down; nothing else is wrong.
    assert not [line for line in wrong if "EINSTANCEDOWN" not in line], json.dumps(wrong)


FINAL_SET = set(FINAL)


def enumerate_points(
    cluster: LocalCluster,
    operation: str,
    step: int,
    *,
    error: str = "",
    calls: Sequence[str] = FILE_CALLS,
) -> int:
    """How many points the operation has; each `step`-th is tried."""
    act = OPERATIONS[operation]
    promised: list[int] = []
    for number in range(1, MOST, step):
        serving(cluster, promised)
        with (
            at_call(cluster.pid(MASTERD), number, calls=calls, error=error) as point,
            contextlib.suppress(GanetiError, OSError, AssertionError),
        ):
            act(cluster, promised, next(NUMBERS))
        serving(cluster, promised)
        check(cluster, promised)
        if not point.was_reached:
            return number
    raise AssertionError(f"{operation} does not complete in {MOST} calls")


@pytest.mark.requirement("G1", "G2", "G8", "F11")
def test_a_daemon_that_dies_at_any_file_call_of_a_submission_keeps_its_promises(
    cluster: LocalCluster,
) -> None:
    assert enumerate_points(cluster, "submit", 3) > 3


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.requirement("G1", "G2", "G7", "G8", "G11", "G16", "F1", "F11", "F24")
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("error", ["", "EIO", "ENOSPC"])
def test_every_point_of_every_operation(cluster: LocalCluster, operation: str, error: str) -> None:
    assert enumerate_points(cluster, operation, 1, error=error) > 3


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.requirement("G1", "G7", "G8", "G11", "F11", "F16", "F24")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_daemon_that_dies_at_any_message_of_an_operation_keeps_its_promises(
    cluster: LocalCluster, operation: str
) -> None:
    """RPC boundaries: before each call to a node, and between that and each answer to a client."""
    assert enumerate_points(cluster, operation, 1, calls=NETWORK_CALLS) > 1
