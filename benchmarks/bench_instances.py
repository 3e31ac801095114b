"""Creating, starting and stopping many instances at once: real daemons, durable, three nodes, no real guests.

Beside each rate stands the processor time of one operation, of the daemons of all nodes together.
"""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_cluster import connected, local_cluster
from machine import spin_ms, sync_ms
from processor_time import Spent, measured
from sizes import chosen_size

from ganeti.clients.luxi_async import AsyncLuxiClient
from ganeti.store.register import RegisterFile
from ganeti.vcluster.layout import VirtualCluster

ROUNDS = 3


def create(name: str, node: str) -> dict[str, Any]:
    """A diskless instance without an OS, on a named node, that stays down."""
    return {
        "OP_ID": "OP_INSTANCE_CREATE",
        "instance_name": name,
        "disk_template": "diskless",
        "no_install": True,
        "start": False,
        "hypervisor": "fake",
        "pnode": node,
        "beparams": {"memory": 4},
    }


def switch(op_id: str, name: str) -> dict[str, Any]:
    """An opcode that needs only a name."""
    given: dict[str, Any] = {"OP_ID": op_id, "instance_name": name}
    return given


async def finish(client: AsyncLuxiClient, ops: list[dict[str, Any]]) -> None:
    """Run jobs of one opcode each, and wait for the end of the last one; each must succeed."""
    answers = await client.call("SubmitManyJobs", [[op] for op in ops])
    assert all(accepted for accepted, _what in answers)
    ids = [job_id for _accepted, job_id in answers]
    for job_id in ids:
        await wait(client, job_id)
    rows = await client.call("QueryJobs", ids, ["status", "opresult"])
    wrong = [row for row in rows if row[0] != "success"]
    assert not wrong, wrong[0]


async def wait(client: AsyncLuxiClient, job_id: int) -> None:
    """Return when the job has ended."""
    previous: Any = None
    while True:
        news = await client.call("WaitForJobChange", job_id, ["status"], previous, 0, 60)
        if news == "nochange":
            continue
        previous = news[0]
        if previous[0] in ("success", "error", "canceled"):
            return


@dataclass
class Rates:
    """The rate and the processor time of each phase, over some rounds."""

    cluster: VirtualCluster
    client: AsyncLuxiClient
    rounds: dict[str, list[tuple[int, Spent]]] = field(default_factory=dict)

    async def run(self, phase: str, ops: list[dict[str, Any]]) -> None:
        """Run the jobs of one phase."""
        with measured(self.cluster) as spent:
            await finish(self.client, ops)
        self.rounds.setdefault(phase, []).append((len(ops), spent))

    def figures(self) -> dict[str, float]:
        """Return the best rate of each phase, and the least processor time of all daemons and of the master."""
        found: dict[str, float] = {}
        for phase, rounds in self.rounds.items():
            found[f"{phase}_per_second"] = round(max(n / spent.wall for n, spent in rounds), 1)
            each = [spent.us_per(n) for n, spent in rounds]
            found[f"{phase}_cpu_us"] = min(one["all"] for one in each)
            found[f"{phase}_master_cpu_us"] = min(one["master"] for one in each)
        return found

    def cold(self) -> dict[str, float]:
        """Return the rates of the first round."""
        firsts = {phase: rounds[0] for phase, rounds in self.rounds.items()}
        return {
            f"cold_{phase}_per_second": round(n / spent.wall, 1)
            for phase, (n, spent) in firsts.items()
        }


async def rates(cluster: VirtualCluster, count: int, rounds: int) -> dict[str, float]:
    """Measure some rounds, each with all instances made and removed."""
    nodes = [node.name for node in cluster.nodes]
    names = [f"bench{number}.example.com" for number in range(count)]
    async with connected(cluster.master.paths.luxi_socket) as client:
        found = Rates(cluster, client)
        for _ in range(rounds):
            placed = [create(name, nodes[number % len(nodes)]) for number, name in enumerate(names)]
            await found.run("create", placed)
            await found.run("start", [switch("OP_INSTANCE_STARTUP", name) for name in names])
            stops = [{**switch("OP_INSTANCE_SHUTDOWN", name), "timeout": 0} for name in names]
            await found.run("stop", stops)
            await found.run("remove", [switch("OP_INSTANCE_REMOVE", name) for name in names])
    return {**found.figures(), **found.cold()}


def main() -> None:
    """Print the figures as one JSON object."""
    size = chosen_size(__doc__)
    with local_cluster(settled_s=size.settled_s) as cluster:
        figures: dict[str, Any] = dict(
            asyncio.run(rates(cluster, *((5, 1), (50, ROUNDS), (200, ROUNDS))[size]))
        )
        register = RegisterFile(cluster.master.paths.register).read()
        assert register is not None
        assert register.accepted is not None
        figures["sync_set"] = len(register.accepted.sync_set)
        figures["sync_ms"] = sync_ms(Path(cluster.directory))
        figures["spin_ms"] = spin_ms()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
