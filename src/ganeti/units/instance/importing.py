"""The creation of an instance from an export: its description completes the request, and its data is copied."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import (
    ErrorCode,
    GuestOsError,
    InputError,
    PrereqError,
    RpcError,
    RpcFailed,
)
from ganeti.base.identifiers import host_name, is_absolute_path
from ganeti.config.fill import cluster_hvparams, instance_spec, os_facts
from ganeti.config.resolve import resolve_node
from ganeti.jobs.undo_log import UndoLog
from ganeti.model.compression import NONE, check_compression
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.objects import Cluster, Instance, Node
from ganeti.model.opcodes.base import DiskRequest, NicRequest
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.opcodes.points import OpBackupCheck
from ganeti.model.param_checks import check_backend_params
from ganeti.model.params import (
    BACKEND_DEFAULTS,
    BACKEND_PARAMS,
    GROUP_BACKEND_PARAMS,
    MEMORY,
)
from ganeti.protocols.backup_manifest import check_point
from ganeti.protocols.export_description import (
    RAW,
    SCRIPT,
    ExportDescription,
    ExportedDisk,
    ExportedNic,
    parse_description,
)
from ganeti.rpc.procedures.backup_keys import NO_BACKUP_KEYS, BackupKeys
from ganeti.rpc.procedures.backups import BACKUP_INFO, PointInfo, PointOf
from ganeti.rpc.procedures.exports import (
    EXPORT_BEGIN,
    EXPORT_FINISH,
    EXPORT_INFO,
    EXPORT_LIST,
    ExportArgs,
    ExportContent,
    FinishExportArgs,
)
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.images import IMAGE_CONVERT, IMAGE_INFO, ConvertArgs, ImageArgs
from ganeti.rpc.procedures.programs import OS_RENAME, OsRenameArgs
from ganeti.rpc.procedures.streams import DiskEnd, DumpEnd, PointEnd
from ganeti.units.backup.keys import keys_to_read
from ganeti.units.backup.points import places
from ganeti.units.context import UnitContext
from ganeti.units.instance.disks import copies_open
from ganeti.units.instance.image_disks import check_no_images
from ganeti.units.instance.install import run_script, scripts_of
from ganeti.units.telling import showing
from ganeti.units.transfers import Load, carry, make_route
from ganeti.units.undo.transfers import RemoveExport

IMPORT = "import"
EXPORT_DIRECTORY = "/srv/ganeti/export"
MIB = 1024 * 1024
_SOURCE_FIELDS = (
    "src_node",
    "src_node_uuid",
    "src_path",
    "src_format",
    "src_backup",
    "src_unencrypted",
    "identify_defaults",
)
_SIZES = ("minmem", "maxmem")


@dataclass(frozen=True)
class FoundExport:
    """A readable export, and its node."""

    node: Node
    name: str
    content: ExportContent
    description: ExportDescription
    point: PointInfo | None = None
    """The backup that is read instead of an export."""
    image: ImageArgs | None = None
    """The image that will be converted to the export."""
    keys: BackupKeys = NO_BACKUP_KEYS
    """Of the backup."""


@dataclass(frozen=True)
class ImportPlan:
    """The way in which disks get their data: by the import script of the OS, or as raw images."""

    found: FoundExport
    by_script: bool
    renames: bool
    """True if the OS has a script that sets the name in the installed system."""


def source_variables(plan: ImportPlan) -> dict[str, str]:
    """Return variables about an imported export for hooks; the files of its disks in upstream's form."""
    found = plan.found
    place = f"{EXPORT_DIRECTORY}/{found.name}"
    images = [f"{place}/{disk.dump}" if disk.dump else False for disk in found.description.disks]
    return {"SRC_NODE": found.node.name, "SRC_PATH": place, "SRC_IMAGES": str(images)}


def check_import_arguments(op: OpInstanceCreate) -> None:
    """Refuse fields of imports without an import, and paths outside of the exports (A42)."""
    check_compression(op.compress)
    if op.no_nics and op.nics:
        raise InputError("cannot be combined with network interfaces", "no_nics")
    if op.mode != IMPORT:
        for name in _SOURCE_FIELDS:
            if getattr(op, name):
                raise InputError(f"only with mode {IMPORT}", name)
        return
    if op.src_backup is not None:
        check_point(op.src_backup, "src_backup")
    if op.src_format is not None:
        _check_image_arguments(op)
    elif op.src_path is not None:
        export_name(op.src_path)


def _check_image_arguments(op: OpInstanceCreate) -> None:
    if op.src_backup is not None:
        raise InputError("cannot be combined with an image", "src_backup")
    if op.src_path is None or not is_absolute_path(op.src_path):
        raise InputError("name the image (--image): an absolute path, without '..'", "src_path")
    if not (op.src_node or op.src_node_uuid):
        raise InputError("name the node of the image (--src-node)", "src_node")


def export_name(path: str) -> str:
    """Return the name of an export, given as such or as the directory directly below that of all exports."""
    name = path.removeprefix(f"{EXPORT_DIRECTORY}/").rstrip("/")
    if "/" in name:
        raise InputError(
            f"must be the name of an export, or {EXPORT_DIRECTORY}/NAME: move it there", "src_path"
        )
    return host_name(name, "src_path")


async def find_export(ctx: UnitContext, op: OpInstanceCreate) -> FoundExport:
    """Return the requested export, from the given node or from the node that has it; or an image."""
    if op.src_format is not None:
        return await _find_image(ctx, op, op.src_format)
    if op.src_backup is not None:
        return await _find_backup(ctx, op, op.src_backup)
    name = export_name(op.src_path or op.instance_name)
    given = op.src_node_uuid or op.src_node
    node = resolve_node(ctx.snapshot, given) if given else await _holder(ctx, name)
    try:
        content = await ctx.call(node, EXPORT_INFO, ExportArgs(export=name))
    except RpcFailed as err:
        raise PrereqError(str(err), ErrorCode.WRONG_INPUT) from err
    except RpcError as err:
        raise PrereqError(str(err), ErrorCode.ENVIRONMENT) from err
    description = parse_description(content.config)
    for index, disk in enumerate(description.disks):
        if disk.dump and disk.dump not in content.files:
            raise PrereqError(
                f"export {name} on {node.name} has no file {disk.dump} for disk {index}",
                ErrorCode.WRONG_INPUT,
            )
    return FoundExport(node, name, content, description)


async def _find_image(ctx: UnitContext, op: OpInstanceCreate, form: str) -> FoundExport:
    """Return the export that an image of a machine will become, as its node describes it."""
    node = resolve_node(ctx.snapshot, str(op.src_node_uuid or op.src_node))
    image = ImageArgs(path=str(op.src_path), format=form)
    try:
        content = await ctx.call(node, IMAGE_INFO, image)
    except RpcFailed as err:
        raise PrereqError(str(err), ErrorCode.WRONG_INPUT) from err
    except RpcError as err:
        raise PrereqError(str(err), ErrorCode.ENVIRONMENT) from err
    name = f"import-{ctx.ids.token(8)}"
    return FoundExport(node, name, content, parse_description(content.config), image=image)


async def _find_backup(ctx: UnitContext, op: OpInstanceCreate, point: str) -> FoundExport:
    """Return a backup as an export: its description, and its disks as raw dumps."""
    name = export_name(op.src_path or op.instance_name)
    given = op.src_node_uuid or op.src_node
    wanted = OpBackupCheck(instance_name=name, node=given)
    holders = [one for one in await places(ctx, wanted, name) if one.has(point)]
    if len(holders) != 1:
        where = ", ".join(one.words for one in holders) or "none; gnt-backup points shows all"
        raise PrereqError(
            f"exactly one directory must have backup {point} of {name} (--src-node chooses the node); there is"
            f" {where}",
            ErrorCode.WRONG_INPUT,
        )
    place = holders[0]
    keys = keys_to_read(ctx.snapshot, place.find(point), allow_unencrypted=op.src_unencrypted)
    args = PointOf(target=place.target, instance_name=name, keys=keys, point=point)
    content = await ctx.call(place.node, BACKUP_INFO, args)
    files = {one.disk: one.size for one in content.info.disks}
    export = ExportContent(config=content.description, files=files)
    description = parse_description(content.description)
    if [disk.dump for disk in description.disks] != list(files):
        raise PrereqError(
            f"backup {point} of {name} has other disks than its description", ErrorCode.WRONG_INPUT
        )
    return FoundExport(place.node, name, export, description, content.info, keys=keys)


async def _convert(ctx: UnitContext, undo: UndoLog, found: FoundExport, image: ImageArgs) -> None:
    """Convert an image to an export, for this import only."""
    ctx.step(f"converting {image.path} on {found.node.name}")
    for unfinished in (True, False):
        step = RemoveExport(node=found.node.uuid, instance=found.name, unfinished=unfinished)
        await undo.push(step, also_after=not unfinished)
    await ctx.call(found.node, EXPORT_BEGIN, ExportArgs(export=found.name))
    config = found.content.config
    wanted = ConvertArgs(export=found.name, path=image.path, format=image.format, config=config)
    async with showing(ctx, found.node, image.path):
        await ctx.call(found.node, IMAGE_CONVERT, wanted)
    await ctx.call(found.node, EXPORT_FINISH, FinishExportArgs(export=found.name, config=config))


async def _holder(ctx: UnitContext, name: str) -> Node:
    nodes = list(ctx.snapshot.online_nodes())
    answers = await ctx.call_all(nodes, EXPORT_LIST, Nothing())
    found = []
    for node, answer in zip(nodes, answers.values(), strict=True):
        if isinstance(answer, RpcError):
            ctx.warn(f"{answer}; its exports are ignored")
        elif name in answer.names:
            found.append(node)
    if len(found) != 1:
        names = ", ".join(node.name for node in found)
        why = (
            f"is on several nodes ({names}): name one (--src-node)"
            if found
            else "is on no node that answers; gnt-backup list shows all"
        )
        raise PrereqError(f"the export {name} {why}", ErrorCode.WRONG_INPUT)
    return found[0]


def filled(ctx: UnitContext, op: OpInstanceCreate, export: ExportDescription) -> OpInstanceCreate:
    """Complete the request from the export; the result is checked like any request."""
    cluster = ctx.snapshot.cluster
    hypervisor = op.hypervisor or export.hypervisor or cluster.enabled_hypervisors[0]
    same = export.hypervisor in (None, hypervisor)
    hvparams = _known(ctx, export.hvparams if same else {}, HYPERVISOR_PARAMS.get(hypervisor, {}))
    beparams = _known(ctx, export.beparams, {**BACKEND_PARAMS, MEMORY: None})
    if MEMORY in op.beparams:
        beparams = {name: value for name, value in beparams.items() if name not in _SIZES}
    keeps_macs = op.instance_name == export.name
    new = replace(
        op,
        os_type=op.os_type or export.os or None,
        disk_template=op.disk_template or export.disk_template,
        disks=op.disks or [_disk_request(disk) for disk in export.disks],
        nics=op.nics or ([] if op.no_nics else _nic_requests(ctx, export, keeps_macs=keeps_macs)),
        hypervisor=hypervisor,
        hvparams={**hvparams, **op.hvparams},
        beparams={**beparams, **op.beparams},
        osparams={**export.osparams, **op.osparams},
        osparams_private={**export.osparams_private, **op.osparams_private},
        tags=op.tags or list(export.tags),
    )
    _check_disks(new, export)
    # An unknown hypervisor has no defaults; it is refused later.
    has_defaults = op.identify_defaults and hypervisor in cluster.enabled_hypervisors
    return _without_defaults(cluster, new) if has_defaults else new


def _known(ctx: UnitContext, given: Mapping[str, str], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known parameters; an export of another version may have others."""
    found = {}
    for name, value in given.items():
        if name in known and value != "None":
            found[name] = value
        elif name not in known:
            ctx.warn(f"parameter {name!r:.60} of the export is unknown and is ignored")
    return found


def _disk_request(disk: ExportedDisk) -> DiskRequest:
    return DiskRequest(size=disk.size, mode=disk.mode, name=disk.name)


def _nic_requests(
    ctx: UnitContext, export: ExportDescription, *, keeps_macs: bool
) -> list[NicRequest]:
    return [
        NicRequest(
            mac=nic.mac if keeps_macs and nic.mac else "auto",
            ip=nic.ip,
            name=nic.name,
            **_connection(ctx, index, nic),
        )
        for index, nic in enumerate(export.nics)
    ]


def _connection(ctx: UnitContext, index: int, nic: ExportedNic) -> dict[str, str | None]:
    """Return the network of an interface, which implies its other parameters.

    Without a known network, those parameters.
    """
    if nic.network:
        known = ctx.snapshot.networks.get(nic.network) or ctx.snapshot.network_by_name(nic.network)
        if known is not None:
            return {"network": known.name}
        ctx.warn(f"network {nic.network!r:.60} of interface {index} is unknown and is ignored")
    return {"mode": nic.mode, "link": nic.link, "vlan": nic.vlan}


def _check_disks(op: OpInstanceCreate, export: ExportDescription) -> None:
    """Refuse fewer or smaller disks than the export has (S133)."""
    if len(op.disks) < len(export.disks):
        raise InputError(
            f"the export has {len(export.disks)} disks, so the instance needs as many", "disks"
        )
    for index, (wanted, has) in enumerate(zip(op.disks, export.disks, strict=False)):
        if wanted.size < has.size:
            raise InputError(
                f"the exported disk has {has.size} MiB, so the disk needs at least as many",
                f"disks[{index}].size",
            )


def _without_defaults(cluster: Cluster, op: OpInstanceCreate) -> OpInstanceCreate:
    """Return the parameters that differ from the cluster's defaults, and those that a group may set."""
    hypervisor = cluster_hvparams(cluster, str(op.hypervisor), op.os_type or "")
    wanted = check_backend_params(op.beparams, "beparams")
    backend = {**BACKEND_DEFAULTS, **cluster.beparams.get("default", {})}
    return replace(
        op,
        hvparams={n: v for n, v in op.hvparams.items() if str(hypervisor.get(n)) != str(v)},
        beparams={
            n: v for n, v in wanted.items() if backend.get(n) != v or n in GROUP_BACKEND_PARAMS
        },
    )


async def plan_import(
    ctx: UnitContext, found: FoundExport, instance: Instance, node: Node
) -> ImportPlan:
    """Decide how dumps become disks; refuse dumps of an export script without a matching import script."""
    os = instance.os
    scripts, how = await scripts_of(ctx, node, os), found.description.data
    has_script = "import" in scripts
    if how == SCRIPT and not has_script:
        raise PrereqError(
            f"the export was written by the export script of {found.description.os}, and {os or 'no OS'}"
            f" on node {node.name} has no script import",
            ErrorCode.WRONG_INPUT,
        )
    if how != RAW and not has_script and found.description.disks:
        ctx.warn(f"OS {os or '(none)'} has no script import: dumps are used as images of disks")
    by_script = has_script and how != RAW
    if by_script:
        check_no_images(
            instance.name, instance.disks, f"imported by a script of OS {os}", "use format=raw"
        )
    if not by_script and found.image is None and found.description.compression == NONE:
        _check_sizes(ctx, found)
    return ImportPlan(found, by_script, "rename" in scripts)


def _check_sizes(ctx: UnitContext, found: FoundExport) -> None:
    """Refuse images that are longer than their disk or truncated; report shorter ones."""
    for index, disk in enumerate(found.description.disks):
        wanted = disk.size * MIB
        size = found.content.files[disk.dump] if disk.dump else wanted
        if size > wanted or (size < wanted and disk.sha256):
            raise PrereqError(
                f"the dump {disk.dump} of export {found.name} has {size} bytes, and disk {index} has {wanted}:"
                " one of them is damaged; use another export, or correct the size in config.ini",
                ErrorCode.WRONG_INPUT,
            )
        if size < wanted:
            ctx.warn(f"the dump of disk {index} is shorter than the disk; the rest is zeros")


async def import_disks(
    ctx: UnitContext,
    undo: UndoLog,
    instance: Instance,
    plan: ImportPlan,
    *,
    op: OpInstanceCreate,
    osparams: dict[str, str],
) -> None:
    """Fill the new disks from the dumps."""
    export, node = plan.found.description, ctx.snapshot.nodes[instance.primary_node]
    image = plan.found.image
    if image is not None:
        await _convert(ctx, undo, plan.found, image)
    route = await make_route(ctx, undo, instance.name, plan.found.node, node)
    spec = instance_spec(ctx.snapshot, instance)
    is_packed = export.compression != NONE
    async with copies_open(ctx, instance):
        for index, disk in enumerate(export.disks):
            if not disk.dump:
                ctx.warn(f"the export has no data for disk {index}: the disk is empty")
                continue
            ctx.step(f"importing disk {index} ({disk.size} MiB) from {plan.found.node.name}")
            end = DiskEnd(
                instance=spec,
                index=index,
                os=instance.os if plan.by_script else "",
                osparams=osparams if plan.by_script else {},
                facts=os_facts(ctx.snapshot, instance),
                debug=int(op.debug_level > 0),
            )
            size = spec.disks[index].size * MIB
            load = Load(
                what=f"disk {index}",
                size=plan.found.content.files[disk.dump],
                limit=2 * size + MIB if plan.by_script else size,
                source=_source(plan.found, disk.dump),
                target=end,
                pack=NONE if is_packed else op.compress,
                unpack=export.compression if is_packed else op.compress,
                sha256=disk.sha256,
            )
            await carry(ctx, undo, route, load)


def _source(found: FoundExport, dump: str) -> DumpEnd | PointEnd:
    """Return the data of a disk."""
    if found.point is None:
        return DumpEnd(export=found.name, file=dump)
    return PointEnd(
        target=found.point.target,
        instance=found.name,
        point=found.point.point,
        disk=dump,
        size=found.content.files[dump],
        keys=found.keys,
    )


async def tell_name(
    ctx: UnitContext,
    instance: Instance,
    old_name: str,
    osparams: dict[str, str],
    *,
    has_script: bool,
    debug: int,
) -> None:
    """Set the new name in the imported system; a failure does not end the import (S217)."""
    if not has_script or not instance.disks:
        if old_name != instance.name:
            ctx.info("the system keeps its old name: the OS has no script rename")
        return
    ctx.step(f"running the OS rename script of {instance.os}")
    args = OsRenameArgs(
        instance=instance_spec(ctx.snapshot, instance),
        os=instance.os,
        old_name=old_name,
        osparams=osparams,
        facts=os_facts(ctx.snapshot, instance),
        debug=int(debug > 0),
    )
    try:
        async with copies_open(ctx, instance):
            await run_script(ctx, ctx.snapshot.nodes[instance.primary_node], OS_RENAME, args)
    except RpcFailed as err:
        if err.wire_error != GuestOsError.wire_name:
            raise
        ctx.warn(f"{err}; change the name in its system by hand")
