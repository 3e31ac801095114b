"""The import of an image: a node reads the source, and gets the first copy."""

from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, InputError, PrereqError, RpcError, RpcFailed
from ganeti.base.identifiers import is_absolute_path, plain_name
from ganeti.config.kinds.image import check_image
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change, Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.image_source import Digest, check_url, is_url, upload_of
from ganeti.model.objects import Image, ImageDisk, ImageUuid, Node, NodeUuid
from ganeti.model.opcodes.image import NONE, ImageParams, OpImageImport
from ganeti.protocols.export_description import ExportDescription, parse_description
from ganeti.rpc.procedures.exports import (
    EXPORT_BEGIN,
    EXPORT_FINISH,
    EXPORT_INFO,
    ExportArgs,
    FinishExportArgs,
)
from ganeti.rpc.procedures.images import IMAGE_INFO, IMAGE_STORE, ImageArgs, StoreArgs
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.image.content import description_text
from ganeti.units.node_choice import check_online
from ganeti.units.telling import showing
from ganeti.units.undo.transfers import RemoveImageCopy

_NUMBERS = ("maxmem", "minmem", "vcpus")


@dataclass(frozen=True)
class ImportPlan:
    """The new image, still without its disks, and the node that reads the source."""

    image: Image
    node: Node


def with_params(image: Image, op: ImageParams) -> Image:
    """Return the image with the requested description and hints; InputError for invalid ones."""
    given = {
        name: value
        for name in ("description", "disk_size", "firmware", "cloud_init")
        if (value := getattr(op, name)) is not None
    }
    if given.get("firmware") == NONE:
        given["firmware"] = ""
    return replace(image, **given)


class LUImageImport(LogicalUnit[OpImageImport, ImportPlan]):
    """Convert a source to an image on a node, and record it; a failure leaves nothing."""

    def check_arguments(self) -> None:
        op = self.op
        plain_name(op.image_name, "image_name")
        digest = Digest.parse(op.digest or "")
        if is_url(op.source):
            check_url(op.source, "source")
            if digest is None:
                raise InputError("is required for a URL (--digest)", "digest")
        elif upload_of(op.source) is None and not is_absolute_path(op.source):
            raise InputError(
                "must be an absolute path on the node, without '..', an https URL, or an upload (upload:ID)",
                "source",
            )
        # Until the source was read, the image has one small disk.
        check_image(_first(op, ImageUuid(""), ()))

    def _node(self, snapshot: Snapshot) -> Node:
        return resolve_node(snapshot, self.op.node or snapshot.cluster.master_node)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [lock(Level.NODE, self._node(snapshot).uuid, Mode.SHARED)]

    async def check_prereq(self, ctx: UnitContext) -> ImportPlan:
        op, node = self.op, self._node(ctx.snapshot)
        if ctx.snapshot.image_by_name(op.image_name) is not None:
            raise PrereqError(f"image {op.image_name} exists already", ErrorCode.EXISTS)
        ctx.config.reservations.take_image(ctx.job_id, op.image_name)
        check_online(node)
        if not is_url(op.source):
            try:
                args = ImageArgs(path=op.source, format=op.source_format)
                await ctx.call(node, IMAGE_INFO, args)
            except RpcFailed as err:
                raise PrereqError(str(err), ErrorCode.WRONG_INPUT) from err
            except RpcError as err:
                raise PrereqError(str(err), ErrorCode.ENVIRONMENT) from err
        return ImportPlan(_first(op, ImageUuid(ctx.ids.uuid()), (NodeUuid(node.uuid),)), node)

    async def execute(self, ctx: UnitContext, plan: ImportPlan) -> Outcome:
        op, node, name = self.op, plan.node, plan.image.directory
        async with ctx.undo_log() as undo:
            for unfinished in (False, True):
                step = RemoveImageCopy(
                    node=node.uuid, image=plan.image.uuid, directory=name, unfinished=unfinished
                )
                await undo.push(step)
            ctx.step(f"reading {op.source} on {node.name}")
            args = ExportArgs(export=name, unfinished=True, stored=True)
            await ctx.call(node, EXPORT_BEGIN, args)
            wanted = StoreArgs(
                export=name, source=op.source, format=op.source_format, digest=op.digest or ""
            )
            async with showing(ctx, node, f"image {op.image_name}"):
                await ctx.call(node, IMAGE_STORE, wanted)
            found = await ctx.call(node, EXPORT_INFO, args)
            image = _completed(plan.image, parse_description(found.config), found.allocated)
            config = description_text(image)
            ctx.check_change(added(image))
            finish = FinishExportArgs(export=name, config=config, stored=True)
            await ctx.call(node, EXPORT_FINISH, finish)
            undo.commit(added(image))
        return Outcome([disk.sha256 for disk in image.disks])


def added(image: Image) -> Change:
    """Return the change that adds or replaces an image."""

    def change(draft: Draft) -> None:
        draft.put(image)

    return change


def _first(op: OpImageImport, uuid: ImageUuid, nodes: tuple[NodeUuid, ...]) -> Image:
    image = Image(uuid=uuid, name=op.image_name, disks=(ImageDisk(size=1),), nodes=nodes)
    return with_params(image, op)


def _completed(image: Image, export: ExportDescription, allocated: int) -> Image:
    """Return the image as its node has stored it; ExecError if the description lacks a digest."""
    if not all(disk.sha256 for disk in export.disks):
        raise ExecError(f"the node has stored image {image.name} without digests")
    return replace(
        image,
        disks=tuple(ImageDisk(size=disk.size, sha256=disk.sha256) for disk in export.disks),
        stored=allocated,
        beparams={one: int(export.beparams[one]) for one in _NUMBERS if one in export.beparams},
        nics=len(export.nics),
    )
