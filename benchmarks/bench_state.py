"""What the state costs with three members: commits, jobs, and memory while a follower stands still.

Each back end is one entry of `BACK_ENDS`; its keys begin with its name.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench_jobs import DELAY, throughput, wait
from bench_replication import whole_set
from local_cluster import connected, local_cluster
from machine import spin_ms, sync_ms

from ganeti.bootstrap.daemons import MASTERD, Daemons
from ganeti.vcluster.layout import VirtualCluster

WRITERS = 8
TAGS, TAG_CHARS = 2_000, 100
"""Of the cluster: each change of them is a transaction of some 200 KB."""
TAGS_A_JOB = 500
ARCHIVED_EVERY = 20
"""Jobs: what a master keeps of live ones is not what is measured."""
LOOK_S = 0.2


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    jobs: int
    commits: int
    warm_up_s: float
    still_s: float


FULL = Scale(jobs=5_000, commits=400, warm_up_s=10, still_s=60)
QUICK = Scale(jobs=400, commits=80, warm_up_s=3, still_s=10)


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


def master_pid(cluster: VirtualCluster, number: int) -> int:
    """The master daemon of a node."""
    node = cluster.nodes[number]
    process = Daemons(node.paths, environment=node.environment()).status(MASTERD).process
    assert process is not None
    return process.pid


def slow_follower(cluster: VirtualCluster, scale: Scale) -> dict[str, float]:
    """How much the master grows beside one follower that stands still."""
    socket, pid = cluster.master.paths.luxi_socket, master_pid(cluster, 0)
    asyncio.run(fill(socket))
    before, _ = asyncio.run(most_while_written(socket, pid, scale.warm_up_s))
    with standing_still(master_pid(cluster, 2)):
        most, changes = asyncio.run(most_while_written(socket, pid, scale.still_s))
    return {
        "slow_follower_mib": round(max(most - before, 0.0), 1),
        "slow_follower_changes": changes,
    }


def embedded(scale: Scale) -> dict[str, float]:
    """The embedded back end."""
    with local_cluster() as cluster:
        socket = cluster.master.paths.luxi_socket
        whole_set(cluster)
        taken = asyncio.run(commits(socket, scale.commits))
        per_second = asyncio.run(throughput(socket, scale.jobs))
        return {
            "embedded_commit_p50_ms": round(statistics.median(taken), 2),
            "embedded_jobs_per_second": round(per_second, 1),
            **slow_follower(cluster, scale),
            "sync_ms": sync_ms(Path(cluster.directory)),
        }


BACK_ENDS: dict[str, Callable[[Scale], dict[str, float]]] = {"embedded": embedded}


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    scale = QUICK if parser.parse_args().quick else FULL
    figures: dict[str, float] = {}
    for measure in BACK_ENDS.values():
        figures |= measure(scale)
    print(json.dumps({**figures, "spin_ms": spin_ms()}))


if __name__ == "__main__":
    main()
