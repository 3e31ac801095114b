"""Work that must not grow faster than the cluster, counted in lines of Python that run."""

import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import pytest

from ganeti.model.names import JobStatus
from ganeti.model.opcodes.cluster import OpClusterVerify
from ganeti.simulation.cluster import SimulatedCluster
from ganeti.whatif.sources import file_source

FEW, TIMES = 12, 4
"""The nodes of the small cluster, and how many times as large the other one is."""
ON_EACH = 6
SETTLED_S = 60.0
GROWTH = 1.05
"""Sorting may cost a little more than in proportion."""
Work = Callable[[SimulatedCluster], Awaitable[None]]


def cluster_of(nodes: int) -> SimulatedCluster:
    """Return a cluster in which each node has instances with local, mirrored and shared disks."""
    lines = [
        f"node{at}|65536|512|50000|2000000|1900000|64|{'M' if at == 0 else 'N'}|group|1||N|0|1|1"
        for at in range(nodes)
    ]
    instances = []
    for number in range(nodes * ON_EACH):
        at = number % nodes
        template = ("plain", "drbd", "sharedfile")[number // nodes % 3]
        other = f"node{(at + 1) % nodes}" if template == "drbd" else ""
        name = f"web{number}"
        instances.append(f"{name}|512|1024|1|running|Y|node{at}|{other}|{template}||1")
    parts = ("default|group|preferred||", "\n".join(lines), "\n".join(instances), "")
    objects = file_source("\n\n".join(parts).encode()).objects
    return SimulatedCluster(objects, seed=1)


def lines_of(nodes: int, work: Work, after_s: float = SETTLED_S) -> int:
    """Return how many lines run while a cluster of this size does some work."""
    count = 0

    def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    async def counted(cluster: SimulatedCluster) -> None:
        await cluster.run_for(after_s)
        former = sys.gettrace()
        sys.settrace(trace)
        try:
            await work(cluster)
        finally:
            sys.settrace(former)

    cluster_of(nodes).run(counted)
    return count


async def settle(cluster: SimulatedCluster) -> None:
    """Let the master's first minute pass, in which all nodes are armed and all instances protected."""
    await cluster.run_for(SETTLED_S)


async def verify(cluster: SimulatedCluster) -> None:
    job = await cluster.submit(OpClusterVerify())
    await cluster.finished(job)
    await cluster.idle()
    assert {cluster.queue.status(one) for one in cluster.queue.ids()} == {JobStatus.SUCCESS}


@pytest.mark.parametrize(("work", "after_s"), [(settle, 0.0), (verify, SETTLED_S)])
def test_work_about_all_grows_with_the_cluster(work: Work, after_s: float) -> None:
    few, many = (lines_of(nodes, work, after_s) for nodes in (FEW, FEW * TIMES))
    assert many < GROWTH * TIMES * few
