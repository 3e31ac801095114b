"""Automatic recovery: from the loss of a guest or a node until the guests run again.

The clusters have the fake hypervisor, whose guests are files, and nodes on loopback addresses. A guest is killed by
removing its file, a node by SIGKILL for all of its processes. A node that only its watchdog fences has a file as its
device: the device of a node that has died does nothing, and the master waits all the same. Each 99th percentile of few
rounds is their maximum. A short run has one round and leaves out the watchdog and the master's node.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from bench_instances import create, finish, switch
from local_cluster import connected, local_cluster
from machine import spin_ms, sync_ms

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ganeti.base.errors import GanetiError
from ganeti.clients.luxi import LuxiClient
from ganeti.clients.luxi_async import AsyncLuxiClient
from ganeti.model.outofband import OobCommand
from ganeti.model.recovery import FenceMethod, NodeState
from ganeti.node.watchdog_device import DEVICE
from ganeti.recovery.instance import InstanceState
from ganeti.recovery.times import BEAT_S
from ganeti.vcluster import power
from ganeti.vcluster.layout import VirtualCluster, VirtualNode
from ganeti.vcluster.lifecycle import POWER_PROGRAM
from tests.unit.recovery.simulation.history import History, Violation
from tests.unit.recovery.simulation.rules import Rules

LIMIT_S = 150.0
LOOK_S = 0.02
ASK_S = 0.5
SEEN_S = 2.5
"""After this time the node has answered a heartbeat that names a guest which was started before it."""


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    nodes: int = 4
    many: int = 20
    rounds: int = 10
    crashes: int = 30
    histories: int = 2000
    etcd_nodes: int = 3


QUICK = Scale(nodes=3, many=3, rounds=1, crashes=1, histories=20)


def p99(seconds: Sequence[float]) -> float:
    """Return the 99th percentile, an observed value."""
    say(" ".join(f"{one:.1f}" for one in seconds))
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
    """A cluster whose nodes are lost again and again."""

    cluster: VirtualCluster
    double: int = 0
    """How often a guest ran on two nodes that had power."""
    uuids: dict[str, str] = field(default_factory=dict)

    def master(self) -> VirtualNode | None:
        """Return the node that serves as the master."""
        for node in self.cluster.nodes:
            try:
                with LuxiClient(node.paths, timeout_s=5) as client:
                    client.config_values("cluster_name")
                    return node
            except (GanetiError, OSError):
                continue
        return None

    async def the_master(self) -> VirtualNode:
        """Return the master, once there is one."""
        begun = time.monotonic()
        while (node := await asyncio.to_thread(self.master)) is None:
            if time.monotonic() - begun > LIMIT_S:
                raise TimeoutError("no node is the master")
            await asyncio.sleep(ASK_S)
        return node

    def where(self, name: str, nodes: Sequence[VirtualNode]) -> list[VirtualNode]:
        """Return the nodes on which its guest runs."""
        file = f"{self.uuids[name]}.json"
        return [node for node in nodes if (node.paths.fake_hypervisor / file).exists()]

    def run_on(self, names: Sequence[str], nodes: Sequence[VirtualNode]) -> bool:
        """Return whether all guests run, and count those that run twice."""
        places = [self.where(name, nodes) for name in names]
        self.double += sum(len(one) > 1 for one in places)
        return all(places)

    async def prepare(self, client: AsyncLuxiClient, names: Sequence[str], node: str) -> None:
        """Create protected guests on a node, and start them."""
        protected = {"memory": 4, "recovery": "failover", "recovery_attempts": 1000}
        await finish(client, [{**create(name, node), "beparams": protected} for name in names])
        await finish(client, [switch("OP_INSTANCE_STARTUP", name) for name in names])
        rows = await client.call("QueryInstances", list(names), ["name", "uuid"], False)
        self.uuids |= dict(rows)

    async def calm(
        self, client: AsyncLuxiClient, node: VirtualNode, *, is_armed: bool = False
    ) -> None:
        """Return once all is well: the node is watched, with an armed watchdog if asked for, and all are protected."""
        begun = time.monotonic()
        while True:
            status = await client.call("QueryHaStatus")
            nodes = {one["name"]: one for one in status["nodes"]}
            if (
                all(one["state"] == NodeState.HEALTHY for one in status["nodes"])
                and all(one["state"] == InstanceState.PROTECTED for one in status["instances"])
                and node.name in nodes
                and nodes[node.name]["watchdog_armed"] >= is_armed
            ):
                return
            if time.monotonic() - begun > LIMIT_S:
                raise TimeoutError(f"not within {LIMIT_S:g} s: all is well, but {status}")
            await asyncio.sleep(ASK_S)

    async def crash(self, name: str, node: VirtualNode, pause_s: float) -> float:
        """Kill a guest after a pause; return the seconds until it runs again."""
        await asyncio.sleep(pause_s)
        (node.paths.fake_hypervisor / f"{self.uuids[name]}.json").unlink()
        return await until(lambda: bool(self.where(name, [node])), f"{name} runs again")

    async def lose(self, lost: VirtualNode, names: Sequence[str]) -> tuple[float, float]:
        """Kill the node of these guests; return the seconds until the first and the last one run elsewhere."""
        others = [node for node in self.cluster.nodes if node != lost]
        begun = time.monotonic()
        await asyncio.to_thread(power.switch, self.cluster, lost, OobCommand.POWER_OFF, say)
        await until(lambda: any(self.where(name, others) for name in names), "one runs elsewhere")
        first = time.monotonic() - begun
        await until(lambda: self.run_on(names, others), "all run elsewhere")
        return first, time.monotonic() - begun

    async def bring_back(
        self, client: AsyncLuxiClient, lost: VirtualNode, names: Sequence[str], target: VirtualNode
    ) -> None:
        """Switch a node on, wait until it has dropped what moved away, and move all guests to a node."""
        await asyncio.to_thread(power.switch, self.cluster, lost, OobCommand.POWER_ON, say)
        await self.calm(client, lost)
        self.run_on(names, self.cluster.nodes)
        moves = [
            {**switch("OP_INSTANCE_FAILOVER", name), "target_node": target.name}
            for name in names
            if target not in self.where(name, self.cluster.nodes)
        ]
        await finish(client, moves)
        await self.calm(client, target)
        await asyncio.sleep(SEEN_S)


async def nodes_lost(cluster: VirtualCluster, scale: Scale) -> dict[str, Any]:
    """Measure crashes of a guest, then losses of its node: with one guest, with many, without power control."""
    bench, victim = Bench(cluster), cluster.nodes[-1]
    names = [f"bench{number}.example.com" for number in range(scale.many)]
    is_quick = scale.rounds == 1
    async with connected(cluster.master.paths.luxi_socket) as client:
        await finish(
            client,
            [{"OP_ID": "OP_CLUSTER_SET_PARAMS", "ndparams": {"oob_program": POWER_PROGRAM}}],
        )
        await bench.prepare(client, names if is_quick else names[:1], victim.name)
        await bench.calm(client, victim)
        # In another moment between two heartbeats each time.
        pauses = [SEEN_S + BEAT_S * number / scale.crashes for number in range(scale.crashes)]
        crashes = [await bench.crash(names[0], victim, pause) for pause in pauses]
        figures: dict[str, Any] = {"guest_crash_restart_p99_s": p99(crashes)}
        if is_quick:
            first, last = await bench.lose(victim, names)
            figures |= {"recovery_power_p99_s": p99([first]), "last_of_20_p99_s": p99([last])}
            return {**figures, "double_writers": bench.double}

        async def rounds(some: Sequence[str], *, is_armed: bool = False) -> list[float]:
            took = []
            for _ in range(scale.rounds):
                await bench.calm(client, victim, is_armed=is_armed)
                took.append((await bench.lose(victim, some))[1])
                await bench.bring_back(client, victim, some, victim)
            return took

        figures["recovery_power_p99_s"] = p99(await rounds(names[:1]))
        await bench.prepare(client, names[1:], victim.name)
        figures["last_of_20_p99_s"] = p99(await rounds(names))
        device = victim.paths.below(DEVICE)
        device.parent.mkdir(parents=True, exist_ok=True)
        device.touch()
        await finish(
            client,
            [{
                "OP_ID": "OP_NODE_SET_PARAMS", "node_name": victim.name,
                "ndparams": {"fence_methods": FenceMethod.WATCHDOG.value},
            }],
        )  # fmt: skip
        figures["recovery_watchdog_p99_s"] = p99(await rounds(names, is_armed=True))
    return {**figures, "double_writers": bench.double}


async def masters_lost(cluster: VirtualCluster, scale: Scale) -> dict[str, Any]:
    """Measure losses of the master's own node, where the state is in etcd and the master is elected."""
    bench, took = Bench(cluster), []
    names = [f"bench{number}.example.com" for number in range(3)]
    master = await bench.the_master()
    async with connected(master.paths.luxi_socket) as client:
        await finish(
            client,
            [{"OP_ID": "OP_CLUSTER_SET_PARAMS", "ndparams": {"oob_program": POWER_PROGRAM}}],
        )
        await bench.prepare(client, names, master.name)
        await bench.calm(client, master)
    for _ in range(scale.rounds):
        took.append((await bench.lose(master, names))[1])
        lost, master = master, await bench.the_master()
        async with connected(master.paths.luxi_socket) as client:
            await bench.bring_back(client, lost, names, master)
    return {"recovery_master_node_etcd_p99_s": p99(took), "double_writers": bench.double}


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
    scale = QUICK if parser.parse_args().quick else Scale()
    with local_cluster(scale.nodes) as cluster:
        figures: dict[str, Any] = asyncio.run(nodes_lost(cluster, scale))
        figures["sync_ms"] = sync_ms(Path(cluster.directory))
    if scale is not QUICK:
        with local_cluster(scale.etcd_nodes, "etcd") as cluster:
            found = asyncio.run(masters_lost(cluster, scale))
        found["double_writers"] += figures["double_writers"]
        figures |= found
    figures |= histories(scale.histories)
    figures["spin_ms"] = spin_ms()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
