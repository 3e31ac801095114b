"""Automatic recovery: from the loss of a guest or a node until the guests run again.

The cluster has the fake hypervisor, whose guests are files, and nodes on loopback addresses. A guest is killed by
removing its file, a node by SIGKILL for all of its processes. Each 99th percentile of few rounds is their maximum.
Figures that need node machines are texts with the reason.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from bench_instances import create, finish, switch
from local_cluster import connected, local_cluster
from machine import spin_ms, sync_ms

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ganeti.clients.luxi_async import AsyncLuxiClient
from ganeti.model.outofband import OobCommand
from ganeti.recovery.times import BEAT_S
from ganeti.vcluster import power
from ganeti.vcluster.layout import VirtualCluster, VirtualNode
from ganeti.vcluster.lifecycle import POWER_PROGRAM
from tests.unit.recovery.simulation.history import History, Violation
from tests.unit.recovery.simulation.rules import Rules

NODES, MANY = 4, 20
LIMIT_S = 150.0
LOOK_S = 0.02
BEATS_S = 5.0
"""After this time each node has answered heartbeats with the present list of instances."""
NO_MACHINES = "not measured: needs node machines, and this benchmark has loopback nodes"


def p99(seconds: Sequence[float]) -> float:
    """Return the 99th percentile, an observed value."""
    return round(sorted(seconds)[ceil(0.99 * len(seconds)) - 1], 2)


async def until(is_so: Callable[[], bool], what: str) -> float:
    """Return the seconds until it is so."""
    begun = time.monotonic()
    while not is_so():
        if time.monotonic() - begun > LIMIT_S:
            raise TimeoutError(f"not within {LIMIT_S:g} s: {what}")
        await asyncio.sleep(LOOK_S)
    return time.monotonic() - begun


@dataclass
class Bench:
    """A cluster whose last node is lost again and again."""

    cluster: VirtualCluster
    client: AsyncLuxiClient
    double: int = 0
    """How often a guest ran on two nodes that had power."""
    uuids: dict[str, str] = field(default_factory=dict)

    @property
    def victim(self) -> VirtualNode:
        return self.cluster.nodes[-1]

    @property
    def others(self) -> Sequence[VirtualNode]:
        return self.cluster.nodes[:-1]

    def where(self, name: str, nodes: Sequence[VirtualNode]) -> list[VirtualNode]:
        """Return the nodes on which its guest runs."""
        file = f"{self.uuids[name]}.json"
        return [node for node in nodes if (node.paths.fake_hypervisor / file).exists()]

    async def prepare(self, names: Sequence[str]) -> None:
        """Create protected guests on the last node, and start them."""
        protected = {"memory": 4, "recovery": "failover", "recovery_attempts": 1000}
        last = self.victim.name
        await finish(self.client, [{**create(name, last), "beparams": protected} for name in names])
        await finish(self.client, [switch("OP_INSTANCE_STARTUP", name) for name in names])
        rows = await self.client.call("QueryInstances", list(names), ["name", "uuid"], False)
        self.uuids |= dict(rows)
        await asyncio.sleep(BEATS_S)

    async def crash(self, name: str) -> float:
        """Kill a guest; return the seconds until it runs again."""
        (self.victim.paths.fake_hypervisor / f"{self.uuids[name]}.json").unlink()
        return await until(lambda: bool(self.where(name, [self.victim])), f"{name} runs again")

    async def lose_node(self, names: Sequence[str]) -> float:
        """Kill the node of these guests; return the seconds until the last one runs elsewhere."""
        begun = time.monotonic()
        await asyncio.to_thread(power.switch, self.cluster, self.victim, OobCommand.POWER_OFF, say)
        await until(
            lambda: all(self.where(name, self.others) for name in names), "all run elsewhere"
        )
        took = time.monotonic() - begun
        self.double += sum(len(self.where(name, self.others)) > 1 for name in names)
        return took

    async def bring_back(self, names: Sequence[str]) -> None:
        """Switch the node on, wait until it has dropped what moved away, and fail over to it."""
        await asyncio.to_thread(power.switch, self.cluster, self.victim, OobCommand.POWER_ON, say)
        for _ in range(round(LIMIT_S)):
            [[is_offline]] = await self.client.call(
                "QueryNodes", [self.victim.name], ["offline"], False
            )
            if not is_offline:
                break
            await asyncio.sleep(1)
        await asyncio.sleep(BEATS_S)
        self.double += sum(len(self.where(name, self.cluster.nodes)) > 1 for name in names)
        moves = [
            {**switch("OP_INSTANCE_FAILOVER", name), "target_node": self.victim.name}
            for name in names
        ]
        await finish(self.client, moves)
        await asyncio.sleep(BEATS_S)


async def rounds(count: int, one: Callable[[], Awaitable[float]]) -> float:
    """Return the 99th percentile of some rounds."""
    return p99([await one() for _ in range(count)])


async def measure(cluster: VirtualCluster, *, quick: bool) -> dict[str, Any]:
    """Measure guests first, then the node with one of them, then with many."""
    count = 1 if quick else 10
    async with connected(cluster.master.paths.luxi_socket) as client:
        bench = Bench(cluster, client)
        settings = {"OP_ID": "OP_CLUSTER_SET_PARAMS", "ndparams": {"oob_program": POWER_PROGRAM}}
        await finish(client, [settings])
        names = [f"bench{number}.example.com" for number in range(MANY)]

        pauses = (BEATS_S + BEAT_S * number / (3 * count) for number in range(3 * count))

        async def crash() -> float:
            await asyncio.sleep(next(pauses))  # in another moment between two heartbeats each time
            return await bench.crash(names[0])

        async def lose(some: Sequence[str], *, is_last: bool) -> float:
            took = await bench.lose_node(some)
            if not is_last:
                await bench.bring_back(some)
            return took

        await bench.prepare(names[:1])
        found = {"guest_crash_restart_p99_s": await rounds(3 * count, crash)}
        found["recovery_power_p99_s"] = await rounds(count, lambda: lose(names[:1], is_last=False))
        await bench.prepare(names[1:])
        left = iter(range(count))
        found["last_of_20_p99_s"] = await rounds(
            count, lambda: lose(names, is_last=next(left) == count - 1)
        )
        return {**found, "double_writers": bench.double}


def histories(count: int) -> dict[str, int]:
    """Run histories in virtual time; return how many, and how many broke a rule."""
    broken = 0
    for seed in range(count):
        try:
            History(seed, Rules()).run()
        except Violation as violation:
            say(f"seed {seed}: {violation}")
            broken += 1
    return {"histories": count, "histories_broken": broken}


def say(text: str) -> None:
    """Keep standard output for the figures."""
    print(text, file=sys.stderr)


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with local_cluster(NODES) as cluster:
        figures: dict[str, Any] = asyncio.run(measure(cluster, quick=quick))
        figures["sync_ms"] = sync_ms(Path(cluster.directory))
    figures |= histories(50 if quick else 2000)
    figures["recovery_watchdog_p99_s"] = NO_MACHINES
    figures["recovery_master_node_etcd_p99_s"] = NO_MACHINES
    figures["spin_ms"] = spin_ms()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
