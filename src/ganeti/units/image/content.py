"""The content of images: its description, and copies of it on nodes."""

from collections.abc import Sequence

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, PrereqError, RpcError, RpcFailed
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change
from ganeti.model.objects import Image, Node, NodeUuid
from ganeti.model.params import BACKEND_DEFAULTS
from ganeti.protocols.export_description import (
    RAW,
    ExportDescription,
    ExportedDisk,
    ExportedNic,
    format_description,
)
from ganeti.rpc.procedures.exports import (
    EXPORT_BEGIN,
    EXPORT_FINISH,
    EXPORT_VERIFY,
    ExportArgs,
    FinishExportArgs,
)
from ganeti.rpc.procedures.streams import DumpEnd
from ganeti.units.context import UnitContext
from ganeti.units.telling import MIB, showing
from ganeti.units.transfers import Load, carry, make_route
from ganeti.units.undo.transfers import RemoveImageCopy

_NUMBERS = ("maxmem", "minmem", "vcpus")


def described(image: Image) -> ExportDescription:
    """Return an image in the form of an export, which is that of its copies."""
    disks = tuple(
        ExportedDisk(size=disk.size, dump=f"disk{number}.raw", sha256=disk.sha256)
        for number, disk in enumerate(image.disks)
    )
    return ExportDescription(
        name=image.directory,
        data=RAW,
        disks=disks,
        nics=(ExportedNic(),) * image.nics,
        hvparams={"firmware": image.firmware} if image.firmware else {},
        beparams={name: str(value) for name, value in image.beparams.items()},
    )


def description_text(image: Image) -> str:
    """Return the file that describes a copy of an image: the same on all nodes, whatever hints the image gets."""
    plain = replace(image, firmware="")
    numbers = {name: int(image.beparams.get(name, BACKEND_DEFAULTS[name])) for name in _NUMBERS}
    return format_description(described(plain), numbers)


def with_node(image: Image, node: Node) -> Change:
    """Return the change that records the copy of a node."""

    def change(draft: Draft) -> None:
        now = draft.images[image.uuid]
        if node.uuid not in now.nodes:
            draft.put(replace(now, nodes=(*now.nodes, NodeUuid(node.uuid))))

    return change


async def wrong_parts(ctx: UnitContext, image: Image, node: Node) -> list[str]:
    """Return what is wrong with the copy of a node, which reads it completely; RpcError if that is unknown."""
    args = ExportArgs(export=image.directory, stored=True)
    async with showing(ctx, node, f"copy on {node.name}"):
        try:
            found = await ctx.call(node, EXPORT_VERIFY, args)
        except RpcFailed as err:
            return [str(err)]
    return [f"disk {one.disk}: {one.problem}" for one in found if one.problem]


def holders(ctx: UnitContext, image: Image, *, without: Sequence[str] = ()) -> list[Node]:
    """Return the nodes that have a copy and are not marked offline."""
    nodes = [ctx.snapshot.nodes[uuid] for uuid in image.nodes if uuid in ctx.snapshot.nodes]
    return [node for node in nodes if not node.offline and node.uuid not in without]


async def copy_image(ctx: UnitContext, image: Image, node: Node) -> None:
    """Give a node a copy, from the first node that can send it; verified before the configuration has it.

    A copy that `node` has is replaced.
    """
    sources = holders(ctx, image, without=(node.uuid,))
    failures = []
    for source in sources:
        try:
            await _copy_from(ctx, image, source, node)
        except RpcError as err:
            failures.append(str(err))
            ctx.warn(str(err))
        else:
            return
    why = "; ".join(failures) or "no other node that is online has a copy"
    raise PrereqError(
        f"image {image.name} cannot be copied to {node.name}: {why}; repair a copy (gnt-image copy"
        f" {image.name} NODE), or import the image again",
        ErrorCode.ENVIRONMENT,
    )


async def _copy_from(ctx: UnitContext, image: Image, source: Node, node: Node) -> None:
    ctx.step(f"copying image {image.name} from {source.name} to {node.name}")
    name, export = image.directory, described(image)
    async with ctx.undo_log() as undo:
        step = RemoveImageCopy(node=node.uuid, image=image.uuid, directory=name)
        if node.uuid not in image.nodes:
            await undo.push(step)
        await undo.push(replace(step, unfinished=True))
        await ctx.call(node, EXPORT_BEGIN, ExportArgs(export=name, stored=True))
        route = await make_route(ctx, undo, name, source, node)
        for number, disk in enumerate(export.disks):
            size = disk.size * MIB
            load = Load(
                what=f"disk {number} of image {image.name}",
                size=size,
                limit=size,
                source=DumpEnd(export=name, file=disk.dump, stored=True),
                target=DumpEnd(export=name, file=disk.dump, unfinished=True, stored=True),
                sha256=disk.sha256,
            )
            await carry(ctx, undo, route, load)
        config = description_text(image)
        await ctx.call(
            node, EXPORT_FINISH, FinishExportArgs(export=name, config=config, stored=True)
        )
        undo.commit(with_node(image, node))
