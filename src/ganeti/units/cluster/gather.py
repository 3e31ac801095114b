"""The questions to nodes for the check of a node group."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from msgspec.structs import replace

from ganeti import ssconf
from ganeti.base.errors import RpcError
from ganeti.config.fill import is_exclusive
from ganeti.config.snapshot import Snapshot
from ganeti.config.ssconf_writer import ssconf_values
from ganeti.config.storage_units import storage_units
from ganeti.model.disk_templates import (
    DISK_TEMPLATES,
    DRBD,
    TEMPLATES,
    StorageUnit,
    storage_facts,
)
from ganeti.model.objects import Disk, Instance, InstanceUuid, Node, NodeUuid
from ganeti.rpc.procedures.disks import MIRRORED_DEVICES, STORED_DISKS, StorageUnits, StoredDisk
from ganeti.rpc.procedures.files import SharedFiles
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.host import (
    NODE_INFO,
    NODE_VERIFY,
    HypervisorsArgs,
    NodeInfo,
    VerifyArgs,
    VerifyReport,
)
from ganeti.rpc.procedures.instances import INSTANCES_INFO, RunningInstance
from ganeti.rpc.procedures.programs import OS_DIAGNOSE, OsInfo
from ganeti.units.cluster.disk_findings import Listing
from ganeti.units.cluster.file_findings import SsconfExpected
from ganeti.units.cluster.mirror_findings import Devices
from ganeti.units.context import UnitContext
from ganeti.units.instance.disks import is_mirrored
from ganeti.units.mirrors.judge import Verdict
from ganeti.units.mirrors.look import look
from ganeti.units.node_data import info_args
from ganeti.units.shared_files import shared_files

PART = 50
"""In a group with more than twice as many nodes, each node connects only to its own part of them and to the next part."""
SETTLE_S = 3.0
"""The time that a check waits for all nodes to receive the last change."""


@dataclass(frozen=True)
class Answers:
    """The answers of the nodes of a group, and the expected answers."""

    before: Snapshot
    """The configuration at the start of the queries."""
    reports: Mapping[NodeUuid, VerifyReport | RpcError]
    running: Mapping[NodeUuid, list[RunningInstance] | RpcError]
    oses: Mapping[str, list[OsInfo]]
    """By name of node."""
    infos: Mapping[NodeUuid, NodeInfo | RpcError]
    listing: Listing
    devices: Devices
    mirrors: Mapping[InstanceUuid, Sequence[Verdict]]
    shared: SharedFiles | None
    ssconf: SsconfExpected
    distributed: int
    """The ssconf position that all nodes had before the queries."""
    coming: frozenset[str]
    """Names of instances that jobs were creating."""

    def free_memory(self) -> dict[NodeUuid, int]:
        """MiB, of the nodes that answered."""
        return {
            uuid: info.memory_free
            for uuid, info in self.infos.items()
            if not isinstance(info, RpcError)
        }


async def gather(ctx: UnitContext, online: list[Node], instances: list[Instance]) -> Answers:
    """Query everything from the online nodes of a group, and the mirrored disks of its instances from all nodes."""
    snapshot = ctx.snapshot
    coming = ctx.config.reservations.host_names()
    late = await ctx.services.ssconf.settle(SETTLE_S)
    distributed = ctx.services.ssconf.position
    shared = await _shared_files(ctx)
    cluster = snapshot.cluster
    hypervisors = list(cluster.enabled_hypervisors)
    capable = [node for node in online if node.vm_capable]
    args = VerifyArgs(
        hypervisors=hypervisors,
        files=[
            *([file.path for file in shared.files] if shared else []),
            *cluster.renewed_files,
        ],
        exclusive=bool(online) and is_exclusive(cluster, snapshot.groups[online[0].group]),
    )
    reports, running, infos, oses = await asyncio.gather(
        _reports(ctx, online, args),
        ctx.call_all(online, INSTANCES_INFO, HypervisorsArgs(hypervisors=hypervisors)),
        ctx.call_all(capable, NODE_INFO, info_args(snapshot)),
        ctx.call_all(capable, OS_DIAGNOSE, Nothing()),
    )
    listing, devices, mirrors = await asyncio.gather(
        _listing(ctx, capable), _devices(ctx, capable), _mirrors(ctx, instances)
    )
    sums = await asyncio.to_thread(_checksums, (snapshot, ctx.snapshot))
    return Answers(
        before=snapshot,
        reports=reports,
        running=running,
        oses={
            node.name: answer
            for node in capable
            if not isinstance(answer := oses[node.uuid], RpcError)
        },
        infos=infos,
        listing=listing,
        devices=devices,
        mirrors=mirrors,
        shared=shared,
        ssconf=SsconfExpected(sums, snapshot.position, late),
        distributed=distributed,
        coming=coming | ctx.config.reservations.host_names(),
    )


async def _reports(
    ctx: UnitContext, online: list[Node], args: VerifyArgs
) -> dict[NodeUuid, VerifyReport | RpcError]:
    """Return the reports; a node that is not vm_capable needs neither storage nor hypervisors."""
    capable = [node for node in online if node.vm_capable]
    others = [node for node in online if not node.vm_capable]
    questions = [(replace(args, hypervisors=[], exclusive=False), others)]
    for units, nodes in nodes_by_units(ctx.snapshot, capable).items():
        questions.append((replace(args, storage=list(units)), nodes))
    calls = []
    for part, peers in parts(online):
        members, addresses = {node.uuid for node in part}, [_address(node) for node in peers]
        for question, nodes in questions:
            if here := [node for node in nodes if node.uuid in members]:
                calls.append(ctx.call_all(here, NODE_VERIFY, replace(question, nodes=addresses)))
    found: dict[NodeUuid, VerifyReport | RpcError] = {}
    for answers in await asyncio.gather(*calls):
        found |= answers
    return found


def parts(online: Sequence[Node]) -> list[tuple[Sequence[Node], Sequence[Node]]]:
    """Return parts of the nodes, each with the nodes that its members connect to.

    Up to 100 nodes are one part. If each of 1,000 nodes connected to all, a check would open a million connections.
    """
    if len(online) <= 2 * PART:
        return [(online, online)]
    found = [online[at : at + PART] for at in range(0, len(online), PART)]
    following = [*found[1:], found[0]]
    return [(part, [*part, *later]) for part, later in zip(found, following, strict=True)]


def _address(node: Node) -> tuple[str, str, int]:
    return node.name, node.primary_ip, node.port


async def _devices(ctx: UnitContext, capable: list[Node]) -> Devices:
    """Return the mirrored devices of each node, if the cluster has any."""
    snapshot = ctx.snapshot
    has_any = any(TEMPLATES[one.disk_template].has_numbers for one in snapshot.instances.values())
    if not has_any and DRBD.name not in snapshot.cluster.enabled_disk_templates:
        return {}
    return await ctx.call_all(capable, MIRRORED_DEVICES, Nothing())


async def _mirrors(
    ctx: UnitContext, instances: Iterable[Instance]
) -> Mapping[InstanceUuid, Sequence[Verdict]]:
    """Return the states of the mirrored disks of some instances.

    During a migration both copies are open for writing.
    """
    settled = [one for one in instances if is_mirrored(one) and one.migrating_to is None]
    return await look(ctx, settled)


def _checksums(snapshots: Iterable[Snapshot]) -> frozenset[str]:
    return frozenset(ssconf.checksum(ssconf_values(one)) for one in snapshots)


async def _shared_files(ctx: UnitContext) -> SharedFiles | None:
    try:
        return await shared_files(ctx)
    except RpcError:
        return None  # another check reports that the master's node does not answer


def nodes_by_units(
    snapshot: Snapshot, nodes: Iterable[Node]
) -> dict[tuple[StorageUnit, ...], list[Node]]:
    """Return the units to query: all, except other directories than the cluster's, which only nodes of their disks get.

    A node refuses directories that it does not allow.
    """
    cluster, disks = snapshot.cluster, dict[NodeUuid, list[Disk]]()
    for disk, holders in snapshot.all_disks():
        for holder in holders:
            disks.setdefault(holder, []).append(disk)
    units, of_cluster = storage_units(cluster, chain(*disks.values())), storage_units(cluster)
    in_files = {row.storage.kind for row in TEMPLATES.values() if row.in_files and row.storage}
    common = [unit for unit in units if unit.kind not in in_files or unit in of_cluster]
    found: dict[tuple[StorageUnit, ...], list[Node]] = {}
    for node in nodes:
        own = storage_units(cluster, disks.get(NodeUuid(node.uuid), ()))
        found.setdefault(tuple(dict.fromkeys([*common, *own])), []).append(node)
    return found


async def _listing(ctx: UnitContext, capable: list[Node]) -> Listing:
    """Return the content of the storage units of each node, and of the shared ones as one node sees them."""
    cluster = ctx.snapshot.cluster
    rows = DISK_TEMPLATES.values()
    everywhere = {facts.kind for row in rows if row.shared and (facts := storage_facts(row))}
    local: dict[NodeUuid, list[StoredDisk] | RpcError] = {}
    for asked, nodes in nodes_by_units(ctx.snapshot, capable).items():
        own = StorageUnits(units=[unit for unit in asked if unit.kind not in everywhere])
        local |= await ctx.call_all(nodes, STORED_DISKS, own)
    units = storage_units(cluster, (disk for disk, _ in ctx.snapshot.all_disks()))
    args = StorageUnits(units=[unit for unit in units if unit.kind in everywhere])
    shared: list[StoredDisk] | None = None
    for node in capable:
        answer = (await ctx.call_all([node], STORED_DISKS, args))[node.uuid]
        if not isinstance(answer, RpcError):
            shared = answer
            break
    return Listing(local, shared)
