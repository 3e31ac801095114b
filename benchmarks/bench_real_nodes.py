"""A cluster of many real node daemons on one machine: 60 nodes with 1,000 fake instances.

The counterpart of `bench_scale.py`, whose nodes are simulated. Here each node is a process of its own with TLS, on a
loopback address of this machine, and all share its processors. Times are those that an administrator sees.
`_cpu_percent` are parts of one processor while the cluster rests. Memory is resident, of node daemons and followers the
mean. The names of the figures contain the number of nodes: `real_60_nodes_ready_s`.
"""

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench_instances import create, finish, switch
from bench_many_nodes import evacuate, verify
from bench_memory import pss_mib, resident_mib
from bench_restart import serving_s
from bench_scale import FIELDS
from local_cluster import connected, local_cluster, loop_block_ms
from machine import spin_ms
from processor_time import measured

from ganeti.clients.luxi_async import AsyncLuxiClient
from ganeti.query.live import MAX_AGE_S
from ganeti.vcluster import lifecycle
from ganeti.vcluster.layout import VirtualCluster

REPEATS = 10
SETTLED_S = 15.0
ROOM = {"vcpu-ratio": 10_000.0, "spindle-ratio": 10_000.0}


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    nodes: int
    instances: int
    rest_s: float
    """How long the cluster is watched at rest."""


FULL = Scale(nodes=60, instances=1000, rest_s=30.0)
QUICK = Scale(nodes=20, instances=200, rest_s=10.0)
SMOKE = Scale(nodes=3, instances=6, rest_s=1.0)


@dataclass
class Figures:
    """Figures of one cluster by their names."""

    found: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def seconds(self, name: str) -> Iterator[None]:
        """Measure the time of the block."""
        begun = time.perf_counter()
        yield
        self.found[name] = round(time.perf_counter() - begun, 2)

    async def median_ms(
        self, name: str, work: Callable[[int], Awaitable[object]], *, pause_s: float = 0.0
    ) -> None:
        """Measure some repetitions, after one that is not counted."""
        taken = []
        for number in range(REPEATS + 1):
            await asyncio.sleep(pause_s)
            begun = time.perf_counter()
            await work(number)
            taken.append(time.perf_counter() - begun)
        self.found[name] = round(statistics.median(taken[1:]) * 1000, 1)


async def work(cluster: VirtualCluster, scale: Scale, figures: Figures) -> None:
    """Measure what administrators do."""
    nodes = [node.name for node in cluster.nodes]
    names = [f"web{number}.example.com" for number in range(scale.instances)]
    async with connected(cluster.master.paths.luxi_socket) as client:
        await finish(client, [{"OP_ID": "OP_CLUSTER_SET_PARAMS", "ipolicy": ROOM}])
        with figures.seconds("create_s"):
            made = [create(name, nodes[n % len(nodes)]) for n, name in enumerate(names)]
            await finish(client, made)
        with figures.seconds("start_s"):
            await finish(client, [switch("OP_INSTANCE_STARTUP", name) for name in names])

        async def listing(_number: int) -> None:
            rows = (await client.call("Query", "instance", FIELDS, None))["data"]
            assert sum(row[4][1] == "running" for row in rows) == len(names)

        async def change(number: int) -> None:
            tags = {"OP_ID": "OP_TAGS_SET", "kind": "instance", "tags": [f"n{number}"]}
            await finish(client, [{**tags, "name": names[number % len(names)]}])

        async def reboot(number: int) -> None:
            again = switch("OP_INSTANCE_REBOOT", names[number % len(names)])
            await finish(client, [{**again, "reboot_type": "hard"}])

        async def allocate(_number: int) -> None:
            wanted = {"OP_ID": "OP_TEST_ALLOCATOR", "mode": "allocate", "direction": "out",
                      "name": "new.example.com", "iallocator": "hail", "memory": 4, "vcpus": 1,
                      "disk_template": "diskless", "disks": [], "nics": [], "os": "noop",
                      "hypervisor": "fake"}  # fmt: skip
            await finish(client, [wanted])

        await figures.median_ms("list_ms", listing, pause_s=MAX_AGE_S)
        await figures.median_ms("change_ms", change)
        await figures.median_ms("job_ms", reboot)
        await figures.median_ms("allocate_ms", allocate)
        with figures.seconds("verify_s"):
            await verify(client)
        with figures.seconds("evacuate_s"):
            moved = await evacuate(client, nodes[-1:])
        assert moved == len(range(len(nodes) - 1, len(names), len(nodes)))
        figures.found["evacuated"] = moved


async def at_rest(cluster: VirtualCluster, seconds: float) -> dict[str, float]:
    """Return percent of a processor that the master uses, and that each node daemon uses on average."""
    await asyncio.sleep(min(SETTLED_S, seconds))
    with measured(cluster) as spent:
        await asyncio.sleep(seconds)
    share = {kind: 100 * used / spent.wall for kind, used in spent.by_kind.items()}
    return {
        "master": round(share["master"], 2),
        "node": round(share["nodes"] / len(cluster.nodes), 3),
    }


async def beating(cluster: VirtualCluster, scale: Scale, figures: Figures) -> None:
    """Measure the cluster at rest without protected instances, and with heartbeats and leases of all nodes."""
    before = await at_rest(cluster, scale.rest_s)
    async with connected(cluster.master.paths.luxi_socket) as client:
        # What one busy machine delays must not be fenced.
        await finish(
            client,
            [{"OP_ID": "OP_CLUSTER_SET_PARAMS", "ndparams": {"fence_methods": "none"},
              "beparams": {"recovery": "failover"}}],
        )  # fmt: skip
        await all_beat(client, scale.nodes)
    after = await at_rest(cluster, scale.rest_s)
    for kind, percent in before.items():
        figures.found[f"{kind}_idle_cpu_percent"] = percent
        figures.found[f"{kind}_heartbeats_cpu_percent"] = after[kind]


async def all_beat(client: AsyncLuxiClient, nodes: int) -> None:
    """Return once every node answers heartbeats."""
    while True:
        status = await client.call("QueryHaStatus")
        if sum(one["state"] == "healthy" for one in status["nodes"]) == nodes:
            return
        await asyncio.sleep(0.5)


def memory(cluster: VirtualCluster, figures: Figures) -> None:
    """Measure the memory of all daemons."""
    sizes: dict[str, list[float]] = {}
    shared: dict[str, list[float]] = {}
    for node, daemon, pid in lifecycle.status(cluster):
        kind = daemon.removeprefix("ganeti-")
        if kind == "masterd":
            kind = "master" if node == cluster.master.name else "follower"
        elif kind == "noded":
            kind = "node_daemon"
        sizes.setdefault(kind, []).append(resident_mib(int(pid)))
        shared.setdefault(kind, []).append(pss_mib(int(pid)))
    for kind, own in sizes.items():
        figures.found[f"{kind}_mib"] = round(statistics.mean(own), 1)
    figures.found["node_daemon_pss_mib"] = round(statistics.mean(shared["node_daemon"]), 1)
    figures.found["all_daemons"] = sum(map(len, sizes.values()))
    figures.found["all_daemons_pss_mib"] = round(sum(map(sum, shared.values())))


async def measure(cluster: VirtualCluster, scale: Scale) -> dict[str, float]:
    """Return the figures of a cluster that runs."""
    figures = Figures()
    await work(cluster, scale, figures)
    await beating(cluster, scale, figures)
    memory(cluster, figures)
    ready_s, peak_mib = await serving_s(cluster.master)
    figures.found |= {"ready_s": round(ready_s, 2), "new_master_mib": round(peak_mib, 1)}
    return figures.found


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20 nodes with 200 instances")
    parser.add_argument("--smoke", action="store_true", help="3 nodes, to see that it runs")
    args = parser.parse_args()
    scale = SMOKE if args.smoke else QUICK if args.quick else FULL
    begun = time.perf_counter()
    with local_cluster(scale.nodes) as cluster:
        found: dict[str, Any] = {"up_s": round(time.perf_counter() - begun, 1)}
        found |= asyncio.run(measure(cluster, scale))
        found["loop_block_ms"] = loop_block_ms(cluster)
    prefix = f"real_{scale.nodes}_nodes_"
    figures = {f"{prefix}{name}": value for name, value in found.items()}
    more = {
        "instances": scale.instances,
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "spin_ms": spin_ms(),
    }
    print(json.dumps({**figures, **more}))


if __name__ == "__main__":
    main()
