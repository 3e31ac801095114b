"""What idle and waiting LUXI clients cost the master, and how fast news reaches them."""

import asyncio
import json
import statistics
import time
from pathlib import Path
from typing import Any

from bench_memory import resident_mib
from local_cluster import connected, local_cluster, loop_block_ms
from machine import spin_ms, sync_ms
from sizes import chosen_size

from ganeti.clients.luxi_async import AsyncLuxiClient
from ganeti.protocols.luxi import encode_request
from ganeti.query.execute import KINDS
from ganeti.vcluster import lifecycle
from ganeti.vcluster.layout import VirtualCluster

LINES = 8
UNREAD, QUESTIONS = 250, 4
"""Clients that do not read their answers, and how often each asks for everything."""
SUBMISSIONS = 200


async def idle_clients(socket: Path, count: int) -> list[AsyncLuxiClient]:
    """Connections that say nothing."""
    gate = asyncio.Semaphore(100)

    async def connect() -> AsyncLuxiClient:
        async with gate:
            return await AsyncLuxiClient.connect(socket)

    return list(await asyncio.gather(*(connect() for _ in range(count))))


async def arrivals(socket: Path, job_id: int, seen: dict[int, list[float]]) -> None:
    """Note, for each line that the job says, how many milliseconds after it was said it arrived."""
    serial, info = 0, None
    async with connected(socket) as client:
        while True:
            news = await client.call("WaitForJobChange", job_id, ["status"], info, serial, 60)
            now = time.time()
            if news == "nochange":
                continue
            info = news[0]
            for line in news[1]:
                serial = line[0]
                said = line[1][0] + line[1][1] / 1e6
                seen.setdefault(serial, []).append((now - said) * 1000)
            if info[0] in ("success", "error"):
                return


async def unread_clients(socket: Path, count: int) -> list[asyncio.StreamWriter]:
    """Clients that ask for everything about all jobs, several times, and do not read the answers."""
    questions = encode_request("QueryJobs", [[], sorted(KINDS["job"].fields)]) * QUESTIONS
    writers = []
    for _ in range(count):
        reader, writer = await asyncio.open_unix_connection(str(socket), limit=1)
        reader._transport.pause_reading()  # type: ignore[attr-defined] # noqa: SLF001 - there is no other way
        writer.write(questions)
        writers.append(writer)
    return writers


async def submissions_beside_unread(socket: Path, jobs: int) -> list[float]:
    """Milliseconds of each SubmitJob while clients ask for all of so many jobs and do not read."""
    delay = {"OP_ID": "OP_TEST_DELAY", "duration": 0}
    taken = []
    async with connected(socket) as client:
        answers = await client.call("SubmitManyJobs", [[delay]] * jobs)
        for _is_taken, job_id in answers:
            while (
                await client.call("WaitForJobChange", job_id, ["status"], ["success"], 0, 60)
                == "nochange"
            ):
                pass
        writers = await unread_clients(socket, UNREAD)
        for _ in range(SUBMISSIONS):
            begun = time.perf_counter()
            await client.call("SubmitJob", [delay])
            taken.append((time.perf_counter() - begun) * 1000)
            await asyncio.sleep(0.02)
        for writer in writers:
            writer.transport.abort()
    return taken


async def measure(
    cluster: VirtualCluster, idle: int, waiters: int, jobs: int, interval_s: float
) -> dict[str, Any]:
    """All figures."""
    socket = cluster.master.paths.luxi_socket
    pid = next(int(p) for _n, daemon, p in lifecycle.status(cluster) if daemon == "ganeti-masterd")
    before = resident_mib(pid)
    clients = await idle_clients(socket, idle)
    after = resident_mib(pid)
    seen: dict[int, list[float]] = {}
    async with connected(socket) as client:
        delay = {"OP_ID": "OP_TEST_DELAY", "duration": interval_s, "repeat": LINES - 1}
        job_id = await client.call("SubmitJob", [delay])
        tasks = [asyncio.create_task(arrivals(socket, job_id, seen)) for _ in range(waiters)]
        taken = []
        for _ in range(300):
            begun = time.perf_counter()
            await client.call("QueryClusterInfo")
            taken.append((time.perf_counter() - begun) * 1000)
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
    for one in clients:
        await one.close()
    submitted = await submissions_beside_unread(socket, jobs)
    # The first lines are said before all waiters have come.
    whole = [max(times) for serial, times in seen.items() if serial > 2 and len(times) == waiters]
    return {
        "admin_query_p50_ms": round(statistics.median(taken), 2),
        "admin_query_p99_ms": round(statistics.quantiles(taken, n=100)[-1], 2),
        "kib_per_idle_client": round((after - before) * 1024 / idle, 1),
        "log_line_to_500_waiters_ms": round(statistics.median(whole), 1),
        "submit_beside_250_unread_p50_ms": round(statistics.median(submitted), 2),
        "submit_beside_250_unread_p99_ms": round(statistics.quantiles(submitted, n=100)[-1], 2),
    }


def main() -> None:
    """Print the figures as one JSON object."""
    size = chosen_size(__doc__)
    with local_cluster(settled_s=size.settled_s) as cluster:
        sizes = ((100, 50, 20), (100, 50, 20), (10_000, 500, 2000))[size]
        interval_s = (0.2, 1.0, 1.0)[size]
        figures = asyncio.run(measure(cluster, *sizes, interval_s))
        figures["loop_block_ms"] = loop_block_ms(cluster)
        figures |= {"sync_ms": sync_ms(Path(cluster.directory)), "spin_ms": spin_ms()}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
