"""Queries of nodes about the disks of instances, for callers with and without a context."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from ganeti.base.errors import RpcError
from ganeti.config.fill import disk_spec
from ganeti.config.snapshot import Snapshot
from ganeti.layouts.places import holders
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.rpc.procedures.disks import DiskArgs, DiskInfo, DisksArgs
from ganeti.units.mirrors.judge import OFFLINE, Seen, Verdict, judge

PER_CALL = 50
"""The number of disks in one query."""

Ask = Callable[[Node, DisksArgs], Awaitable[list[DiskInfo]]]
Asked = list[tuple[Instance, int]]


async def ask_nodes(
    snapshot: Snapshot, instances: Iterable[Instance], ask: Ask
) -> dict[InstanceUuid, list[Verdict]]:
    """Return the verdict on each disk of some instances; a silent node is a finding, not an error."""
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


def _asked_of(instances: Sequence[Instance]) -> Mapping[NodeUuid, Asked]:
    """Return the nodes to query, each with its disks."""
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
