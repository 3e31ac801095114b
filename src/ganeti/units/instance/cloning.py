"""The creation of an instance as a clone of another one: the same description and data, a new identity."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.fill import instance_spec, without_globals
from ganeti.config.resolve import resolve_instance
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.undo_log import UndoLog
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.iallocator import RequestType
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.objects import Disk, Instance, Nic, Node
from ganeti.model.opcodes.base import DiskRequest, NicRequest
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.params import MEMORY
from ganeti.rpc.procedures.backups import MOMENT_BEGIN, MomentArgs
from ganeti.rpc.procedures.streams import DiskEnd
from ganeti.units.allocation import allocators_for
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import check_not_migrating, is_running, primary_node
from ganeti.units.instance.disks import copies_open, disks_opened
from ganeti.units.instance.install import scripts_of
from ganeti.units.instance.snapshot_checks import MEANING, check_not_rolling_back
from ganeti.units.mirrors.opening import disks_ready
from ganeti.units.node_choice import check_online
from ganeti.units.relocation.copying import DiskCopies
from ganeti.units.transfers import Load, carry, make_route
from ganeti.units.undo.instances import EndMoment

CLONE = "clone"
MIB = 1024 * 1024
_SIZES = ("minmem", "maxmem")


@dataclass(frozen=True)
class ClonePlan:
    """The instance whose disks are copied, its node, and whether its guest runs."""

    source: Instance
    node: Node
    runs: bool
    renames: bool
    """True if the OS has a script that sets the name in the installed system."""


def check_clone_arguments(op: OpInstanceCreate) -> None:
    """Refuse a clone without a source, and a source without a clone."""
    if op.mode == CLONE and op.src_instance is None:
        raise InputError("name the instance to clone", "src_instance")
    if op.mode != CLONE and op.src_instance is not None:
        raise InputError(f"only with mode {CLONE}", "src_instance")


def source_of(snapshot: Snapshot, op: OpInstanceCreate) -> Instance:
    """Return the instance to clone."""
    return resolve_instance(snapshot, str(op.src_instance))


async def plan_clone(ctx: UnitContext, source: Instance, os: str, target: Node) -> ClonePlan:
    """Decide how the disks can be read; PrereqError if they cannot. `os` is the clone's, `target` its node."""
    check_not_migrating(source)
    check_not_rolling_back(source)
    if not source.disks:
        raise PrereqError(f"{source.name} has no disks to clone", ErrorCode.WRONG_STATE)
    node = primary_node(ctx, source)
    check_online(node)
    runs = await is_running(ctx, node, source)
    fixed = [str(index) for index, disk in enumerate(source.disks) if disk.mode != "rw"]
    if runs and fixed:
        raise PrereqError(
            f"{source.name} runs, and its disk {fixed[0]} is read-only, so its disks cannot be read at one moment;"
            f" first run: gnt-instance shutdown {source.name}",
            ErrorCode.WRONG_STATE,
        )
    scripts = await scripts_of(ctx, target, os)
    return ClonePlan(source, node, runs, "rename" in scripts)


def completed(ctx: UnitContext, op: OpInstanceCreate, source: Instance) -> OpInstanceCreate:
    """Complete the request from the source; the result is checked like any request.

    The identity is not copied: UUIDs, MAC addresses, IP addresses, the port of the display, NVRAM and the TPM.
    """
    hypervisor = op.hypervisor or source.hypervisor
    template = op.disk_template or source.disk_template
    same_template = template == source.disk_template
    hvparams = without_globals(hypervisor, source.hvparams)
    beparams = dict(source.beparams)
    if MEMORY in op.beparams:
        beparams = {name: value for name, value in beparams.items() if name not in _SIZES}
    wanted = replace(
        op,
        os_type=op.os_type or source.os or None,
        disk_template=template,
        disks=op.disks or [_disk_request(disk, same=same_template) for disk in source.disks],
        nics=op.nics or ([] if op.no_nics else list(_nic_requests(ctx, source))),
        hypervisor=hypervisor,
        hvparams={**(hvparams if hypervisor == source.hypervisor else {}), **op.hvparams},
        beparams={**beparams, **op.beparams},
        osparams={**source.osparams, **op.osparams},
        osparams_private={**source.osparams_private, **op.osparams_private},
        tags=op.tags or list(source.tags),
    )
    _check_disks(wanted, source)
    return _placed(ctx, wanted, source)


def _disk_request(disk: Disk, *, same: bool) -> DiskRequest:
    params = dict(disk.params) if same else {}
    return DiskRequest(size=disk.size, mode=disk.mode, name=disk.name, params=params)


def _nic_requests(ctx: UnitContext, source: Instance) -> Iterator[NicRequest]:
    for index, nic in enumerate(source.nics):
        if nic.ip is not None and nic.network is None:
            ctx.warn(
                f"interface {index} has no address in the clone, because {nic.ip} belongs to {source.name}; assign"
                f" one with --net {index}:ip=ADDRESS"
            )
        yield _nic_request(ctx.snapshot, nic)


def _nic_request(snapshot: Snapshot, nic: Nic) -> NicRequest:
    if nic.network is not None:
        ip = "pool" if nic.ip is not None else None
        return NicRequest(name=nic.name, network=snapshot.networks[nic.network].name, ip=ip)
    return NicRequest(name=nic.name, **nic.nicparams)


def _check_disks(op: OpInstanceCreate, source: Instance) -> None:
    """Refuse fewer or smaller disks than the source has."""
    if len(op.disks) < len(source.disks):
        raise InputError(
            f"{source.name} has {len(source.disks)} disks, so the clone needs as many", "disks"
        )
    for index, (wanted, has) in enumerate(zip(op.disks, source.disks, strict=False)):
        if wanted.adopt is None and wanted.size < has.size:
            raise InputError(
                f"disk {index} of {source.name} has {has.size} MiB, so the disk needs at least as many",
                f"disks[{index}].size",
            )


def _placed(ctx: UnitContext, op: OpInstanceCreate, source: Instance) -> OpInstanceCreate:
    """Return the request with the nodes of the source if nothing else decides about the nodes."""
    given = op.pnode or op.pnode_uuid or op.iallocator or op.group_name
    if given or allocators_for(ctx.snapshot.cluster, RequestType.ALLOCATE, None):
        return op
    if not DISK_TEMPLATES[str(op.disk_template)].mirrored:
        return replace(op, pnode_uuid=source.primary_node)
    if not source.secondary_nodes:
        return op
    return replace(op, pnode_uuid=source.primary_node, snode_uuid=source.secondary_nodes[0])


async def clone_disks(
    ctx: UnitContext, undo: UndoLog, instance: Instance, plan: ClonePlan, *, compress: str
) -> None:
    """Copy all disks of the source, as they are at one moment, to the new disks of the same number."""
    if plan.runs:
        await _clone_running(ctx, undo, instance, plan, compress)
        return
    node = ctx.snapshot.nodes[instance.primary_node]
    old, new = (instance_spec(ctx.snapshot, one) for one in (plan.source, instance))
    copies = DiskCopies(ctx, undo, new, plan.node, node, compress, origin=old)
    async with disks_ready(ctx, plan.source):
        if plan.node.uuid != node.uuid:
            async with copies_open(ctx, instance):
                await _copy_all(ctx, copies, old.disks, new.disks)
            return
        async with (
            disks_opened(ctx, plan.source, node),
            disks_opened(ctx, instance, node),
        ):
            await _copy_all(ctx, copies, old.disks, new.disks)


async def _copy_all(
    ctx: UnitContext, copies: DiskCopies, old: Sequence[DiskSpec], new: Sequence[DiskSpec]
) -> None:
    for source, target in zip(old, new, strict=False):
        ctx.step(f"copying disk {source.index} ({source.size} MiB)")
        await copies.copy(source, target)


async def _clone_running(
    ctx: UnitContext, undo: UndoLog, instance: Instance, plan: ClonePlan, compress: str
) -> None:
    """Copy the disks as QEMU shows them at one moment, while the guest of the source writes on."""
    source, target = plan.source, ctx.snapshot.nodes[instance.primary_node]
    old, new = (instance_spec(ctx.snapshot, one) for one in (source, instance))
    bitmap = f"clone-{ctx.ids.token(8)}"
    route = await make_route(ctx, undo, instance.name, plan.node, target)
    step = EndMoment(node=plan.node.uuid, instance=old, base="", bitmap=bitmap)
    await undo.push(step, also_after=True)
    args = MomentArgs(instance=old, base="", bitmap=bitmap)
    moment = await ctx.call(plan.node, MOMENT_BEGIN, args)
    ctx.info(MEANING[moment.consistency])
    async with copies_open(ctx, instance):
        for disk in old.disks:
            ctx.step(f"copying disk {disk.index} ({disk.size} MiB)")
            size = disk.size * MIB
            load = Load(
                what=f"disk {disk.index}",
                size=size,
                limit=size,
                source=DiskEnd(instance=old, index=disk.index, moment=moment.socket),
                target=DiskEnd(instance=new, index=disk.index),
                pack=compress,
                unpack=compress,
            )
            await carry(ctx, undo, route, load)
