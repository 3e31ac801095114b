"""The simulation: a day of a cluster in virtual time, the loss of a rack, and the same report twice.

`day_of_100_nodes_s` is the time for a day of 100 nodes with 1,000 protected instances, 200 jobs an hour and five
failures of nodes; `mean_spin_ms` is the mean of samples during it, and `day_at_usual_speed_s` the same time at 32.
`rack_loss_report_s` is the time of `gnt-whatif` from the source to the text of the report, for 40
nodes with 400 instances that lose 10 nodes. `deterministic` is 1 if two such reports are the same byte for byte.
"""

import argparse
import json
import logging
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from machine import Speed, spin_ms
from msgspec.structs import replace

from ganeti.base.errors import GanetiError
from ganeti.model.names import JobStatus, RebootType
from ganeti.model.objects import Node
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.instance import (
    OpInstanceCreate,
    OpInstanceMigrate,
    OpInstanceReboot,
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.simulation.cluster import SimulatedCluster
from ganeti.simulation.durations import Durations
from ganeti.simulation.example import CANDIDATES, configuration, instance_name, node_name
from ganeti.whatif.report import report_of, run_of
from ganeti.whatif.scenario import events
from ganeti.whatif.scenario_options import spoken, step_of
from ganeti.whatif.simulate import simulate, sizes_with
from ganeti.whatif.source import NodeSize, Source
from ganeti.whatif.text import text_report

HOUR_S = 3600.0


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    nodes: int = 100
    instances: int = 1000
    hours: float = 24.0
    jobs_per_hour: int = 200
    failures: int = 5
    rack_nodes: int = 40
    rack_instances: int = 400


FULL = Scale()
QUICK = Scale(hours=4.0, failures=1)
SMOKE = Scale(10, 20, hours=0.5, failures=1, rack_nodes=8, rack_instances=16)


def work(scale: Scale, dice: random.Random) -> Iterator[tuple[float, OpCode]]:
    """Yield the jobs of administrators with their times: mostly reboots and restarts, some moves, some new instances.

    A restart is two of the jobs of its hour.
    """
    hour = scale.jobs_per_hour
    numbers = iter(range(int(scale.hours * hour)))
    for number in numbers:
        at = number * HOUR_S / hour
        name = instance_name(dice.randrange(1, scale.instances + 1))
        kind = dice.random()
        if kind < 0.35:
            yield at, OpInstanceReboot(instance_name=name, reboot_type=RebootType.HARD)
        elif kind < 0.65:
            yield at, OpInstanceShutdown(instance_name=name)
            if next(numbers, None) is not None:
                yield at + HOUR_S / hour, OpInstanceStartup(instance_name=name)
        elif kind < 0.9:
            yield at, OpInstanceMigrate(instance_name=name, iallocator="hail")
        elif kind < 0.95:
            yield (
                at,
                OpInstanceCreate(
                    instance_name=f"new{number}.example.com",
                    disk_template="sharedfile",
                    disks=[DiskRequest(size=1024)],
                    os_type="tiny",
                    iallocator="hail",
                    name_check=False,
                    ip_check=False,
                ),
            )
        elif number > hour:
            yield at, OpInstanceRemove(instance_name=f"new{number - hour}.example.com")


def day(scale: Scale) -> dict[str, float]:
    """Let a day pass."""
    dice = random.Random(1)  # noqa: S311 - for chance, not for keys
    cluster = SimulatedCluster(configuration(scale.nodes, scale.instances), seed=1)
    speed = Speed()

    async def pass_by(cluster: SimulatedCluster) -> dict[JobStatus, int]:
        end_s = scale.hours * HOUR_S
        happening: list[tuple[float, str | OpCode]] = list(work(scale, dice))
        for _ in range(scale.failures):
            node = node_name(dice.randrange(CANDIDATES + 1, scale.nodes + 1))
            at = dice.random() * 0.8 * end_s
            happening += [(at, f"fail {node}"), (at + HOUR_S, f"return {node}")]
        for number, (at, what) in enumerate(sorted(happening, key=lambda one: one[0])):
            if number % scale.jobs_per_hour == 0:
                speed.sample()
            await cluster.run_for(max(60 + at - cluster.now, 0))
            if isinstance(what, OpCode):
                try:
                    await cluster.submit(what)
                except GanetiError:
                    continue  # an instance that is not there: its creation found no room
            elif what.startswith("fail"):
                cluster.fail_node(what.partition(" ")[2])
            else:
                cluster.return_node(what.partition(" ")[2])
        await cluster.idle()
        found: dict[JobStatus, int] = {}
        for status in map(cluster.queue.status, cluster.queue.ids()):
            if status is not None:
                found[status] = found.get(status, 0) + 1
        return found

    began, cpu = time.perf_counter(), time.process_time()
    ended = cluster.run(pass_by)
    sampled_s = sum(speed.samples_s)
    day_s = time.perf_counter() - began - sampled_s
    return {
        "day_of_100_nodes_s": round(day_s, 2),
        "day_cpu_s": round(time.process_time() - cpu - sampled_s, 2),
        "day_at_usual_speed_s": speed.at_usual_speed(day_s),
        "mean_spin_ms": speed.mean_spin_ms,
        "day_jobs": sum(ended.values()),
        "day_failed_jobs": ended.get(JobStatus.ERROR, 0),
        "day_events": len(cluster.trace.events),
        "day_outages": len(cluster.trace.downtimes()),
        "day_still_down": sum(one.ended is None for one in cluster.trace.downtimes()),
    }


def rack_loss(scale: Scale) -> str:
    """Return the report about the loss of a rack: a quarter of the nodes."""
    objects = tuple(
        replace(one, tags=(f"rack:r{index % 4}",)) if isinstance(one, Node) else one
        for index, one in enumerate(configuration(scale.rack_nodes, scale.rack_instances))
    )
    size = NodeSize(memory=65_536, disk=2_000_000, cpus=16)
    sizes = {one.uuid: size for one in objects if isinstance(one, Node)}
    source = Source("backup", "cluster.example.com", objects, sizes)
    steps = [step_of("fail-rack", "rack:r3@1m")]
    happening = events(steps, source, 1)
    history = simulate(source, happening, Durations(), seed=1, watch_s=None)
    runs = [run_of(history, sizes_with(source, happening), 1)]
    said = [spoken(step) for step in steps]
    return text_report(report_of(source, "", said, Durations(), runs))


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--smoke", action="store_true", help="one of everything, to see that it runs"
    )
    args = parser.parse_args()
    scale = SMOKE if args.smoke else QUICK if args.quick else FULL
    logging.getLogger("ganeti").addHandler(logging.NullHandler())
    began, cpu = time.perf_counter(), time.process_time()
    report = rack_loss(scale)
    figures: dict[str, float] = {
        "rack_loss_report_s": round(time.perf_counter() - began, 2),
        "rack_loss_cpu_s": round(time.process_time() - cpu, 2),
        "deterministic": int(rack_loss(scale) == report),
        **day(scale),
        "spin_ms": spin_ms(),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
