"""How long commands take from their start to their end, against an empty cluster."""

import argparse
import json
import statistics
import subprocess
import time
from pathlib import Path

from local_cluster import local_cluster
from machine import spin_ms, sync_ms

from ganeti.vcluster.layout import VirtualNode

COMMANDS = {
    "instance_list_p50_ms": ["gnt-instance", "list"],
    "node_list_p50_ms": ["gnt-node", "list"],
    "job_list_p50_ms": ["gnt-job", "list"],
    "help_p50_ms": ["gnt-instance", "--help"],
}


def wall_ms(node: VirtualNode, argv: list[str]) -> float:
    """Milliseconds that one run of a command takes."""
    begun = time.perf_counter()
    subprocess.run(argv, env=node.environment(), check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - begun) * 1000


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    runs = 5 if parser.parse_args().quick else 30
    with local_cluster() as cluster:
        figures = {
            key: round(statistics.median(wall_ms(cluster.master, argv) for _ in range(runs)), 1)
            for key, argv in COMMANDS.items()
        }
        figures |= {"sync_ms": sync_ms(Path(cluster.directory)), "spin_ms": spin_ms()}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
