"""How many jobs a second, and how long one takes: real daemons, durable, three nodes."""

import asyncio
import json
import statistics
import time
from pathlib import Path
from typing import Any

from local_cluster import connected, local_cluster, loop_block_ms
from machine import spin_ms, sync_ms
from processor_time import measured
from sizes import chosen_size

from ganeti.clients.luxi_async import AsyncLuxiClient
from ganeti.store.register import RegisterFile

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0, "no_locks": True}
CONNECTIONS = 16
FINAL = ("success", "error", "canceled")


async def throughput(socket: Path, count: int) -> float:
    """Jobs per second, from the first byte of one SubmitManyJobs to the end of the last job."""
    async with connected(socket) as client:
        begun = time.perf_counter()
        answers = await client.call("SubmitManyJobs", [[DELAY]] * count)
        ids = [answer[1] for answer in answers]
        assert all(answer[0] for answer in answers)
        await wait(client, ids[-1])
        rows = await client.call("QueryJobs", ids, ["status"])
        for job_id, (status,) in zip(ids, rows, strict=True):
            if status not in FINAL:  # jobs end almost in their order
                await wait(client, job_id)
        took = time.perf_counter() - begun
        rows = await client.call("QueryJobs", ids, ["status"])
    assert [row[0] for row in rows] == ["success"] * count
    return count / took


async def latencies(socket: Path, count: int) -> list[float]:
    """Milliseconds from SubmitJob to the final status by WaitForJobChange, one job after the other."""
    taken = []
    async with connected(socket) as client:
        for _ in range(count):
            begun = time.perf_counter()
            await wait(client, await client.call("SubmitJob", [DELAY]))
            taken.append((time.perf_counter() - begun) * 1000)
    return taken


async def submissions(socket: Path, count: int) -> list[float]:
    """Milliseconds of each SubmitJob, from many connections at a time; the jobs' ends are awaited."""
    taken: list[float] = []
    last = 0

    async def submit(number: int) -> None:
        nonlocal last
        async with connected(socket) as client:
            for _ in range(number):
                begun = time.perf_counter()
                job_id = await client.call("SubmitJob", [DELAY])
                taken.append((time.perf_counter() - begun) * 1000)
                last = max(last, job_id)

    await asyncio.gather(*(submit(count // CONNECTIONS) for _ in range(CONNECTIONS)))
    async with connected(socket) as client:
        await wait(client, last)
    return taken


async def wait(client: AsyncLuxiClient, job_id: int) -> None:
    """Return when the job has ended."""
    previous: Any = None
    while True:
        news = await client.call("WaitForJobChange", job_id, ["status"], previous, 0, 60)
        if news == "nochange":
            continue
        previous = news[0]
        if previous[0] in FINAL:
            return


def main() -> None:
    """Print the figures as one JSON object."""
    size = chosen_size(__doc__)
    with local_cluster(settled_s=size.settled_s) as cluster:
        socket = cluster.master.paths.luxi_socket
        many, few = ((40, 10), (400, 40), (10_000, 200))[size]
        with measured(cluster) as in_bulk:
            per_second = asyncio.run(throughput(socket, many))
        with measured(cluster) as one_by_one:
            taken = asyncio.run(latencies(socket, few))
        submitted = asyncio.run(submissions(socket, (80, 800, 10_000)[size]))
        register = RegisterFile(cluster.master.paths.register).read()
        assert register is not None
        assert register.accepted is not None
        figures = {
            "sync_set": len(register.accepted.sync_set),
            "jobs_per_second": round(per_second, 1),
            "cpu_us_per_job": in_bulk.us_per(many)["master"],
            "cpu_us_per_job_all_daemons": in_bulk.us_per(many)["all"],
            "cpu_us_per_single_job": one_by_one.us_per(few)["master"],
            "job_latency_p50_ms": round(statistics.median(taken), 2),
            "job_latency_p90_ms": round(statistics.quantiles(taken, n=10)[-1], 2),
            "submit_p99_ms": round(statistics.quantiles(submitted, n=100)[-1], 2),
            "loop_block_ms": loop_block_ms(cluster),
            "sync_ms": sync_ms(Path(cluster.directory)),
            "spin_ms": spin_ms(),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
