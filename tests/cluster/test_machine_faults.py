"""Faults of the machine below the state: no inodes, a file system that turns read-only, clocks that jump."""

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.errors import GanetiError
from ganeti.bootstrap.daemons import MASTERD, NODED, Daemons
from ganeti.clients.luxi import FINAL, LuxiClient
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.masters import DELAY, Load
from tests.support.patience import patience
from tests.support.state_disk import FILLER, cluster_on, cluster_on_tmpfs

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.in_turn,
    pytest.mark.timeout(180),
    pytest.mark.skipif(os.geteuid() != 0, reason="file systems can be mounted by root only"),
]

RECOVERY_S = 10.0
TEN_YEARS_S = 10 * 365 * 86400.0
ID_BLOCKS = 2500
"""Jobs that need more than two blocks of ids, so that the register must be written."""
SHIM = """import os, time
_time, _file = time.time, os.environ["PYTHON_GNT_TEST_CLOCK"]
def _offset():
    try:
        with open(_file) as file:
            return float(file.read() or 0)
    except (OSError, ValueError):
        return 0.0
time.time = lambda: _time() + _offset()
time.time_ns = lambda: int(time.time() * 1e9)
"""


def submit_some(cluster: LocalCluster, count: int, node: int = 1) -> tuple[list[int], set[str]]:
    """The ids of jobs that were accepted, and what was said about the others."""
    accepted: list[int] = []
    refusals: set[str] = set()
    with LuxiClient(cluster.node(node).paths, timeout_s=60) as client:
        for start in range(0, count, 100):
            number = min(100, count - start)
            try:
                for done, what in client.submit_many_jobs([[DELAY]] * number):
                    accepted.append(what) if done else refusals.add(str(what))
            except GanetiError as err:
                refusals.add(str(err))
    return accepted, refusals


def states_of(cluster: LocalCluster, node: int = 1) -> dict[int, str]:
    with LuxiClient(cluster.node(node).paths, timeout_s=60) as client:
        return {int(row[0]): row[1] for row in client.query_jobs([], ["id", "status"]) if row}


def all_succeed(cluster: LocalCluster, promised: list[int], node: int = 1) -> None:
    def have() -> bool:
        states = states_of(cluster, node)
        return all(states.get(job) in FINAL for job in promised)

    wait_until(have, "all jobs end", 60)
    states = states_of(cluster, node)
    assert {states[job] for job in promised} == {"success"}


def takes_jobs(cluster: LocalCluster) -> bool:
    return cluster.run("gnt-debug", "delay", "--submit", "0").status == 0


# --- inodes ---


@pytest.fixture
def few_inodes() -> Iterator[LocalCluster]:
    with cluster_on_tmpfs("size=128m,nr_inodes=400") as made:
        yield made


def take_all_inodes(data: Path) -> None:
    for number in itertools.count():
        try:
            (data / f"{FILLER}{number}").touch()
        except OSError:
            return


def free_inodes(data: Path) -> None:
    for path in data.glob(f"{FILLER}*"):
        path.unlink()


@pytest.mark.requirement("G16", "G8", "F1")
def test_missing_inodes_lose_nothing_acknowledged(
    few_inodes: LocalCluster,
) -> None:
    cluster, data = few_inodes, few_inodes.cluster.master.paths.data
    pids = [cluster.pid(name) for name in (MASTERD, NODED)]
    promised, _ = submit_some(cluster, 5)
    take_all_inodes(data)
    accepted, refusals = submit_some(cluster, ID_BLOCKS)
    assert refusals, "the register was not needed"
    assert all("No space left" in text for text in refusals), refusals
    tags = cluster.run("gnt-cluster", "add-tags", "without-inodes")  # ssconf cannot follow it
    assert tags.status == 0, tags.err
    assert cluster.ok("gnt-node", "list").lines
    free_inodes(data)
    freed = time.monotonic()
    wait_until(lambda: takes_jobs(cluster), "jobs are taken again", RECOVERY_S)
    later, refusals = submit_some(cluster, 10)
    assert not refusals
    assert time.monotonic() - freed <= RECOVERY_S * patience()
    assert min(later) > max([*promised, *accepted])
    all_succeed(cluster, [*promised, *accepted, *later])
    wait_until(lambda: cluster.run("gnt-cluster", "verify").status == 0, "all files follow", 60)
    assert [cluster.pid(name) for name in (MASTERD, NODED)] == pids


@pytest.mark.requirement("G1", "G16")
def test_a_master_that_dies_without_inodes_comes_back_with_all_it_promised(
    few_inodes: LocalCluster,
) -> None:
    cluster, data = few_inodes, few_inodes.cluster.master.paths.data
    promised, refusals = submit_some(cluster, 50)
    assert not refusals
    take_all_inodes(data)
    more, _ = submit_some(cluster, 50)
    cluster.kill(MASTERD)
    with contextlib.suppress(GanetiError):  # it may serve, or say that it cannot
        cluster.start(MASTERD)
    free_inodes(data)
    with contextlib.suppress(AssertionError, ProcessLookupError):
        cluster.kill(MASTERD)
    cluster.start(MASTERD)
    wait_until(lambda: takes_jobs(cluster), "jobs are taken again", 30)
    all_succeed(cluster, [*promised, *more])


# --- read-only ---


@pytest.fixture
def on_a_disk(tmp_path: Path) -> Iterator[tuple[LocalCluster, Path]]:
    """One node whose state lies on an ext4 file system in a file, and that file."""
    image = tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(128 * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    with cluster_on("-o", "loop,errors=remount-ro", str(image)) as made:
        yield made, image


@pytest.mark.requirement("G1", "G16", "F1")
def test_a_disk_that_turns_read_only_ends_the_master_and_costs_no_promised_job(
    on_a_disk: tuple[LocalCluster, Path],
) -> None:
    cluster, image = on_a_disk
    data = cluster.cluster.master.paths.data
    master = cluster.pid(MASTERD)
    with Load(cluster, [1], count=1, pause_s=0) as load:
        time.sleep(1)
        subprocess.run(["mount", "-o", "remount,abort", str(data)], check=True)
        wait_until(lambda: not Path(f"/proc/{master}").exists(), "the master has stepped down", 60)
    promised = load.end()
    assert promised
    assert "state.db" in cluster.master_log()
    refused = cluster.run("gnt-debug", "delay", "0")
    assert refused.status != 0
    assert "Traceback" not in refused.err
    cluster.kill(NODED)
    subprocess.run(["umount", str(data)], check=True)
    # A copy in another mount namespace keeps the disk in use, and read-only.
    wait_until(lambda: not is_attached(image), "nothing uses the disk any more", 120)
    repaired = subprocess.run(["e2fsck", "-p", str(image)], check=False, capture_output=True)
    assert repaired.returncode in (0, 1), repaired.stdout
    subprocess.run(["mount", "-o", "loop", str(image), str(data)], check=True)
    for daemon in (NODED, MASTERD):
        cluster.start(daemon)
    wait_until(lambda: takes_jobs(cluster), "jobs are taken again", 30)
    all_succeed(cluster, promised)


def is_attached(image: Path) -> bool:
    """Whether a loop device still stands for the file."""
    return bool(subprocess.check_output(["losetup", "-j", str(image)]))


# --- clocks ---


class Clocks:
    """The wall clock of each node's daemons, as far as Python asks for it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._shim = cluster.directory / "shim"
        self._shim.mkdir()
        (self._shim / "sitecustomize.py").write_text(SHIM)

    def jump(self, node: int, seconds: float) -> None:
        """The clock of a node says so much more than the real one from now on."""
        new = self._file(node).with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self._file(node))

    def restart(self, node: int) -> None:
        """Start the daemons of a node anew, on this clock."""
        own = self._cluster.node(node)
        environment = {
            **own.environment(),
            "PYTHONPATH": os.pathsep.join([str(self._shim), *sys.path]),
            "PYTHON_GNT_TEST_CLOCK": str(self._file(node)),
        }
        daemons = Daemons(own.paths, environment=environment)
        for name in (MASTERD, NODED):
            self._cluster.kill(name, node)
        for name in (NODED, MASTERD):
            asyncio.run(daemons.start(name))

    def _file(self, node: int) -> Path:
        return self._cluster.directory / f"clock{node}"


@pytest.fixture
def jumping() -> Iterator[tuple[LocalCluster, Clocks]]:
    with local_cluster(nodes=3) as made:
        clocks = Clocks(made)
        for node in (1, 2, 3):
            clocks.jump(node, 0.0)
            clocks.restart(node)
        wait_until(lambda: made.run("gnt-cluster", "master-ping").status == 0, "it serves", 40)
        yield made, clocks


def times_of(cluster: LocalCluster, job: int, node: int) -> list[float]:
    fields = ["received_ts", "start_ts", "end_ts"]
    with LuxiClient(cluster.node(node).paths) as client:
        (row,) = client.query_jobs([job], fields)
    assert row is not None
    return [seconds + micros / 1e6 for seconds, micros in row]


@pytest.mark.requirement("G27", "G1", "G6", "G8", "G19")
def test_clocks_that_jump_by_ten_years_move_no_mastership_and_lose_no_job(
    jumping: tuple[LocalCluster, Clocks],
) -> None:
    cluster, clocks = jumping
    pid = cluster.pid(MASTERD)
    promised: list[int] = []
    slow = {**DELAY, "duration": 4}
    for master, follower in ((TEN_YEARS_S, 0.0), (-TEN_YEARS_S, TEN_YEARS_S), (0.0, -TEN_YEARS_S)):
        with cluster.luxi() as client:
            running = client.submit_job([slow])
        time.sleep(0.5)
        clocks.jump(1, master)
        clocks.jump(2, follower)
        begun = time.monotonic()
        accepted, refusals = submit_some(cluster, 50)
        assert not refusals
        promised += [running, *accepted]
        all_succeed(cluster, promised)
        assert time.monotonic() - begun < 15 * patience(), "a jump delays nobody"
        received, started, ended = times_of(cluster, running, 1)
        assert received <= started <= ended
    time.sleep(11)  # longer than a master without a majority lives, or a voter waits for it
    assert cluster.run("gnt-cluster", "master-ping").status == 0
    assert cluster.pid(MASTERD) == pid
    clocks.jump(2, -TEN_YEARS_S)
    done = cluster.run("gnt-cluster", "master-failover", node=2, timeout_s=95)
    assert done.status == 0, done.err
    assert set(promised) <= set(states_of(cluster, 2))
    (new,), _ = submit_some(cluster, 1, node=2)
    assert new > max(promised)
    all_succeed(cluster, [*promised, new], node=2)
