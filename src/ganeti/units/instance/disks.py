"""Creation, opening and removal of an instance's disks on all its nodes, by its planner's layout."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, PrereqError, RpcError
from ganeti.config.fill import instance_spec
from ganeti.jobs.undo_log import UndoLog
from ganeti.layouts.places import creation_order, holders
from ganeti.layouts.planner import Planner
from ganeti.layouts.registry import PLANNERS
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.model.objects import Disk, Instance, Node, NodeUuid
from ganeti.model.progress import JobProgress, Progress
from ganeti.rpc.procedures.disks import (
    BLOCKDEV_ADOPT,
    BLOCKDEV_ASSEMBLE,
    BLOCKDEV_CREATE,
    BLOCKDEV_INFO,
    BLOCKDEV_SETINFO,
    BLOCKDEV_SHUTDOWN,
    AdoptDiskArgs,
    DiskArgs,
    DiskInfo,
    OpenDiskArgs,
    SyncStatus,
)
from ganeti.rpc.procedures.external import EXT_PROVIDERS
from ganeti.rpc.procedures.form import Nothing
from ganeti.units.context import UnitContext
from ganeti.units.instance.grants import grant_closed
from ganeti.units.mirrors.judge import problem
from ganeti.units.mirrors.look import CONNECT_S, verdicts_of
from ganeti.units.telling import MIB, said_progress, showing
from ganeti.units.undo.disks import RemoveDisk

LOOK_EVERY_S = 5.0
"""The interval of checks of a synchronisation."""
SAY_EVERY_S = 60.0
"""The interval of progress reports to the job."""
STALLED_S = 1800.0
"""The limit without any progress; another disk may be synchronised first."""


@dataclass(frozen=True)
class JobNames:
    """New names, reserved for the job of a context."""

    ctx: UnitContext

    def uuid(self) -> str:
        return self.ctx.ids.uuid()

    def secret(self) -> str:
        return self.ctx.ids.token()

    def port(self) -> int:
        port = self.ctx.config.reservations.new_port(self.ctx.job_id, self.ctx.snapshot)
        if port is None:
            raise PrereqError("every network port of the cluster is in use", ErrorCode.NO_RESOURCES)
        return port

    def number(self, template: str, node: NodeUuid) -> int:
        return self.ctx.config.reservations.new_number(
            self.ctx.job_id, template, node, self.ctx.snapshot
        )


def planner_of(instance: Instance) -> Planner:
    """The planner of an instance's disks."""
    return PLANNERS[instance.disk_template]


def is_mirrored(instance: Instance) -> bool:
    """Return whether a secondary node has a copy of its disks."""
    return DISK_TEMPLATES[instance.disk_template].mirrored and bool(instance.disks)


def disks_on(ctx: UnitContext, instance: Instance, node: NodeUuid) -> tuple[DiskSpec, ...]:
    """Return the disks of an instance in the form for one of its nodes."""
    return instance_spec(ctx.snapshot, instance, node).disks


async def create_disks(
    ctx: UnitContext,
    undo: UndoLog,
    instance: Instance,
    *,
    nodes: Iterable[NodeUuid] | None = None,
    only: Iterable[str] | None = None,
    adopted: Mapping[str, str] | None = None,
    wipe: bool = True,
) -> None:
    """Create the parts of disks on their nodes, or some of each; the undo log removes them.

    `adopted` maps UUIDs of disks to the existing volumes or devices that become these disks. Without `wipe` no space
    is filled with zeros: every byte will be written before the disk is used.
    """
    chosen = None if only is None else set(only)
    places = list(creation_order(instance) if nodes is None else nodes)
    new = [disk for disk in instance.disks if chosen is None or disk.uuid in chosen]
    await _check_providers(ctx, new, places)
    for uuid in places:
        node = ctx.snapshot.nodes[uuid]
        parts = disks_on(ctx, instance, uuid)
        for disk in parts if wipe else map(_unwiped, parts):
            if chosen is None or disk.uuid in chosen:
                ctx.info(f"disk {disk.index} ({disk.size} MiB) on {node.name}")
                source = (adopted or {}).get(disk.uuid, "")
                made = RemoveDisk(
                    node=uuid, instance=instance.name, disk=disk.public, adopted=source
                )
                unsure = replace(made, unsure=True)
                await undo.push(unsure)
                await _create_disk(ctx, node, instance, disk, source)
                undo.amend(unsure, made)


def _unwiped(disk: DiskSpec) -> DiskSpec:
    return replace(disk, wipe=False, children=tuple(map(_unwiped, disk.children)))


async def _check_providers(
    ctx: UnitContext, disks: Iterable[Disk], nodes: Iterable[NodeUuid]
) -> None:
    """Raise ExecError if a node lacks a provider of the disks, before anything is created."""
    by_provider = [disk for disk in disks if DISK_TEMPLATES[disk.template].by_provider]
    wanted = sorted({str(disk.logical_id[0]) for disk in by_provider})
    for node in [ctx.snapshot.nodes[uuid] for uuid in nodes] if wanted else ():
        usable = {one.name: one for one in await ctx.call(node, EXT_PROVIDERS, Nothing())}
        for name in wanted:
            found = usable.get(name)
            if found is None or found.problem:
                why = "does not exist" if found is None else f"cannot be used: {found.problem}"
                raise ExecError(
                    f"provider {name} of external storage {why} on {node.name}; see: gnt-storage diagnose"
                )


async def label_disks(ctx: UnitContext, instance: Instance, disks: Iterable[str]) -> None:
    """Record at the providers of some disks, by their UUIDs, that they belong to this instance.

    A failure is a warning.
    """
    chosen, node = set(disks), ctx.snapshot.nodes[instance.primary_node]
    for disk in disks_on(ctx, instance, instance.primary_node):
        if disk.uuid in chosen and DISK_TEMPLATES[disk.template].by_provider:
            try:
                what = DiskArgs(instance_name=instance.name, disk=disk)
                await ctx.call(node, BLOCKDEV_SETINFO, what)
            except RpcError as err:
                ctx.warn(
                    f"{err}; the provider still records another instance for disk {disk.index}"
                )


async def _create_disk(
    ctx: UnitContext, node: Node, instance: Instance, disk: DiskSpec, source: str
) -> None:
    """Create one disk on one node, from existing data if a source is given."""
    if source:
        taken = AdoptDiskArgs(instance_name=instance.name, disk=disk, source=source)
        await ctx.call(node, BLOCKDEV_ADOPT, taken)
    else:
        await make_disk(ctx, node, DiskArgs(instance_name=instance.name, disk=disk))


async def make_disk(ctx: UnitContext, node: Node, what: DiskArgs) -> None:
    """Create one disk on one node; the job shows the progress of filling it with zeros."""
    async with showing(ctx, node, f"zeros on disk {what.disk.index} on {node.name}"):
        await ctx.call(node, BLOCKDEV_CREATE, what)


async def open_disks(
    ctx: UnitContext, instance: Instance, node: Node, role: DiskRole
) -> list[DiskInfo]:
    """Make all disks of an instance usable on one of its nodes, in a role."""
    if role is DiskRole.PRIMARY:
        instance = await grant_closed(ctx.config, instance)
    found = []
    for disk in disks_on(ctx, instance, NodeUuid(node.uuid)):
        args = OpenDiskArgs(instance_name=instance.name, disk=disk, role=role)
        info = await ctx.call(node, BLOCKDEV_ASSEMBLE, args)
        found.append(info)
    return found


async def close_disks(ctx: UnitContext, instance: Instance, node: Node) -> None:
    """Undo the opening on one node, the last disk first."""
    for disk in reversed(disks_on(ctx, instance, NodeUuid(node.uuid))):
        args = DiskArgs(instance_name=instance.name, disk=disk)
        await ctx.call(node, BLOCKDEV_SHUTDOWN, args)


def secondaries(ctx: UnitContext, instance: Instance) -> list[Node]:
    """Return the other online nodes with a copy; nodes that are marked offline count as dead."""
    nodes = [ctx.snapshot.nodes[uuid] for uuid in holders(instance)[1:]]
    return [node for node in nodes if not node.offline]


async def open_secondaries(ctx: UnitContext, instance: Instance) -> None:
    """Prepare the secondary nodes for the writes of the primary."""
    for node in secondaries(ctx, instance):
        await open_disks(ctx, instance, node, DiskRole.SECONDARY)


async def close_secondaries(ctx: UnitContext, instance: Instance) -> None:
    """Close the secondary copies after the guest has stopped; a failure is reported and does no harm."""
    for node in secondaries(ctx, instance):
        try:
            await close_disks(ctx, instance, node)
        except RpcError as err:
            ctx.warn(f"{err}; the copy of {instance.name} stays open there")


@contextlib.asynccontextmanager
async def copies_open(ctx: UnitContext, instance: Instance) -> AsyncIterator[None]:
    """Keep the secondary copies open for the time of a block; the guest is down."""
    try:
        await open_secondaries(ctx, instance)
        yield
    finally:
        await close_secondaries(ctx, instance)


@contextlib.asynccontextmanager
async def disks_opened(ctx: UnitContext, instance: Instance, node: Node) -> AsyncIterator[None]:
    """Keep the disks open for a block: on the primary node, and on the others for the writes."""
    async with copies_open(ctx, instance):
        try:
            await open_disks(ctx, instance, node, DiskRole.PRIMARY)
            yield
        except BaseException:
            with contextlib.suppress(RpcError):
                await close_disks(ctx, instance, node)
            raise
        await close_disks(ctx, instance, node)


async def sync_of(
    ctx: UnitContext, instance: Instance, node: Node
) -> list[tuple[DiskSpec, SyncStatus | None]]:
    """Return the states of the copies as a node sees them; None for a disk that is not open there."""
    found = []
    for disk in disks_on(ctx, instance, NodeUuid(node.uuid)):
        what = DiskArgs(instance_name=instance.name, disk=disk)
        info = await ctx.call(node, BLOCKDEV_INFO, what)
        found.append((disk, info.sync))
    return found


async def wait_for_sync(ctx: UnitContext, instance: Instance) -> None:
    """Wait until all copies are the same; ExecError if a connection is lost, or the copy makes no progress."""
    if not is_mirrored(instance):
        return
    primary = ctx.snapshot.nodes[instance.primary_node]
    loop = asyncio.get_running_loop()
    last: list[float | None] = []
    moved_at, say_at, connects_until = loop.time(), loop.time(), loop.time() + CONNECT_S
    while True:
        seen = await sync_of(ctx, instance, primary)
        if any(sync is None or not sync.connected for _disk, sync in seen):
            if loop.time() >= connects_until or any(
                sync is None or sync.dropped for _, sync in seen
            ):
                raise await _not_connected(ctx, instance)
            await asyncio.sleep(LOOK_EVERY_S)
            continue
        busy = [(disk, sync) for disk, sync in seen if sync is not None and not sync.in_sync]
        if not busy:
            ctx.run.progress(None)
            return
        percents = [sync.percent for _disk, sync in busy]
        if percents != last:
            last, moved_at = percents, loop.time()
        elif loop.time() - moved_at > STALLED_S:
            raise ExecError(
                f"the copies of {instance.name} made no progress for {STALLED_S / 60:g} minutes; check the nodes"
                f" and the network between them, then run: gnt-instance activate-disks --wait-for-sync {instance.name}"
            )
        said = [_progress(disk, sync) for disk, sync in busy]
        ctx.run.progress(said[0][1])
        if loop.time() >= say_at:
            ctx.info("; ".join(words for words, _bar in said))
            say_at = loop.time() + SAY_EVERY_S
        await asyncio.sleep(LOOK_EVERY_S)


async def _not_connected(ctx: UnitContext, instance: Instance) -> ExecError:
    """Return the error that names the state of the disks, and the repair command."""
    verdicts = await verdicts_of(ctx, instance)
    found = [one for verdict in verdicts if (one := problem(verdict, instance.name, is_up=True))]
    why = (
        "; ".join(map(str, found))
        or "a disk lost its connection for a moment; run the command again"
    )
    return ExecError(f"{instance.name}: not all copies of its disks are connected: {why}")


def _progress(disk: DiskSpec, sync: SyncStatus) -> tuple[str, JobProgress]:
    done = round(disk.size * MIB * (sync.percent or 0.0) / 100)
    found = Progress(done=done, total=disk.size * MIB)
    rate = None if sync.rate is None else sync.rate * 1024
    return said_progress(f"disk {disk.index}", found, rate, sync.seconds_left)
