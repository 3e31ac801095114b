"""Resident memory of the daemons of an empty cluster; `locked` of those that stay in memory."""

import argparse
import json
import re
import shutil
from pathlib import Path

from local_cluster import local_cluster
from machine import spin_ms, sync_ms

from ganeti.vcluster import lifecycle
from ganeti.vcluster.layout import VirtualCluster


def status_mib(pid: int, field: str) -> float:
    """A size in the status of a process, as VmRSS."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def resident_mib(pid: int) -> float:
    """VmRSS of a process."""
    return status_mib(pid, "VmRSS")


def pss_mib(pid: int) -> float:
    """Pages of a process, those that it shares divided by the number of processes that share them."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def sizes_of(cluster: VirtualCluster) -> dict[str, float]:
    """Sizes of the daemons of a cluster; of several of one kind the largest."""
    sizes: dict[str, float] = {}

    def note(key: str, size: float) -> None:
        sizes[key] = round(max(sizes.get(key, 0.0), size), 1)

    for node, daemon, process in lifecycle.status(cluster):
        pid, name = int(process), daemon.removeprefix("ganeti-")
        if name == "masterd" and node != cluster.master.name:
            name = "follower"
        note(f"{name}_mib", resident_mib(pid))
        note(f"{name}_pss_mib", pss_mib(pid))
        if status_mib(pid, "VmLck") > 0:
            note(f"{name}_locked_mib", resident_mib(pid))
    return sizes


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="without a cluster whose state is in etcd"
    )
    is_quick = parser.parse_args().quick
    with local_cluster() as cluster:
        figures = sizes_of(cluster) | {"sync_ms": sync_ms(Path(cluster.directory))}
    if not is_quick and shutil.which("etcd"):
        with local_cluster(state="etcd") as cluster:
            figures |= {f"with_etcd_{key}": size for key, size in sizes_of(cluster).items()}
    print(json.dumps(figures | {"spin_ms": spin_ms()}))


if __name__ == "__main__":
    main()
