"""Many instances on many nodes at once: real daemons, and guests whose operations take an artificial time.

Each node does its artificial operations one after the other. So the work of the slowest node is a lower bound for the
whole, and the ratio to it is what the master adds: `start_ratio`, `evacuate_ratio` and `verify_ratio`. For the
evacuation the node stands for its link, which carries one guest at a time: `link_share` is the part of the time in which
it is busy.
`idle_while_wanted` counts the samples in which a job waited for a lock that no running job had.
"""

import argparse
import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from bench_instances import create, finish, switch, wait
from local_cluster import connected, local_cluster, loop_block_ms
from machine import spin_ms
from processor_time import Spent, measured

from ganeti.clients.luxi_async import AsyncLuxiClient
from ganeti.vcluster.layout import VirtualCluster

SAMPLED_S = 0.25
DELAYS = {"start": 1.0, "migrate": 2.0, "verify": 5.0}
"""Seconds that operations of the fake hypervisor take."""
VERIFY = {"OP_ID": "OP_CLUSTER_VERIFY"}


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    nodes: int
    instances: int
    evacuated: int
    """Nodes that are evacuated at once."""
    delays: Mapping[str, float]


FULL = Scale(nodes=20, instances=200, evacuated=5, delays=DELAYS)
QUICK = Scale(nodes=8, instances=40, evacuated=5, delays=DELAYS)
SMOKE = Scale(nodes=3, instances=6, evacuated=1, delays=dict.fromkeys(DELAYS, 0.2))


class Locks:
    """Samples of the locks that jobs wait for."""

    def __init__(self) -> None:
        self.samples = self.idle = self.waits = 0

    @asynccontextmanager
    async def watched(self, cluster: VirtualCluster) -> AsyncIterator[None]:
        """Sample for as long as the block runs."""
        async with connected(cluster.master.paths.luxi_socket) as client:
            task = asyncio.create_task(self._sample(client))
            try:
                yield
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _sample(self, client: AsyncLuxiClient) -> None:
        while True:
            rows = (await client.call("Query", "lock", ["name", "owner", "pending"], None))["data"]
            wanted = [
                (owners or [], pending)
                for (_, owners), (_, pending) in (row[1:] for row in rows)
                if pending
            ]
            statuses = await self._statuses(client, {job for owners, _ in wanted for job in owners})
            self.samples += 1
            self.waits += bool(wanted)
            self.idle += sum(
                all(statuses.get(job) == "waiting" for job in owners) for owners, _ in wanted
            )
            await asyncio.sleep(SAMPLED_S)

    @staticmethod
    async def _statuses(client: AsyncLuxiClient, owners: set[str]) -> dict[str, str]:
        ids = {int(owner.rpartition(" ")[2].rpartition("/")[2]): owner for owner in owners}
        rows = await client.call("QueryJobs", list(ids), ["id", "status"]) if ids else []
        return {ids[row[0]]: row[1] for row in rows if row is not None}


def take_time(cluster: VirtualCluster, operation: str, seconds: float) -> None:
    """Let an operation of the fake hypervisor take this long on each node."""
    for node in cluster.nodes:
        directory = node.paths.fake_hypervisor
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / f"delay-{operation}").write_text(str(seconds))


async def evacuate(client: AsyncLuxiClient, nodes: list[str]) -> int:
    """Evacuate nodes at once; return how many instances moved."""
    ops = [{"OP_ID": "OP_NODE_EVACUATE", "node_name": node, "mode": "primary-only",
            "iallocator": "hail"} for node in nodes]  # fmt: skip
    answers = await client.call("SubmitManyJobs", [[op] for op in ops])
    moves: list[int] = []
    for _, job_id in answers:
        await wait(client, job_id)
        [row] = await client.call("QueryJobs", [job_id], ["status", "opresult"])
        assert row[0] == "success", row
        moves += [moved for _, moved in row[1][0]["jobs"]]
    for job_id in moves:
        await wait(client, job_id)
    rows = await client.call("QueryJobs", moves, ["status", "opresult"])
    wrong = [row for row in rows if row[0] != "success"]
    assert not wrong, wrong[0]
    return len(moves)


async def verify(client: AsyncLuxiClient) -> None:
    """Verify the cluster, its groups included."""
    job_id = await client.call("SubmitJob", [VERIFY])
    await wait(client, job_id)
    [row] = await client.call("QueryJobs", [job_id], ["status", "opresult"])
    for _, part in row[1][0]["jobs"]:
        await wait(client, part)


async def measure(cluster: VirtualCluster, scale: Scale) -> dict[str, float]:
    """Measure one round."""
    nodes = [node.name for node in cluster.nodes]
    count = scale.instances
    names = [f"bench{number}.example.com" for number in range(count)]
    on_each = -(-count // len(nodes))
    evacuated = nodes[-scale.evacuated :]
    locks, spent = Locks(), dict[str, Spent]()
    async with connected(cluster.master.paths.luxi_socket) as client:
        room = {"vcpu-ratio": 10_000.0, "spindle-ratio": 10_000.0}
        await finish(client, [{"OP_ID": "OP_CLUSTER_SET_PARAMS", "ipolicy": room}])
        await finish(client, [create(name, nodes[n % len(nodes)]) for n, name in enumerate(names)])
        for operation, seconds in scale.delays.items():
            take_time(cluster, operation, seconds)
        async with locks.watched(cluster):
            with measured(cluster) as spent["start"]:
                await finish(client, [switch("OP_INSTANCE_STARTUP", name) for name in names])
            with measured(cluster) as spent["evacuate"]:
                moved = await evacuate(client, evacuated)
            with measured(cluster) as spent["verify"]:
                await verify(client)
    assert moved == on_each * scale.evacuated
    own = {
        "start": on_each * scale.delays["start"],
        "evacuate": on_each * scale.delays["migrate"],
        "verify": scale.delays["verify"],
    }
    counts = {"start": count, "evacuate": moved, "verify": len(nodes)}
    figures: dict[str, float] = {
        "idle_while_wanted": locks.idle,
        "lock_samples": locks.samples,
        "lock_waits": locks.waits,
    }
    for phase, one in spent.items():
        figures[f"{phase}_ratio"] = round(one.wall / own[phase], 2)
        if phase == "evacuate":
            figures["link_share"] = round(own[phase] / one.wall, 2)
        figures[f"{phase}_cpu_us"] = one.us_per(counts[phase])["all"]
        figures[f"{phase}_master_cpu_us"] = one.us_per(counts[phase])["master"]
    return figures


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--smoke", action="store_true", help="one of everything, to see that it runs"
    )
    args = parser.parse_args()
    scale = SMOKE if args.smoke else QUICK if args.quick else FULL
    with local_cluster(scale.nodes) as cluster:
        figures: dict[str, Any] = dict(asyncio.run(measure(cluster, scale)))
        figures["loop_block_ms"] = loop_block_ms(cluster)
        figures["processors"] = os.cpu_count()
        figures["spin_ms"] = spin_ms()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
