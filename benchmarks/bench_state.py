"""What the state costs with three members, embedded and in etcd: commits, jobs, and what a fault costs.

A follower that stands still makes the embedded master grow. The master dies, its daemon alone or all daemons of its
node: with etcd the next one is elected, with the embedded back end a command starts the election.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_jobs import DELAY, latencies, throughput, wait
from bench_replication import whole_set
from local_cluster import connected, local_cluster
from machine import spin_ms, sync_ms

from ganeti.base.errors import GanetiError
from ganeti.bootstrap.daemons import MASTERD, NODED, STATE_DAEMONS, Daemons
from ganeti.clients.luxi import LuxiClient
from ganeti.vcluster.layout import VirtualCluster, VirtualNode

WRITERS = 8
TAGS, TAG_CHARS = 2_000, 100
"""Of the cluster: each change of them is a transaction of some 200 KB."""
TAGS_A_JOB = 500
ARCHIVED_EVERY = 20
"""Jobs: what a master keeps of live ones is not what is measured."""
LOOK_S = 0.2
SETTLED_S = 8.0
"""A new cluster of etcd moves its own leader about, and members have come one after the other."""
RENEWAL_S = 2.0
OTHER_DAEMONS = (NODED, *STATE_DAEMONS)
ASK_AGAIN_S = 0.02
ACKNOWLEDGED_S = 120.0


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    jobs: int
    commits: int
    singles: int
    failovers: int
    warm_up_s: float
    still_s: float
    settled_s: float = SETTLED_S


FULL = Scale(jobs=5_000, commits=400, singles=200, failovers=20, warm_up_s=10, still_s=60)
QUICK = Scale(jobs=400, commits=80, singles=40, failovers=1, warm_up_s=1, still_s=5)
SMOKE = Scale(jobs=40, commits=8, singles=4, failovers=1, warm_up_s=0.2, still_s=1, settled_s=3)


async def commits(socket: Path, count: int) -> list[float]:
    """Milliseconds from SubmitJob to its acknowledgement, one after the other."""
    taken: list[float] = []
    async with connected(socket) as client:
        for _ in range(count):
            begun = time.perf_counter()
            await client.call("SubmitJob", [DELAY])
            taken.append((time.perf_counter() - begun) * 1000)
    return taken


def _tagging(kind: str, tags: list[str]) -> dict[str, object]:
    return {"OP_ID": kind, "kind": "cluster", "name": None, "tags": tags}


async def fill(socket: Path) -> None:
    """Make the cluster's object large."""
    async with connected(socket) as client:
        for first in range(0, TAGS, TAGS_A_JOB):
            tags = [f"{number:0{TAG_CHARS}}" for number in range(first, first + TAGS_A_JOB)]
            await wait(client, await client.call("SubmitJob", [_tagging("OP_TAGS_SET", tags)]))


async def write_all_the_time(socket: Path, seconds: float) -> int:
    """Change the cluster's object as fast as it goes; how often."""
    end = time.monotonic() + seconds
    done = 0

    async def write(writer: int) -> None:
        nonlocal done
        tag = [f"writer{writer}"]
        async with connected(socket) as client:
            while time.monotonic() < end:
                for kind in ("OP_TAGS_SET", "OP_TAGS_DEL"):
                    await wait(client, await client.call("SubmitJob", [_tagging(kind, tag)]))
                    done += 1
                    if done % ARCHIVED_EVERY == 0:
                        await client.call("AutoArchiveJobs", -1, 1)

    await asyncio.gather(*(write(writer) for writer in range(WRITERS)))
    return done


def resident_mib(pid: int) -> float:
    """Memory of a process that is not swapped out."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


async def most_while_written(socket: Path, pid: int, seconds: float) -> tuple[float, int]:
    """The most memory of the master while it is written to, and how many changes that were."""
    writing = asyncio.create_task(write_all_the_time(socket, seconds))
    most = resident_mib(pid)
    while not writing.done():
        await asyncio.sleep(LOOK_S)
        most = max(most, resident_mib(pid))
    return most, await writing


@contextlib.contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """The process does nothing for as long as the block runs."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def master_daemons(node: VirtualNode) -> tuple[Daemons, int]:
    """Return what starts a node's daemons, and the process of its master daemon."""
    daemons = Daemons(node.paths, environment=node.environment())
    process = daemons.status(MASTERD).process
    assert process is not None
    return daemons, process.pid


def slow_follower(cluster: VirtualCluster, scale: Scale) -> dict[str, float]:
    """Return how much the master grows beside one follower that stands still."""
    socket, (_, pid) = cluster.master.paths.luxi_socket, master_daemons(cluster.master)
    asyncio.run(fill(socket))
    before, _ = asyncio.run(most_while_written(socket, pid, scale.warm_up_s))
    _, follower = master_daemons(cluster.nodes[2])
    with standing_still(follower):
        most, changes = asyncio.run(most_while_written(socket, pid, scale.still_s))
    return {
        "slow_follower_mib": round(max(most - before, 0.0), 1),
        "slow_follower_changes": changes,
    }


def acknowledging(nodes: Sequence[VirtualNode]) -> VirtualNode:
    """Return the first of these nodes that acknowledges a job, once one does; RuntimeError after two minutes."""
    end = time.monotonic() + ACKNOWLEDGED_S
    while time.monotonic() < end:
        for node in nodes:
            try:
                with LuxiClient(node.paths, timeout_s=5) as client:
                    client.call("SubmitJob", [DELAY])
                    return node
            except (GanetiError, OSError):
                continue
        time.sleep(ASK_AGAIN_S)
    raise RuntimeError(f"no node acknowledged a job within {ACKNOWLEDGED_S:g} s")


def failover_s(cluster: VirtualCluster, killed: Sequence[str]) -> float:
    """From kill -9 of daemons of the master's node to the first job that the next master has acknowledged."""
    master = acknowledging(cluster.nodes)
    daemons = Daemons(master.paths, environment=master.environment())
    others = [node for node in cluster.nodes if node != master]
    processes = {name: found for name in killed if (found := daemons.status(name).process)}
    time.sleep(random.uniform(0.0, RENEWAL_S))  # noqa: S311 - a death comes at any moment
    for process in processes.values():
        os.kill(process.pid, signal.SIGKILL)
    died = time.perf_counter()
    if cluster.state == "embedded":
        command = Path(sys.executable).with_name("gnt-cluster")
        words = others[0].words([str(command), "master-failover"])
        subprocess.run(words, env=others[0].environment(), check=True, stdout=subprocess.DEVNULL)
    acknowledging(others)
    took = time.perf_counter() - died
    for name in reversed(processes):
        asyncio.run(daemons.start(name))
    return took


def deaths_of_masters(cluster: VirtualCluster, scale: Scale) -> dict[str, float]:
    """Return how long nothing is acknowledged; the keys begin with the back end's name."""
    figures: dict[str, float] = {}
    for what, killed in (("failover", [MASTERD]), ("node_failover", [MASTERD, *OTHER_DAEMONS])):
        took = []
        for _ in range(scale.failovers):
            time.sleep(scale.settled_s)
            took.append(failover_s(cluster, killed))
        figures[f"{cluster.state}_{what}_p50_s"] = round(statistics.median(took), 2)
        # Of few measurements the last hundredth is the greatest.
        figures[f"{cluster.state}_{what}_p99_s"] = round(max(took), 2)
    return figures


def ordinary(cluster: VirtualCluster, scale: Scale) -> dict[str, float]:
    """Commits and jobs where nothing fails; the keys begin with the back end's name."""
    socket = cluster.master.paths.luxi_socket
    taken = asyncio.run(commits(socket, scale.commits))
    per_second = asyncio.run(throughput(socket, scale.jobs))
    latency = asyncio.run(latencies(socket, scale.singles))
    figures = {
        "commit_p50_ms": round(statistics.median(taken), 2),
        "jobs_per_second": round(per_second, 1),
        "job_latency_p50_ms": round(statistics.median(latency), 2),
    }
    return {f"{cluster.state}_{name}": figure for name, figure in figures.items()}


def embedded(scale: Scale) -> dict[str, float]:
    """The embedded back end."""
    with local_cluster() as cluster:
        whole_set(cluster)
        return {
            **ordinary(cluster, scale),
            **slow_follower(cluster, scale),
            **deaths_of_masters(cluster, scale),
            "sync_ms": sync_ms(Path(cluster.directory)),
        }


def etcd(scale: Scale) -> dict[str, float]:
    """Three servers of etcd on the same disk."""
    with local_cluster(state="etcd") as cluster:
        time.sleep(scale.settled_s)
        return {**ordinary(cluster, scale), **deaths_of_masters(cluster, scale)}


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--smoke", action="store_true", help="one of everything, to see that it runs"
    )
    args = parser.parse_args()
    scale = SMOKE if args.smoke else QUICK if args.quick else FULL
    print(json.dumps({**embedded(scale), **etcd(scale), "spin_ms": spin_ms()}))


if __name__ == "__main__":
    main()
