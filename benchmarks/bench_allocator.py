"""Creating instances where the built-in allocator chooses: real daemons, durable, three nodes, no real guests."""

import asyncio
import json
from pathlib import Path
from typing import Any

from bench_instances import Rates, create, finish, switch
from local_cluster import connected, local_cluster, loop_block_ms
from machine import spin_ms, sync_ms
from sizes import chosen_size

from ganeti.vcluster.layout import VirtualCluster

ROUNDS = 3
ROOM = {
    "OP_ID": "OP_CLUSTER_SET_PARAMS",
    "ipolicy": {"vcpu-ratio": 10_000.0, "spindle-ratio": 10_000.0},
}
"""Nodes of this machine have two processors."""


async def rates(cluster: VirtualCluster, count: int, rounds: int) -> dict[str, float]:
    """Measure some rounds, each with all instances made and removed; and count what each node got."""
    names = [f"bench{number}.example.com" for number in range(count)]
    spread: dict[str, int] = {}
    async with connected(cluster.master.paths.luxi_socket) as client:
        found = Rates(cluster, client)
        await finish(client, [ROOM])
        for _ in range(rounds):
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
    size = chosen_size(__doc__)
    with local_cluster(settled_s=size.settled_s) as cluster:
        figures: dict[str, Any] = dict(
            asyncio.run(rates(cluster, *((5, 1), (50, ROUNDS), (200, ROUNDS))[size]))
        )
        figures["loop_block_ms"] = loop_block_ms(cluster)
        figures["sync_ms"] = sync_ms(Path(cluster.directory))
        figures["spin_ms"] = spin_ms()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
