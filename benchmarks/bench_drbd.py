"""Mirrored disks: our own time to activate one beyond the commands, and verify-disks on a large cluster."""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from machine import spin_ms

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ganeti.config.snapshot import Snapshot
from ganeti.model.instance_spec import DiskPeer, DiskSpec
from ganeti.model.names import AdminState, DiskRole
from ganeti.model.objects import (
    Cluster,
    Disk,
    GroupUuid,
    Instance,
    InstanceUuid,
    Node,
    NodeGroup,
    NodeUuid,
)
from ganeti.model.opcodes.mirrors import OpGroupVerifyDisks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.disks import DISKS_INFO, DiskInfo, DisksArgs, SyncStatus
from ganeti.storage.drbd.driver import DrbdDisk
from ganeti.units.context import UnitContext
from ganeti.units.mirrors.verify_disks import LUGroupVerifyDisks
from tests.support.fake_rpc import FakeRpc
from tests.support.lone_run import LoneRun
from tests.support.model_drbd import DrbdNode, DrbdWorld, FileLayer

ADDRESSES = {"one": "10.0.0.1", "two": "10.0.0.2"}
NODES, INSTANCES = 100, 1000


def _spec(number: int, at: str) -> DiskSpec:
    (other,) = (name for name in ADDRESSES if name != at)
    uuid = f"disk-{number}"
    below = tuple(
        DiskSpec(
            uuid=f"{use}-{uuid}",
            index=0,
            size=8,
            template="plain",
            logical_id=(),
            part=("xenvg", f"{number}.{use}"),
        )
        for use in ("data", "meta")
    )
    return DiskSpec(
        uuid=uuid,
        index=0,
        size=8,
        template="drbd",
        logical_id=(11000 + number,),
        part=(number,),
        peers=(DiskPeer(name=other, address=ADDRESSES[other], part=(number,)),),
        children=below,
        address=ADDRESSES[at],
        secret="shared",  # noqa: S106 - of a model
        params={"protocol": "C"},
    )


async def activate_overhead_ms(directory: Path, disks: int) -> float:
    """Milliseconds of processor time a disk and node for opening both ends, where every command answers at once."""
    world = DrbdWorld()
    nodes = {name: world.node(name, host, directory / name) for name, host in ADDRESSES.items()}

    def disk(number: int, node: DrbdNode) -> DrbdDisk:
        spec = _spec(number, node.name)
        return DrbdDisk(spec, lambda layer: FileLayer(node.directory, layer), kernel=node.kernel())

    for number in range(disks):
        for node in nodes.values():
            await disk(number, node).create(8)
    begun = time.process_time()
    for number in range(disks):
        await disk(number, nodes["two"]).open(DiskRole.SECONDARY)
        await disk(number, nodes["one"]).open(DiskRole.PRIMARY)
    return (time.process_time() - begun) / disks / len(nodes) * 1000


def _cluster() -> Snapshot:
    group = GroupUuid("group")
    uuids = [NodeUuid(f"node-{number}") for number in range(NODES)]
    nodes = [
        Node(
            uuid=uuid,
            name=f"node{number}.example.com",
            primary_ip=f"10.0.1.{number}",
            secondary_ip=f"10.0.1.{number}",
            certificate="",
            group=group,
        )
        for number, uuid in enumerate(uuids)
    ]
    return Snapshot.of(
        1,
        Cluster(uuid="c", name="c", master_node=uuids[0]),
        nodes=nodes,
        groups=[NodeGroup(uuid=group, name="default")],
        instances=[_instance(number, uuids) for number in range(INSTANCES)],
    )


def _instance(number: int, uuids: list[NodeUuid]) -> Instance:
    at = [uuids[number % NODES], uuids[(number + 1 + number // NODES) % NODES]]
    below = tuple(
        Disk(
            uuid=f"{use}-{number}",
            size=8,
            template="plain",
            parts=dict.fromkeys(at, ("xenvg", f"{number}.{use}")),
            params={"vg": "xenvg"},
        )
        for use in ("data", "meta")
    )
    disk = Disk(
        uuid=f"disk-{number}",
        size=8,
        template="drbd",
        logical_id=(11000 + number,),
        parts=dict.fromkeys(at, (number,)),
        children=below,
    )
    return Instance(
        uuid=InstanceUuid(f"instance-{number}"),
        name=f"web{number}.example.com",
        primary_node=at[0],
        secondary_nodes=(at[1],),
        disk_template="drbd",
        disks=(disk,),
        admin_state=AdminState.UP,
    )


async def verify_s() -> float:
    """Seconds for looking at the disks of all instances; the nodes answer at once."""
    snapshot = _cluster()
    well = SyncStatus(up_to_date=True, connected=True)

    async def infos(args: DisksArgs, _call: Call) -> list[DiskInfo]:
        return [DiskInfo(exists=True, path="/dev/drbd0", size=8, sync=well) for _ in args.disks]

    answers: Handlers = {DISKS_INFO.name: infos}
    rpc = FakeRpc({node.name: answers for node in snapshot.nodes.values()})
    services: Any = SimpleNamespace(config=SimpleNamespace(snapshot=snapshot), rpc=rpc)
    op = OpGroupVerifyDisks(group_name="default")
    ctx = UnitContext(services, LoneRun(op))
    unit = LUGroupVerifyDisks(op)
    begun = time.perf_counter()
    plan = await unit.check_prereq(ctx)
    outcome = await unit.execute(ctx, plan)
    took = time.perf_counter() - begun
    if outcome.result != [{}, [], {}] or len(plan) != INSTANCES:
        raise SystemExit(f"not what was expected: {outcome.result!r:.200}")
    return took


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    disks = 10 if parser.parse_args().quick else 50
    with tempfile.TemporaryDirectory() as name:
        activate = asyncio.run(activate_overhead_ms(Path(name), disks))
    figures = {
        "activate_drbd_50_overhead_ms": round(activate, 2),
        "verify_disks_1000_s": round(asyncio.run(verify_s()), 3),
        "spin_ms": spin_ms(),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
