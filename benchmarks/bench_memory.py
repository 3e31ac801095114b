"""Resident memory of the daemons of an empty cluster; `locked` of those that stay in memory."""

import argparse
import json
import re
from pathlib import Path

from local_cluster import local_cluster
from machine import spin_ms, sync_ms

from ganeti.vcluster import lifecycle


def status_mib(pid: int, field: str) -> float:
    """A size in the status of a process, as VmRSS."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def resident_mib(pid: int) -> float:
    """VmRSS of a process."""
    return status_mib(pid, "VmRSS")


def main() -> None:
    """Print the figures as one JSON object; of the node daemons the largest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="accepted; there is nothing to shorten"
    )
    parser.parse_args()
    with local_cluster() as cluster:
        sizes: dict[str, float] = {}
        for _node, daemon, process in lifecycle.status(cluster):
            pid, name = int(process), daemon.removeprefix("ganeti-")
            keys = [f"{name}_mib"]
            if status_mib(pid, "VmLck") > 0:
                keys.append(f"{name}_locked_mib")
            for key in keys:
                sizes[key] = round(max(sizes.get(key, 0.0), resident_mib(pid)), 1)
        figures = {**sizes, "sync_ms": sync_ms(Path(cluster.directory)), "spin_ms": spin_ms()}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
