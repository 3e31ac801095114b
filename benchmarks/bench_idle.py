"""What the daemons of an idle cluster cost: processor, wakeups, and what they write to disk.

A wakeup is a voluntary context switch of any thread of the process: the kernel runs a thread again that had
waited. Processor time is user and system time of all threads. Written is what the process caused to be sent to
the disk (`write_bytes`). Of several followers or node daemons the mean is printed.
"""

import argparse
import json
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from local_cluster import local_cluster
from machine import spin_ms

from ganeti.vcluster import lifecycle
from ganeti.vcluster.layout import VirtualCluster

SETTLED_S = 15.0
"""What a fresh cluster still does: the first jobs, certificates, garbage that waits for a quiet second."""
MEASURED_S = 60.0
QUICK_S = 1.0
STATES = ("embedded", "etcd")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Spent:
    """What a process has used since it began."""

    seconds: float
    wakeups: int
    written: int

    @classmethod
    def by(cls, pid: int) -> "Spent":
        """Read what all threads of a process have used; the processor time is exact to a nanosecond."""
        nanoseconds = switches = 0
        for thread in Path(f"/proc/{pid}/task").iterdir():
            nanoseconds += int((thread / "schedstat").read_text().split()[0])
            status = (thread / "status").read_text()
            switches += int(status.rpartition("\nvoluntary_ctxt_switches:")[2].split()[0])
        written = Path(f"/proc/{pid}/io").read_text().partition("\nwrite_bytes:")[2].split()[0]
        return cls(nanoseconds / 1e9, switches, int(written))


def part(cluster: VirtualCluster, node: str, daemon: str) -> str:
    """Return the word that the figures of a daemon begin with."""
    if daemon == "ganeti-masterd":
        return "master" if node == cluster.master.name else "follower"
    return daemon.removeprefix("ganeti-")


def idle_figures(state: str, settled_s: float, seconds: float) -> dict[str, float]:
    """Return the figures of one cluster with this back end."""
    with local_cluster(state=state) as cluster:
        time.sleep(settled_s)
        processes = {
            int(pid): part(cluster, node, daemon) for node, daemon, pid in lifecycle.status(cluster)
        }
        begun = time.monotonic()
        before = {pid: Spent.by(pid) for pid in processes}
        time.sleep(seconds)
        after = {pid: Spent.by(pid) for pid in processes}
        taken = time.monotonic() - begun
    found: dict[str, list[float]] = {}
    for pid, name in processes.items():
        spent, had = after[pid], before[pid]
        percent = (spent.seconds - had.seconds) / taken * 100
        found.setdefault(f"{name}_idle_percent", []).append(percent)
        wakeups = (spent.wakeups - had.wakeups) / taken
        found.setdefault(f"{name}_wakeups_per_second", []).append(wakeups)
        kib = (spent.written - had.written) / 1024 / taken * 3600
        found.setdefault(f"{name}_written_kib_per_hour", []).append(kib)
    return {name: round(statistics.fmean(values), 3) for name, values in found.items()}


def main() -> None:
    """Print the figures as one JSON object; those with etcd begin with its name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a second with the first back end")
    parser.add_argument("--state", choices=STATES, help="only this back end of the state")
    args = parser.parse_args()
    figures: dict[str, float] = {}
    states, times = (STATES[:1], (0, QUICK_S)) if args.quick else (STATES, (SETTLED_S, MEASURED_S))
    for state in states if args.state is None else (args.state,):
        prefix = "" if state == "embedded" else f"{state}_"
        found = idle_figures(state, *times)
        figures |= {f"{prefix}{name}": value for name, value in found.items()}
    print(json.dumps({**figures, "spin_ms": spin_ms()}))


if __name__ == "__main__":
    main()
