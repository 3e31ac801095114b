"""How long the master needs to serve again with a full queue and archive, and what it takes in memory."""

import asyncio
import json
import time
from pathlib import Path

from bench_jobs import wait
from bench_memory import resident_mib
from local_cluster import connected, local_cluster, loop_block_ms
from machine import spin_ms, sync_ms
from sizes import chosen_size

from ganeti.base.errors import GanetiError
from ganeti.bootstrap.daemons import MASTERD, Daemons
from ganeti.vcluster.layout import VirtualNode


async def fill(socket: Path, queued: int, archived: int) -> None:
    """Jobs that have ended and were archived, and jobs that wait for one that goes on."""
    async with connected(socket) as client:
        done = {"OP_ID": "OP_TEST_DELAY", "duration": 0}
        for start in range(0, archived, 5000):
            count = min(5000, archived - start)
            ids = [one[1] for one in await client.call("SubmitManyJobs", [[done]] * count)]
            await wait(client, ids[-1])
            left = 1
            while left:
                _moved, left = await client.call("AutoArchiveJobs", 0, 30)
        holder = await client.call("SubmitJob", [{**done, "duration": 86_400}])
        waiting = {**done, "depends": [[holder, ["success", "error", "canceled"]]]}
        for start in range(0, queued, 5000):
            await client.call("SubmitManyJobs", [[waiting]] * min(5000, queued - start))


async def serving_s(node: VirtualNode) -> tuple[float, float]:
    """(seconds from exec to the first answer to QueryJobs, peak memory in MiB) of a new master."""
    daemons = Daemons(node.paths, environment=node.environment())
    await daemons.stop(MASTERD)
    begun = time.perf_counter()
    process = await daemons.start(MASTERD)
    while True:
        try:
            async with connected(node.paths.luxi_socket) as client:
                await client.call("QueryJobs", [1], ["status"])
            break
        except (GanetiError, OSError):
            await asyncio.sleep(0.02)
    took = time.perf_counter() - begun
    return took, _peak_mib(process.pid)


def _peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return resident_mib(pid)


def main() -> None:
    """Print the figures as one JSON object."""
    size = chosen_size(__doc__)
    with local_cluster(3, settled_s=size.settled_s) as cluster:
        node = cluster.master
        asyncio.run(
            fill(node.paths.luxi_socket, *((50, 100), (1000, 5000), (10_000, 100_000))[size])
        )
        took, peak = asyncio.run(serving_s(node))
        figures = {
            "serving_s": round(took, 2),
            "peak_mib": round(peak, 1),
            "loop_block_ms": loop_block_ms(cluster),
            "sync_ms": sync_ms(Path(cluster.directory)),
            "spin_ms": spin_ms(),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
