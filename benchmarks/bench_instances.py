"""Creating, starting and stopping many instances at once: real daemons, durable, three nodes, no real guests."""

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any

from local_cluster import connected, local_cluster
from machine import spin_ms, sync_ms

from ganeti.clients.luxi_async import AsyncLuxiClient
from ganeti.store.register import RegisterFile

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


async def per_second(client: AsyncLuxiClient, ops: list[dict[str, Any]]) -> float:
    """Jobs of one opcode each, from the first byte of their submission to the end of the last one."""
    begun = time.perf_counter()
    answers = await client.call("SubmitManyJobs", [[op] for op in ops])
    assert all(accepted for accepted, _what in answers)
    ids = [job_id for _accepted, job_id in answers]
    for job_id in ids:
        await wait(client, job_id)
    took = time.perf_counter() - begun
    rows = await client.call("QueryJobs", ids, ["status", "opresult"])
    wrong = [row for row in rows if row[0] != "success"]
    assert not wrong, wrong[0]
    return len(ops) / took


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


async def rates(socket: Path, nodes: list[str], count: int) -> dict[str, float]:
    """The best of some rounds, each with all instances made and removed; `cold`: the first one."""
    best: dict[str, float] = {}
    cold: dict[str, float] = {}
    names = [f"bench{number}.example.com" for number in range(count)]
    async with connected(socket) as client:
        for _ in range(ROUNDS):
            phases = {
                "create": [
                    create(name, nodes[number % len(nodes)]) for number, name in enumerate(names)
                ],
                "start": [switch("OP_INSTANCE_STARTUP", name) for name in names],
                "stop": [{**switch("OP_INSTANCE_SHUTDOWN", name), "timeout": 0} for name in names],
                "remove": [switch("OP_INSTANCE_REMOVE", name) for name in names],
            }
            for phase, ops in phases.items():
                rate = await per_second(client, ops)
                best[phase] = max(best.get(phase, 0.0), rate)
                cold.setdefault(f"cold_{phase}", rate)
    figures = {**best, **cold}
    return {f"{phase}_per_second": round(rate, 1) for phase, rate in figures.items()}


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with local_cluster() as cluster:
        socket = cluster.master.paths.luxi_socket
        nodes = [node.name for node in cluster.nodes]
        figures: dict[str, Any] = dict(asyncio.run(rates(socket, nodes, 50 if quick else 200)))
        register = RegisterFile(cluster.master.paths.register).read()
        assert register is not None
        assert register.accepted is not None
        figures["sync_set"] = len(register.accepted.sync_set)
        figures["sync_ms"] = sync_ms(Path(cluster.directory))
        figures["spin_ms"] = spin_ms()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
