"""The state in etcd: jobs a second, their latency, and how long a master's death lasts.

The same jobs with the embedded store, in the same run.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import time
from pathlib import Path

from bench_jobs import DELAY, latencies, throughput
from local_cluster import local_cluster
from machine import spin_ms, sync_ms

from ganeti.base.errors import GanetiError
from ganeti.bootstrap.daemons import MASTERD, Daemons
from ganeti.clients.luxi import LuxiClient
from ganeti.vcluster.layout import VirtualCluster, VirtualNode

SETTLED_S = 8.0
"""A new cluster of etcd moves its own leader about, and members have come one after the other."""


def figures_of(state: str, count: int, singles: int, failovers: int) -> dict[str, float]:
    """Of one back end, with three members."""
    with local_cluster(state=state) as cluster:
        time.sleep(SETTLED_S)
        socket = cluster.master.paths.luxi_socket
        per_second = asyncio.run(throughput(socket, count))
        taken = asyncio.run(latencies(socket, singles))
        found = {
            f"{state}_jobs_per_second": round(per_second, 1),
            f"{state}_job_latency_p50_ms": round(statistics.median(taken), 2),
        }
        if failovers:
            took = sorted(failover_s(cluster) for _ in range(failovers))
            found[f"{state}_failover_p50_s"] = round(statistics.median(took), 2)
            # Of few measurements the last hundredth is the greatest.
            found[f"{state}_failover_p99_s"] = round(took[-1], 2)
    return found


def failover_s(cluster: VirtualCluster) -> float:
    """From kill -9 of the master's daemon to the first job that the next master has acknowledged."""
    master = acknowledging(cluster.nodes)
    daemons = Daemons(master.paths, environment=master.environment())
    process = daemons.status(MASTERD).process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    died = time.perf_counter()
    acknowledging([node for node in cluster.nodes if node != master])
    took = time.perf_counter() - died
    asyncio.run(daemons.start(MASTERD))
    return took


def acknowledging(nodes: tuple[VirtualNode, ...] | list[VirtualNode]) -> VirtualNode:
    """The first of these nodes that acknowledges a job, once one does."""
    while True:
        for node in nodes:
            try:
                with LuxiClient(node.paths, timeout_s=5) as client:
                    client.call("SubmitJob", [DELAY])
                    return node
            except (GanetiError, OSError):
                continue
        time.sleep(0.02)


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    count, singles = (500, 40) if quick else (5_000, 200)
    figures = {
        **figures_of("embedded", count, singles, failovers=0),
        **figures_of("etcd", count, singles, failovers=2 if quick else 20),
        "sync_ms": sync_ms(Path.cwd()),
        "spin_ms": spin_ms(),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
