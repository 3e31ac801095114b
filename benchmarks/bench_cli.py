"""How long commands take from their start to their end, against an empty cluster."""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import placement_clusters
from commands import cost_of
from local_cluster import local_cluster
from machine import spin_ms, sync_ms

COMMANDS = {
    "instance_list_p50": ["gnt-instance", "list"],
    "node_list_p50": ["gnt-node", "list"],
    "job_list_p50": ["gnt-job", "list"],
    "help_p50": ["gnt-instance", "--help"],
}
VERSIONS = ("hail", "hbal", "gnt-instance", "gnt-cluster")
"""Programs that only say their version."""
NODES = 4


def start_figures(runs: int) -> dict[str, float]:
    """Commands that need no cluster: versions, and an allocation on a few nodes."""
    programs = Path(sys.executable).parent
    figures: dict[str, float] = {}
    for name in VERSIONS:
        cost = cost_of([str(programs / name), "--version"], os.environ, runs)
        figures |= cost.figures(f"version_{name.replace('-', '_')}")
    wanted = placement_clusters.allocation()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        cluster = placement_clusters.cluster(NODES)
        file.write(placement_clusters.encoded(placement_clusters.message(cluster, wanted)))
        file.flush()
        cost = cost_of([str(programs / "hail"), file.name], os.environ, runs)
    return figures | cost.figures(f"hail_{NODES}_nodes")


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    runs = 5 if parser.parse_args().quick else 30
    figures = start_figures(runs)
    with local_cluster() as cluster:
        for key, argv in COMMANDS.items():
            figures |= cost_of(argv, cluster.master.environment(), runs).figures(key)
        figures |= {"sync_ms": sync_ms(Path(cluster.directory)), "spin_ms": spin_ms()}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
