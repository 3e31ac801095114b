"""A master whose disk is full: it goes on reading, refuses writes, and recovers by itself."""

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.errors import GanetiError
from ganeti.bootstrap.daemons import MASTERD
from ganeti.clients.luxi import LuxiClient
from tests.support.local_cluster import LocalCluster, wait_until
from tests.support.patience import patience
from tests.support.state_disk import FILLER, cluster_on_tmpfs

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="a small file system can be mounted by root only"),
]

RECOVERY_S = 10.0
DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0}


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """One node whose state lies on a file system of 8 MiB."""
    with cluster_on_tmpfs("size=8m") as made:
        yield made


@contextlib.contextmanager
def kept_full(path: Path) -> Iterator[None]:
    """Another program writes as soon as there is space, for as long as the block runs."""
    is_over = threading.Event()

    def write() -> None:
        while not is_over.wait(0.05):
            fill(path)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield
    finally:
        is_over.set()
        writing.join()


def fill(path: Path) -> None:
    """Take all the space that is left."""
    with path.open("ab", buffering=0) as filler:
        for size in (64 * 1024, 4096, 1):
            try:
                while True:
                    filler.write(bytes(size))
            except OSError:
                continue


@pytest.mark.requirement("G16", "G8")
def test_a_full_disk_stops_writes_only_and_only_while_it_is_full(cluster: LocalCluster) -> None:
    master, filler = cluster.pid(MASTERD), cluster.cluster.master.paths.data / FILLER
    with cluster.luxi() as client:
        before = client.submit_job([DELAY])
        cluster.ok("gnt-job", "wait", str(before))
        fill(filler)
        accepted, refusal = submit_until_refused(client)
        assert re.search(r"full|space", refusal)
        assert cluster.ok("gnt-node", "list").lines
        assert client.query_jobs([before], ["status"]) == [["success"]]

        filler.unlink()
        freed = time.monotonic()
        wait_until(lambda: takes_jobs(cluster), "jobs are taken again", RECOVERY_S)
        assert time.monotonic() - freed <= RECOVERY_S * patience()
        later = client.submit_job([DELAY])
        assert later > max([before, *accepted])
    cluster.ok("gnt-job", "wait", str(later))
    with cluster.luxi() as client:
        rows = client.query_jobs([before, *accepted], ["status"])
    assert rows == [["success"]] * len(rows)
    assert cluster.pid(MASTERD) == master


def submit_until_refused(client: LuxiClient) -> tuple[list[int], str]:
    """The ids of jobs that were still accepted, and what the master then said."""
    accepted: list[int] = []
    for _ in range(5000):  # what the database has in reserve is used up first
        try:
            accepted.append(client.submit_job([DELAY]))
        except GanetiError as err:
            return accepted, str(err)
    raise AssertionError("a full disk refuses nothing")


def takes_jobs(cluster: LocalCluster) -> bool:
    return cluster.run("gnt-debug", "delay", "--submit", "0").status == 0


@pytest.mark.requirement("G16", "G9")
def test_on_a_full_disk_jobs_are_cancelled_and_archived(cluster: LocalCluster) -> None:
    filler = cluster.cluster.master.paths.data / FILLER
    with cluster.luxi() as client:
        ended = client.submit_job([DELAY])
        cluster.ok("gnt-job", "wait", str(ended))
        running = client.submit_job([{**DELAY, "duration": 300, "interruptible": True}, DELAY])
        fill(filler)
        submit_until_refused(client)
        cluster.ok("gnt-job", "cancel", str(running))
        wait_until(
            lambda: client.query_jobs([running], ["status"]) == [["canceled"]],
            "it ends",
            RECOVERY_S,
        )
        cluster.ok("gnt-job", "archive", str(ended))
        listed = cluster.ok("gnt-job", "list", "--no-headers", "-o", "id").out.split()
        assert str(ended) not in listed
        assert str(running) in listed
        with pytest.raises(GanetiError, match="reserved space"):
            client.submit_job([DELAY])
    filler.unlink()
    wait_until(lambda: takes_jobs(cluster), "jobs are taken again", 2 * RECOVERY_S)


@pytest.mark.requirement("G16", "G9")
def test_room_suffices_for_hundreds_of_jobs_although_another_program_takes_what_is_free() -> None:
    with cluster_on_tmpfs("size=10m") as cluster, cluster.luxi() as client:
        ended = [int(row[1]) for row in client.call("SubmitManyJobs", [[DELAY]] * 200)]
        wait_until(
            lambda: client.query_jobs(ended, ["status"]) == [["success"]] * len(ended), "they end"
        )
        interruptible = {**DELAY, "duration": 300, "interruptible": True}
        running = [client.submit_job([interruptible]) for _ in range(20)]
        filler = cluster.cluster.master.paths.data / FILLER
        fill(filler)
        with kept_full(filler):
            submit_until_refused(client)
            for job in running:
                assert client.call("CancelJob", job)[0]
            archived, left = client.call("AutoArchiveJobs", -1, 30)
            assert archived >= len(ended)
            assert left == 0
        filler.unlink()
        wait_until(lambda: takes_jobs(cluster), "jobs are taken again", 2 * RECOVERY_S)
