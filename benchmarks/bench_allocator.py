"""Creating instances where the built-in allocator chooses: real daemons, durable, three nodes, no real guests."""

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from bench_instances import Rates, create, finish, switch
from local_cluster import connected, local_cluster, loop_block_ms
from machine import spin_ms, sync_ms

from ganeti.vcluster.layout import VirtualCluster

ROUNDS = 3
ROOM = {
    "OP_ID": "OP_CLUSTER_SET_PARAMS",
    "ipolicy": {"vcpu-ratio": 10_000.0, "spindle-ratio": 10_000.0},
}
"""Nodes of this machine have two processors."""


async def rates(cluster: VirtualCluster, count: int) -> dict[str, float]:
    """Measure some rounds, each with all instances made and removed; and count what each node got."""
    names = [f"bench{number}.example.com" for number in range(count)]
    spread: dict[str, int] = {}
    async with connected(cluster.master.paths.luxi_socket) as client:
        found = Rates(cluster, client)
        await finish(client, [ROOM])
        for _ in range(ROUNDS):
            ops = [{**create(name, ""), "pnode": None, "iallocator": "hail"} for name in names]
            await found.run("create_with_allocator", ops)
            rows = await client.call("QueryNodes", [], ["name", "pinst_cnt"], False)
            spread = dict(rows)
            await finish(client, [switch("OP_INSTANCE_REMOVE", name) for name in names])
    return {
        **found.figures(),
        "most_on_a_node": max(spread.values()),
        "fewest_on_a_node": min(spread.values()),
    }


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with local_cluster() as cluster:
        figures: dict[str, Any] = dict(asyncio.run(rates(cluster, 50 if quick else 200)))
        figures["loop_block_ms"] = loop_block_ms(cluster)
        figures["sync_ms"] = sync_ms(Path(cluster.directory))
        figures["spin_ms"] = spin_ms()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
