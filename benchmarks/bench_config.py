"""What one change of the configuration costs in clusters of different sizes: a tag, by a job."""

import asyncio
import json
import statistics
import time
from pathlib import Path

from bench_jobs import wait
from local_cluster import connected, local_cluster, loop_block_ms
from machine import spin_ms, sync_ms
from sizes import chosen_size

from ganeti.base.clock import SystemClock
from ganeti.base.ids import RandomIds
from ganeti.bootstrap.daemons import MASTERD, Daemons
from ganeti.bootstrap.init import answers
from ganeti.bootstrap.membership import own_identity
from ganeti.config.config import Config
from ganeti.config.transaction import put_row
from ganeti.model.objects import Instance, InstanceUuid, Nic
from ganeti.store.backend import become_master
from ganeti.store.backends import open_alone
from ganeti.store.interface import MAX_OPERATIONS, Campaign, CampaignKind, Put, Transaction
from ganeti.vcluster.layout import VirtualNode

SETTLE_S = 3.0


async def grow(node: VirtualNode, first: int, count: int) -> None:
    """Put instances into the state while no master runs: creating 10,000 by jobs takes minutes."""
    daemons = Daemons(node.paths, environment=node.environment())
    await daemons.stop(MASTERD)
    store = await open_alone(node.paths, own_identity(node.paths))
    try:
        lease = await become_master(store, Campaign(CampaignKind.FORCE))  # the others do not answer
        config = await Config.load(store, lease, SystemClock(), RandomIds())
        nodes = config.snapshot.online_nodes()
        rows = [
            _row(number, nodes[number % len(nodes)].uuid) for number in range(first, first + count)
        ]
        for start in range(0, len(rows), MAX_OPERATIONS):
            await store.commit(lease, Transaction(tuple(rows[start : start + MAX_OPERATIONS])))
    finally:
        await store.close()
    await daemons.start(MASTERD)
    await answers(node.paths)
    await asyncio.sleep(SETTLE_S)  # the new facts go to the nodes


def _row(number: int, node_uuid: str) -> Put:
    ids = RandomIds()
    mac = "aa:00:00:" + number.to_bytes(3, "big").hex(":")
    return put_row(
        Instance(
            uuid=InstanceUuid(ids.uuid()),
            name=f"i{number}.example.com",
            primary_node=node_uuid,  # type: ignore[arg-type] # from a node, where it is one
            hypervisor="fake",
            nics=(Nic(uuid=ids.uuid(), mac=mac),),
        )
    )


async def change_ms(socket: Path, rounds: int) -> float:
    """Milliseconds from SubmitJob to the end of a job that changes one tag (median)."""
    taken = []
    async with connected(socket) as client:
        for number in range(rounds):
            op = {
                "OP_ID": "OP_TAGS_SET" if number % 2 == 0 else "OP_TAGS_DEL",
                "kind": "instance",
                "name": "i7.example.com",
                "tags": ["changed"],
            }
            begun = time.perf_counter()
            job_id = await client.call("SubmitJob", [op])
            await wait(client, job_id)
            taken.append((time.perf_counter() - begun) * 1000)
            rows = await client.call("QueryJobs", [job_id], ["status"])
            assert rows == [["success"]], rows
    return round(statistics.median(taken), 2)


def main() -> None:
    """Print the figures as one JSON object."""
    size = chosen_size(__doc__)
    figures = {}
    with local_cluster(settled_s=size.settled_s) as cluster:
        node, have = cluster.master, 0
        for instances in ((100,), (100, 1000), (100, 1000, 10_000))[size]:
            asyncio.run(grow(node, have, instances - have))
            have = instances
            rounds = (4, 40, 200)[size]
            key = f"change_ms_{instances}"
            figures[key] = asyncio.run(change_ms(node.paths.luxi_socket, rounds))
        figures["loop_block_ms"] = loop_block_ms(cluster)
        figures["sync_ms"] = sync_ms(Path(cluster.directory))
        figures["spin_ms"] = spin_ms()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
