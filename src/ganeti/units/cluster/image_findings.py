"""Findings about the copies of images on nodes."""

from collections.abc import Iterator, Mapping

from ganeti.base.errors import RpcError
from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Image, NodeUuid
from ganeti.rpc.procedures.exports import IMAGE_STORE_LIST, StoredFile, StoredImages
from ganeti.rpc.procedures.form import Nothing
from ganeti.units.cluster.findings import Finding
from ganeti.units.context import UnitContext
from ganeti.units.image.content import described
from ganeti.units.telling import MIB

_CODE = "ENODEIMAGE"


async def stored_images(ctx: UnitContext) -> Mapping[NodeUuid, StoredImages | RpcError]:
    """Return the stores of the nodes that have images; without images no node is called."""
    snapshot = ctx.snapshot
    holders = {uuid for image in snapshot.images.values() for uuid in image.nodes}
    nodes = [node for node in snapshot.online_nodes() if node.uuid in holders]
    return await ctx.call_all(nodes, IMAGE_STORE_LIST, Nothing()) if nodes else {}


def image_findings(
    snapshot: Snapshot, said: Mapping[NodeUuid, StoredImages | RpcError]
) -> Iterator[Finding]:
    """Yield missing and changed copies, with the command that repairs them; silent nodes are reported elsewhere."""
    known = {image.directory: image for image in snapshot.images.values()}
    for uuid, found in said.items():
        if isinstance(found, RpcError):
            continue
        name = snapshot.nodes[uuid].name
        for image in (one for one in known.values() if uuid in one.nodes):
            if why := _problem(image, found.images.get(image.directory)):
                text = f"{why}; run: gnt-image copy {image.name} {name}"
                yield Finding(_CODE, "node", name, text)
        for directory in sorted(found.images.keys() - known.keys()):
            text = f"{directory} in its image store belongs to no image of this cluster; remove the directory"
            yield Finding(_CODE, "node", name, text, is_error=False)


def _problem(image: Image, files: Mapping[str, StoredFile] | None) -> str:
    """Return what is wrong with a copy as far as names, sizes and times show it."""
    if files is None:
        return f"the copy of image {image.name} is missing"
    for disk in described(image).disks:
        file = files.get(disk.dump)
        if file is None or file.length != disk.size * MIB:
            return f"{disk.dump} of image {image.name} is missing, or has the wrong size"
        if not file.unchanged:
            return f"{disk.dump} of image {image.name} has changed since it was complete"
    return ""
