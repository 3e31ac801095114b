"""Many jobs and many clients at once: nobody waits for somebody else's work."""

import asyncio
import contextlib
import itertools
import resource
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest

from ganeti.bootstrap.daemons import MASTERD
from ganeti.clients.luxi_async import AsyncLuxiClient
from ganeti.protocols.luxi import encode_request
from tests.cluster.conversations import (
    Op,
    all_running,
    connected,
    delay,
    ended,
    statuses,
    submit_many,
)
from tests.cluster.processes import threads
from tests.support.local_cluster import NOOP, LocalCluster
from tests.support.patience import patience

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.in_turn,
    pytest.mark.timeout(300),
    pytest.mark.whole_starts("memory is measured"),
]

BUSY_JOBS = 100
SCRIPTS = 15
SCRIPT_S = 4
IDLE = 1_500
WAITING = 200
SLOW = 500
ANSWER_MS = 50.0
"""How soon an idle job is told of (S197); of many answers the middle one counts, others use this machine."""


async def answer_ms(client: AsyncLuxiClient, method: str, *args: Any) -> float:
    """How long one answer takes."""
    begun = time.perf_counter()
    await client.call(method, *args)
    return (time.perf_counter() - begun) * 1000


async def lines_of(client: AsyncLuxiClient, job_id: int) -> list[float]:
    """When a job said each of its lines."""
    [[[log]]] = await client.call("QueryJobs", [job_id], ["oplog"])
    return [entry[1][0] + entry[1][1] / 1e6 for entry in log]


@contextlib.asynccontextmanager
async def talking(client: AsyncLuxiClient, count: int, pause_s: float) -> AsyncIterator[list[int]]:
    """Jobs that run and say a line every `pause_s`; they are cancelled at the end."""
    ids = await submit_many(client, [[delay(pause_s, repeat=10_000, interruptible=True)]] * count)
    try:
        await all_running(client, ids)
        yield ids
    finally:
        for job_id in ids:
            await client.call("CancelJob", job_id)
        for job_id in ids:
            await ended(client, job_id)


@pytest.mark.requirement("S197")
async def test_what_asks_for_an_idle_job_does_not_wait_for_a_hundred_busy_ones(
    cluster: LocalCluster,
) -> None:
    async with connected(cluster) as [client], talking(client, BUSY_JOBS, 0.05) as busy:
        [idle] = await submit_many(client, [[delay(depends=[[busy[0], []]])]])
        said = len(await lines_of(client, busy[-1]))
        taken = []
        for _ in range(100):
            taken.append(await answer_ms(client, "QueryJobs", [idle], ["status", "ops", "oplog"]))
            await asyncio.sleep(0.02)
        assert await statuses(client, [idle]) == ["queued"]
        assert set(await statuses(client, busy)) == {"running"}
        assert len(await lines_of(client, busy[-1])) > said + 10
    assert statistics.median(taken) < ANSWER_MS, sorted(taken)


@pytest.mark.requirement("S198")
async def test_a_hundred_queries_at_once_hinder_neither_each_other_nor_a_job_that_logs(
    cluster: LocalCluster,
) -> None:
    fields = ["id", "status", "oplog"]
    async with (
        connected(cluster) as [client],
        connected(cluster, 100) as readers,
        talking(client, 1, 0.02) as [job_id],
    ):
        begun = time.perf_counter()
        for reader in readers:
            await reader.call("QueryJobs", [job_id], fields)
        one_by_one = time.perf_counter() - begun
        at_once, begins = [], time.time()
        while time.time() < begins + 1.5:
            begun = time.perf_counter()
            await asyncio.gather(
                *(reader.call("QueryJobs", [job_id], fields) for reader in readers)
            )
            at_once.append(time.perf_counter() - begun)
        ends = time.time()
        said = await lines_of(client, job_id)
    lines = [begins, *(when for when in said if begins < when < ends), ends]
    assert len(lines) > 10
    assert statistics.median(at_once) < 3 * one_by_one + 0.5
    assert max(later - earlier for earlier, later in itertools.pairwise(lines)) < 1.0


def creation(cluster: LocalCluster, name: str, node: int) -> Op:
    osparams = {"record": str(cluster.record), "sleep": str(SCRIPT_S)}
    return {
        "OP_ID": "OP_INSTANCE_CREATE", "instance_name": name, "pnode": f"node{node}",
        "disk_template": "file", "disks": [{"size": 1}], "nics": [], "os_type": NOOP,
        "osparams": osparams, "beparams": {"memory": 16}, "start": False,
    }  # fmt: skip


@pytest.mark.requirement("S200")
async def test_the_master_answers_while_fifteen_instances_are_installed(
    cluster: LocalCluster, new_name: Callable[[], str]
) -> None:
    names = [new_name() for _ in range(SCRIPTS)]
    ops = [creation(cluster, name, number % 3 + 1) for number, name in enumerate(names)]
    async with connected(cluster) as [client]:
        ids = await submit_many(client, [[op] for op in ops])
        async with asyncio.timeout(SCRIPT_S * patience()):
            while len(scripts_run(cluster, names)) < SCRIPTS:  # noqa: ASYNC110 - scripts write it
                await asyncio.sleep(0.05)
        queries: list[float] = []
        submits: list[float] = []
        jobs: list[float] = []
        while len(scripts_run(cluster, names)) == SCRIPTS:
            for method, args in (("QueryJobs", (ids, ["status", "oplog"])), ("QueryClusterInfo", ()),
                                 ("QueryInstances", ([], ["name", "pnode"]))):  # fmt: skip
                queries.append(await answer_ms(client, method, *args))
            begun = time.perf_counter()
            job_id = await client.call("SubmitJob", [delay()])
            submits.append((time.perf_counter() - begun) * 1000)
            assert await ended(client, job_id) == "success"
            jobs.append((time.perf_counter() - begun) * 1000)
            await asyncio.sleep(0.05)
        assert jobs, "the scripts ended too soon"
        assert [await ended(client, job_id) for job_id in ids] == ["success"] * SCRIPTS
        removals = [[{"OP_ID": "OP_INSTANCE_REMOVE", "instance_name": name}] for name in names]
        for job_id in await submit_many(client, removals):
            assert await ended(client, job_id) == "success"
    for taken in (queries, submits, jobs):
        assert statistics.median(taken) < 250, sorted(taken)
        assert max(taken) < SCRIPT_S * 1000 / 2, sorted(taken)


def scripts_run(cluster: LocalCluster, names: Sequence[str]) -> set[str]:
    """The instances whose create script runs at this moment."""
    lines = cluster.record.read_text().splitlines() if cluster.record.exists() else []
    begun = {line.split()[0] for line in lines if line.endswith("begins")}
    over = {line.split()[0] for line in lines if line.endswith("ends")}
    return (begun - over) & set(names)


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process may open as many files as it needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * (IDLE + WAITING + SLOW):
        pytest.skip(f"a process may open {hard} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def dribble(writers: Sequence[asyncio.StreamWriter]) -> None:
    """Send a request that never becomes whole, one byte a second to each."""
    request = encode_request("QueryClusterInfo", [])[:-1]
    for byte in request:
        for number, writer in enumerate(writers):
            writer.write(bytes((byte,)))
            if number % 25 == 24:
                await asyncio.sleep(25 / len(writers))


@pytest.mark.requirement("F17", "G18", "S190", "S192")
@pytest.mark.usefixtures("many_files")
async def test_idle_waiting_and_slow_clients_leave_the_administrator_served(
    cluster: LocalCluster,
) -> None:
    pid = cluster.pid(MASTERD)
    async with connected(cluster) as [admin]:
        [job_id] = await submit_many(admin, [[delay(600, interruptible=True)]])
        await all_running(admin, [job_id])
        before = threads(pid)
        async with (
            connected(cluster, IDLE),
            connected(cluster, WAITING) as waiting,
            connected(cluster, SLOW) as slow,
        ):
            args = [job_id, ["status"], ["running"], 0, 60]
            waits = [
                asyncio.create_task(client.call("WaitForJobChange", *args)) for client in waiting
            ]
            dribbling = asyncio.create_task(dribble([client._writer for client in slow]))
            taken = []
            for _ in range(200):
                taken.append(await answer_ms(admin, "QueryClusterInfo"))
                await asyncio.sleep(0.01)
            assert not any(one.done() for one in (*waits, dribbling))
            assert threads(pid) == before
            dribbling.cancel()
            begun = time.perf_counter()
            assert await admin.call("CancelJob", job_id)
            news = await asyncio.gather(*waits)
            told_s = time.perf_counter() - begun
        assert await ended(admin, job_id) == "canceled"
    assert all(info[0] in ("canceling", "canceled") for info, _log in news)
    assert told_s < 5
    assert statistics.quantiles(taken, n=100)[-1] < 1000, sorted(taken)
    assert statistics.median(taken) < 100, sorted(taken)
