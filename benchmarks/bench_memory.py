"""Resident memory of the daemons of an empty cluster."""

import argparse
import json
import re
from pathlib import Path

from local_cluster import local_cluster
from machine import spin_ms, sync_ms

from ganeti.vcluster import lifecycle


def resident_mib(pid: int) -> float:
    """VmRSS of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


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
            key = f"{daemon.removeprefix('ganeti-')}_mib"
            sizes[key] = round(max(sizes.get(key, 0.0), resident_mib(int(process))), 1)
        figures = {**sizes, "sync_ms": sync_ms(Path(cluster.directory)), "spin_ms": spin_ms()}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
