"""A large cluster: what each operation of the master costs in 1,000 nodes with 20,000 instances.

The master is the real one, in virtual time against simulated nodes (`docs/design/simulation.md`). All figures are
processor time of this one process, so they include what the simulated nodes cost and leave out waiting for real
networks and disks; `failover_s` also includes the virtual time until another candidate is elected. `change_ratio` compares a change with that of 10 nodes.
`--sizes` measures several sizes for `scripts/draw_scale.py`.
"""

import argparse
import asyncio
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench_memory import resident_mib
from machine import spin_ms

from ganeti.daemons.garbage import GcPolicy
from ganeti.model.names import JobStatus
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.cluster import OpClusterVerify
from ganeti.model.opcodes.instance import OpInstanceReboot
from ganeti.model.opcodes.moving import OpNodeEvacuate
from ganeti.model.opcodes.tags import OpTagsSet
from ganeti.model.opcodes.test import OpTestAllocator
from ganeti.simulation.cluster import SimulatedCluster
from ganeti.simulation.example import CANDIDATES, configuration, instance_name, node_name
from ganeti.watcher.master import MasterRound, RoundOptions
from ganeti.web.events import EventHub
from ganeti.web.master import MasterConnections
from ganeti.whatif.watching import MasterClient

FIELDS = ["name", "hypervisor", "os", "pnode", "status", "oper_ram"]
"""What `gnt-instance list` shows."""
SMALL = 10
REPEATS = 10
SETTLED_S = 60.0
BEATING_S = 10.0
REST_S = 1.0
"""How long after a change `change_and_rest_ms` ends: recovery has looked at it, and nodes have its ssconf files."""
ON_EACH = 20
SUBSCRIBERS = 200
SIZES = (10, 50, 200, 500, 1000)
EVENTS = 20
Scenario = Callable[[SimulatedCluster, "Figures"], Awaitable[None]]


@dataclass
class Figures:
    """Figures of one cluster by their names."""

    found: dict[str, float] = field(default_factory=dict)

    @asynccontextmanager
    async def seconds(self, name: str) -> AsyncIterator[None]:
        """Measure the processor time of the block: a simulation waits for nothing real."""
        begun = time.process_time()
        yield
        self.found[name] = round(time.process_time() - begun, 3)

    async def median_ms(self, name: str, work: Callable[[int], Awaitable[object]]) -> None:
        """Measure the processor time of some repetitions, after one that is not counted."""
        taken = []
        for number in range(REPEATS + 1):
            begun = time.process_time()
            await work(number)
            taken.append(time.process_time() - begun)
        self.found[name] = round(statistics.median(taken[1:]) * 1000, 2)


async def done(cluster: SimulatedCluster, op: OpCode) -> None:
    """Run a job and the jobs that it submits; all must succeed."""
    before = set(cluster.queue.ids())
    await cluster.finished(await cluster.submit(op))
    new = set(cluster.queue.ids()) - before
    for job_id in new:
        assert (await cluster.finished(job_id)).status is JobStatus.SUCCESS, cluster.job(job_id)


async def in_use(cluster: SimulatedCluster, figures: Figures) -> None:
    """Measure what administrators do."""
    await cluster.run_for(SETTLED_S)
    assert cluster.master is not None
    queries = cluster.master.queries

    async def change(number: int) -> None:
        name = instance_name(number + 1)
        await done(cluster, OpTagsSet(kind="instance", name=name, tags=[f"n{number}"]))

    async def change_and_rest(number: int) -> None:
        await change(REPEATS + 1 + number)
        await cluster.run_for(REST_S)

    async def reboot(number: int) -> None:
        await done(cluster, OpInstanceReboot(instance_name=instance_name(number + 1)))

    async def allocate(_number: int) -> None:
        disk = DiskRequest(size=1024)
        op = OpTestAllocator(
            iallocator="hail", memory=1024, disk_template="sharedfile", disks=[disk], os="tiny"
        )
        await done(cluster, op)

    async with figures.seconds("list_instances_s"):
        json.dumps((await queries.query("instance", FIELDS, None)).to_wire())
    await figures.median_ms("change_ms", change)
    await figures.median_ms("change_and_rest_ms", change_and_rest)
    await figures.median_ms("job_ms", reboot)
    async with figures.seconds("first_allocate_s"):
        await allocate(0)
    await figures.median_ms("allocate_ms", allocate)
    async with figures.seconds("verify_s"):
        await done(cluster, OpClusterVerify())
    async with figures.seconds("watcher_s"):
        options = RoundOptions(verify_disks=False)
        await MasterRound(MasterClient(cluster), print, options, lambda: cluster.now).run()
    last = node_name(len(cluster.nodes))
    async with figures.seconds("evacuate_s"):
        op = OpNodeEvacuate(node_name=last, mode="primary-only", iallocator="hail")
        await done(cluster, op)
    assert not cluster.nodes[last].guests


async def lost_masters(cluster: SimulatedCluster, figures: Figures) -> None:
    """Measure the start of a master, what it keeps in memory, and how long a cluster has none after a loss."""
    await cluster.run_for(SETTLED_S)
    async with figures.seconds("ready_s"):
        await cluster.fail_over_master(node_name(2))
    await cluster.run_for(SETTLED_S)
    begun, virtual = time.process_time(), cluster.now
    cluster.fail_node(node_name(2))
    while cluster.master is None or cluster.master.name == node_name(2):
        await cluster.run_for(0.1)
    taken = time.process_time() - begun + cluster.now - virtual
    figures.found["failover_s"] = round(taken, 2)
    await cluster.run_for(SETTLED_S)
    gc.collect()
    tracemalloc.start()
    await cluster.fail_over_master(node_name(CANDIDATES))
    await cluster.run_for(SETTLED_S)
    gc.collect()
    figures.found["master_heap_mib"] = round(tracemalloc.get_traced_memory()[0] / 2**20, 1)
    tracemalloc.stop()


async def beating(cluster: SimulatedCluster, figures: Figures) -> None:
    """Measure heartbeats and leases of a cluster at rest."""
    await cluster.run_for(SETTLED_S)
    begun = time.process_time()
    await cluster.run_for(BEATING_S)
    used = (time.process_time() - begun) / BEATING_S
    figures.found["heartbeats_cpu_percent"] = round(100 * used, 1)


async def as_a_daemon(cluster: SimulatedCluster, scenario: Scenario, figures: Figures) -> None:
    """Run a scenario with the garbage collector's settings of a master."""
    policy = GcPolicy()
    policy.start()
    try:
        await scenario(cluster, figures)
    finally:
        await policy.stop()


def measure(nodes: int, instances: int) -> dict[str, float]:
    """Return the figures of one size."""
    figures = Figures()
    code_mib = resident_mib(os.getpid())
    for scenario, skips in ((in_use, True), (lost_masters, True), (beating, False)):
        cluster = SimulatedCluster(configuration(nodes, instances), seed=1, skips_heartbeats=skips)
        cluster.run(partial(as_a_daemon, scenario=scenario, figures=figures))
        del cluster
        gc.collect()
    found = figures.found
    found["master_mib"] = round(found.pop("master_heap_mib") + code_mib, 1)
    return {**found, "whole_process_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}


class Events(MasterConnections):
    """The events of a master without a socket."""

    def __init__(self) -> None:
        super().__init__(Path("unused"))
        self.coming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def happen(self, number: int) -> None:
        """Let the master change one object."""
        event = [f"1-{number}-1", "instance", {"name": instance_name(1), "admin_state": "up"}]
        events = [event] if number else []
        answer = {"last": f"1-{number + 1}", "is_lost": not number, "events": events, "passing": 0}
        self.coming.put_nowait(answer)

    async def wait(self, method: str, *args: Any) -> Any:
        """Return the next answer."""
        del method, args
        return await self.coming.get()


async def events_ms() -> float:
    """Return how long an event takes to 200 subscribers of the REST server, without their connections."""
    master = Events()
    hub = EventHub(master)
    following = asyncio.create_task(hub.run())
    arrived: asyncio.Queue[int] = asyncio.Queue()

    async def subscribe() -> None:
        async for found in hub.events(None):
            if found:
                arrived.put_nowait(len(found))

    subscribers = [asyncio.create_task(subscribe()) for _ in range(SUBSCRIBERS)]
    taken = []
    for number in range(EVENTS):
        begun = time.perf_counter()
        master.happen(number)
        if number == 0:
            await asyncio.sleep(0.1)
            continue
        for _ in range(SUBSCRIBERS):
            await arrived.get()
        taken.append(time.perf_counter() - begun)
    for task in (following, *subscribers):
        task.cancel()
    await asyncio.wait((following, *subscribers))
    return round(statistics.median(taken) * 1000, 2)


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="200 nodes instead of 1,000")
    parser.add_argument("--smoke", action="store_true", help="20 nodes, to see that it runs")
    parser.add_argument("--sizes", type=int, nargs="*", help="measure these numbers of nodes")
    args = parser.parse_args()
    if args.sizes is not None:
        for nodes in args.sizes or SIZES:
            if (
                len(args.sizes or SIZES) > 1
            ):  # what an earlier size leaves in the memory would count
                subprocess.run([sys.executable, __file__, "--sizes", str(nodes)], check=True)
                continue
            figures = measure(nodes, nodes * ON_EACH)
            line = {"nodes": nodes, "instances": nodes * ON_EACH, **figures}
            print(json.dumps({**line, "load": os.getloadavg()[0]}), flush=True)
        return
    nodes = 20 if args.smoke else 200 if args.quick else 1000
    small = measure(SMALL, SMALL * ON_EACH)
    figures = {"nodes": nodes, "instances": nodes * ON_EACH, **measure(nodes, nodes * ON_EACH)}
    ratio = figures["change_ms"] / small["change_ms"]
    print(
        json.dumps(
            {
                **figures,
                "change_ratio": round(ratio, 2),
                "events_to_200_ms": asyncio.run(events_ms()),
                "spin_ms": spin_ms(),
            }
        )
    )


if __name__ == "__main__":
    main()
