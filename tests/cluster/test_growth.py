"""What the daemons hold after much work: no more memory, descriptors or threads than before it."""

import asyncio
import os
import time

import pytest

from ganeti.bootstrap.daemons import MASTERD, NODED
from ganeti.clients.luxi_async import AsyncLuxiClient
from tests.cluster.conversations import connected, delay, ended, submit_many
from tests.cluster.processes import descriptors, peak_mib, resident_mib, threads
from tests.support.local_cluster import LocalCluster, local_cluster
from tests.support.patience import patience

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.in_turn,
    pytest.mark.timeout(300),
    pytest.mark.whole_starts("memory is measured"),
]

ARCHIVED = 5_000
QUEUED = 10_000
CALLING = 500
CALLING_AT_ONCE = 10
SOME_FILES = 10
"""What a daemon may happen to have open at one moment and not at another."""
THREADS = 1 + 4 + 1
"""The loop, four beside it (S202), and the one that ends a loop that stands still: no Python runs in it."""


async def run_and_archive(client: AsyncLuxiClient, count: int) -> None:
    ids = await submit_many(client, [[delay(comment="x" * 200)]] * count)
    for job_id in ids[-20:]:
        await ended(client, job_id, 60)
    archived, left = await client.call("AutoArchiveJobs", -1, 60)
    assert (archived >= count - 20, left) == (True, 0)


async def with_archive(cluster: LocalCluster, rounds: int) -> float:
    """Archive so many rounds of jobs; how many MiB the master has gained since the first of them."""
    pid = cluster.pid(MASTERD)
    async with connected(cluster) as [client]:
        await run_and_archive(client, ARCHIVED)
        before = resident_mib(pid)
        for _ in range(rounds - 1):
            await run_and_archive(client, ARCHIVED)
    return resident_mib(pid) - before


@pytest.mark.requirement("F18", "G15")
@pytest.mark.parametrize(
    ("rounds", "most_s", "most_mib"),
    [
        (4, 10, 512),
        pytest.param(20, 30, 1024, marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
async def test_archived_jobs_leave_no_memory_behind_and_a_master_with_them_serves_again_soon(
    rounds: int, most_s: float, most_mib: float
) -> None:
    with local_cluster(nodes=1) as alone:
        assert await with_archive(alone, rounds) < 20  # 15,000 jobs take more than 30 MiB
        async with connected(alone) as [client]:
            [holder] = await submit_many(client, [[delay(86_400)]])
            ids = await submit_many(client, [[delay(depends=[[holder, []]])]] * QUEUED)
        await asyncio.to_thread(alone.kill, MASTERD)
        begun = time.monotonic()
        pid = await asyncio.to_thread(alone.start, MASTERD)
        async with connected(alone) as [client]:
            rows = await client.call("QueryJobs", [ids[0], ids[-1]], ["status"])
            served_s = time.monotonic() - begun
            assert rows == [["queued"], ["queued"]]
        assert served_s < most_s * patience()
        assert peak_mib(pid) < most_mib


async def call_nodes(client: AsyncLuxiClient, count: int) -> None:
    """Jobs that call all nodes, all at once."""
    ops = [delay(on_nodes=["node1", "node2", "node3"], no_locks=True)]
    for job_id in await submit_many(client, [ops] * count):
        assert await ended(client, job_id) == "success"


@pytest.mark.requirement("F19")
async def test_calls_to_nodes_leave_no_descriptors_open(cluster: LocalCluster) -> None:
    nodes = (1, 2, 3)
    master, *noded = cluster.pid(MASTERD), *(cluster.pid(NODED, number) for number in nodes)
    async with connected(cluster) as [client]:
        master_before = descriptors(master)
        noded_before = [descriptors(pid) for pid in noded]
        for _ in range(0, CALLING, CALLING_AT_ONCE):
            await call_nodes(client, CALLING_AT_ONCE)
        master_gained = descriptors(master) - master_before
        noded_gained = [
            descriptors(pid) - before for pid, before in zip(noded, noded_before, strict=True)
        ]
    # Connections are kept for the next calls: at most as many as there were calls at once.
    assert master_gained <= CALLING_AT_ONCE * len(nodes) + SOME_FILES
    assert max(noded_gained) <= CALLING_AT_ONCE + SOME_FILES


@pytest.mark.requirement("S202")
async def test_the_master_has_four_threads_beside_its_loop_after_all_kinds_of_work(
    cluster: LocalCluster,
) -> None:
    allocation = {"OP_ID": "OP_TEST_ALLOCATOR", "iallocator": "hail", "disk_template": "diskless"}
    async with connected(cluster) as [client]:
        await call_nodes(client, 50)
        others = [{"OP_ID": name} for name in ("OP_CLUSTER_VERIFY", "OP_CLUSTER_REDIST_CONF")]
        ops = [allocation, delay(comment="x" * 100_000), *others]
        for job_id in await submit_many(client, [[op] for op in ops]):
            assert await ended(client, job_id) == "success"
        await client.call("QueryNodes", [], ["name", "mfree"])
        await client.call("SetWatcherPause", time.time() + 60)
        await client.call("SetWatcherPause", None)
        await client.call("AutoArchiveJobs", -1, 60)
    pool = min(32, (os.cpu_count() or 1) + 4)
    assert threads(cluster.pid(MASTERD)) <= THREADS
    assert threads(cluster.pid(NODED)) <= 1 + 2 + 1 + pool
