"""Processor time that a cluster's daemons use, by kind of daemon."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from ganeti.vcluster import lifecycle
from ganeti.vcluster.layout import VirtualCluster

_OF_WHOLE_PROCESS = 2
"""CPUCLOCK_SCHED of the kernel: nanoseconds of all threads, those that ended included."""


def process_seconds(pid: int) -> float:
    """Return the user and system time of a running process, as `clock_getcpuclockid` finds its clock."""
    return time.clock_gettime((~pid << 3) | _OF_WHOLE_PROCESS)


@dataclass
class Spent:
    """Processor seconds and wall-clock seconds of one measured block."""

    wall: float = 0.0
    by_kind: dict[str, float] = field(default_factory=dict)
    """`master`, `followers` and `nodes` (their node daemons), each the sum of its processes."""

    def us_per(self, count: int) -> dict[str, float]:
        """Return microseconds per operation of each kind, and of all together as `all`."""
        each = {**self.by_kind, "all": sum(self.by_kind.values())}
        return {kind: round(seconds / count * 1e6, 1) for kind, seconds in each.items()}


@contextlib.contextmanager
def measured(cluster: VirtualCluster) -> Iterator[Spent]:
    """Fill the yielded object at the end of the block."""
    kinds = {
        int(pid): _kind(cluster, node, daemon) for node, daemon, pid in lifecycle.status(cluster)
    }
    spent = Spent(by_kind=dict.fromkeys(kinds.values(), 0.0))
    before = {pid: process_seconds(pid) for pid in kinds}
    begun = time.perf_counter()
    yield spent
    spent.wall = time.perf_counter() - begun
    for pid, kind in kinds.items():
        spent.by_kind[kind] += process_seconds(pid) - before[pid]


def _kind(cluster: VirtualCluster, node: str, daemon: str) -> str:
    if daemon == "ganeti-masterd":
        return "master" if node == cluster.master.name else "followers"
    return "nodes" if daemon == "ganeti-noded" else daemon.removeprefix("ganeti-")
