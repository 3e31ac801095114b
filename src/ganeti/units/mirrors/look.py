"""Asking nodes about the disks of instances, and judging what they report."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from ganeti.base.errors import RpcError
from ganeti.config.fill import disk_spec
from ganeti.config.snapshot import Snapshot
from ganeti.layouts.places import holders
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.rpc.procedures.disks import DISKS_INFO, DiskArgs, DiskInfo, DisksArgs
from ganeti.units.context import UnitContext
from ganeti.units.mirrors.judge import OFFLINE, Seen, Verdict, judge

PER_CALL = 50
"""Disks about which a node is asked at once."""
CONNECT_S = 20.0
"""How long a connection may take to be made: DRBD tries every 10 s."""
LOOK_EVERY_S = 1.0

Ask = Callable[[Node, DisksArgs], Awaitable[list[DiskInfo]]]
Asked = list[tuple[Instance, int]]


async def look(
    ctx: UnitContext, instances: Iterable[Instance]
) -> dict[InstanceUuid, list[Verdict]]:
    """The verdict on each disk of some instances; a node that is silent is a finding, not an error."""

    async def ask(node: Node, args: DisksArgs) -> list[DiskInfo]:
        return await ctx.call(node, DISKS_INFO, args)

    return await look_with(ctx.snapshot, instances, ask)


async def look_with(
    snapshot: Snapshot, instances: Iterable[Instance], ask: Ask
) -> dict[InstanceUuid, list[Verdict]]:
    """As `look`, for callers without a context."""
    wanted = list(instances)
    asked = _asked_of(wanted)
    nodes = [snapshot.nodes[uuid] for uuid in asked]
    answers = await asyncio.gather(
        *(_of_node(snapshot, one, asked[NodeUuid(one.uuid)], ask) for one in nodes)
    )
    seen = {
        (InstanceUuid(instance.uuid), at, NodeUuid(node.uuid)): part
        for node, parts in zip(nodes, answers, strict=True)
        for (instance, at), part in zip(asked[NodeUuid(node.uuid)], parts, strict=True)
    }
    return {
        InstanceUuid(one.uuid): [
            judge(
                [seen[InstanceUuid(one.uuid), at, uuid] for uuid in holders(one)],
                mirrored=DISK_TEMPLATES[one.disk_template].mirrored,
            )
            for at in range(len(one.disks))
        ]
        for one in wanted
    }


async def verdicts_of(ctx: UnitContext, instance: Instance) -> list[Verdict]:
    """The verdict on each disk of one instance."""
    return (await look(ctx, [instance]))[InstanceUuid(instance.uuid)]


async def settled_verdicts(ctx: UnitContext, instance: Instance) -> list[Verdict]:
    """The verdicts after connections that are being made have had time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + CONNECT_S
    while True:
        verdicts = await verdicts_of(ctx, instance)
        if loop.time() >= end or not any(map(_may_connect, verdicts)):
            return verdicts
        await asyncio.sleep(LOOK_EVERY_S)


def _may_connect(verdict: Verdict) -> bool:
    """Whether both ends of a disk look for each other."""
    copies = [part.info.sync for part in verdict.parts if part.info is not None]
    if len(copies) < len(verdict.parts):
        return False
    return all(one is not None and not one.connected and not one.dropped for one in copies)


def _asked_of(instances: Sequence[Instance]) -> Mapping[NodeUuid, Asked]:
    """Which node to ask about which disks."""
    found: dict[NodeUuid, Asked] = {}
    for instance in instances:
        for uuid in holders(instance):
            found.setdefault(uuid, []).extend((instance, at) for at in range(len(instance.disks)))
    return found


async def _of_node(snapshot: Snapshot, node: Node, asked: Asked, ask: Ask) -> list[Seen]:
    found: list[Seen] = []
    why = OFFLINE if node.offline else ""
    for start in range(0, len(asked), PER_CALL):
        some = asked[start : start + PER_CALL]
        infos: Sequence[DiskInfo | None] = [None] * len(some)
        if not why:
            try:
                infos = await ask(node, _args(snapshot, node, some))
            except RpcError as err:
                why = err.reason
        found += [
            Seen(at, node.name, node.uuid == instance.primary_node, info, "" if info else why)
            for (instance, at), info in zip(some, infos, strict=True)
        ]
    return found


def _args(snapshot: Snapshot, node: Node, asked: Asked) -> DisksArgs:
    here = NodeUuid(node.uuid)
    return DisksArgs(
        disks=[
            DiskArgs(instance_name=one.name, disk=disk_spec(snapshot, one, at, here))
            for one, at in asked
        ]
    )
