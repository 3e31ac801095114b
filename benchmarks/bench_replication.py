"""What one slow follower costs: submissions with one that answers after 5 s, over those with healthy ones."""

import asyncio
import contextlib
import json
import os
import signal
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from local_cluster import connected, local_cluster, loop_block_ms
from machine import spin_ms, sync_ms
from sizes import chosen_size

from ganeti.bootstrap.daemons import MASTERD, Daemons
from ganeti.store.register import RegisterFile
from ganeti.vcluster.layout import VirtualCluster

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0, "no_locks": True}
ANSWERS_AFTER_S, AWAKE_S = 5.0, 0.05
CONNECTIONS = 4
SETTLED_S = 3.0
"""After this long the set has changed (R5), and what comes is not the change any more."""


async def submissions(socket: Path, count: int) -> list[float]:
    """Milliseconds from each SubmitJob to its acknowledgement."""
    taken: list[float] = []

    async def submit() -> None:
        async with connected(socket) as client:
            for _ in range(count // CONNECTIONS):
                begun = time.perf_counter()
                await client.call("SubmitJob", [DELAY])
                taken.append((time.perf_counter() - begun) * 1000)

    await asyncio.gather(*(submit() for _ in range(CONNECTIONS)))
    return taken


@contextlib.contextmanager
def slow(pid: int) -> Iterator[None]:
    """The process answers only every 5 s, for as long as the block runs."""
    ends = threading.Event()

    def hold() -> None:
        while not ends.is_set():
            os.kill(pid, signal.SIGSTOP)
            ends.wait(ANSWERS_AFTER_S)
            os.kill(pid, signal.SIGCONT)
            ends.wait(AWAKE_S)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def sync_set(cluster: VirtualCluster) -> int:
    """Return how many members the registered set has."""
    register = RegisterFile(cluster.master.paths.register).read()
    assert register is not None
    assert register.accepted is not None
    return len(register.accepted.sync_set)


def whole_set(cluster: VirtualCluster) -> None:
    """Wait until all three hold what is acknowledged."""
    end = time.monotonic() + 60
    while sync_set(cluster) < len(cluster.nodes):
        assert time.monotonic() < end, "the sync set does not become whole"
        time.sleep(0.2)


def p99(taken: list[float]) -> float:
    """Return what 99 of 100 were below."""
    return statistics.quantiles(taken, n=100)[-1]


def main() -> None:
    """Print the figures as one JSON object."""
    size = chosen_size(__doc__)
    count = (80, 800, 8000)[size]
    with local_cluster(settled_s=size.settled_s) as cluster:
        socket, follower = cluster.master.paths.luxi_socket, cluster.nodes[2]
        whole_set(cluster)
        healthy = asyncio.run(submissions(socket, count))
        process = (
            Daemons(follower.paths, environment=follower.environment()).status(MASTERD).process
        )
        assert process is not None
        with slow(process.pid):
            stalled = asyncio.run(submissions(socket, CONNECTIONS * 2))
            time.sleep(SETTLED_S)
            members = sync_set(cluster)
            taken = asyncio.run(submissions(socket, count))
        figures = {
            "latency_ratio": round(p99(taken) / p99(healthy), 2),
            "healthy_p99_ms": round(p99(healthy), 2),
            "slow_p99_ms": round(p99(taken), 2),
            "stall_ms": round(max(stalled), 1),
            "members_while_slow": members,
            "loop_block_ms": loop_block_ms(cluster),
            "sync_ms": sync_ms(Path(cluster.directory)),
            "spin_ms": spin_ms(),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
