"""Streams read and write disks in images like any other disks."""

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.errors import GanetiError, StorageError
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.protocols.qcow2 import CLUSTER
from ganeti.rpc.procedures.exports import EXPORT_FINISH, FinishExportArgs
from ganeti.rpc.procedures.streams import (
    STREAM_COPY,
    STREAM_END,
    STREAM_WITHIN,
    CopyArgs,
    DiskEnd,
    DumpEnd,
    EndArgs,
    StreamArgs,
    StreamResult,
    SumsEnd,
)
from ganeti.storage.assemble import device
from tests.support.qemu_images import in_use, qemu_io, ran, raw_of
from tests.support.stream_nodes import (
    BY_SCRIPT,
    MIB,
    NAME,
    POINT,
    RAW,
    SIZE,
    SPEC,
    Node,
    carry,
    commit_point,
    exported,
    point_end,
    stream_nodes,
    within,
)

pytestmark = pytest.mark.requirement("G12")

FORM = {"format": "qcow2"}


def as_image(disk: DiskSpec) -> DiskSpec:
    return replace(disk, logical_id=(*disk.logical_id, "qcow2"), params=FORM)


IMAGES = replace(SPEC, disks=tuple(as_image(disk) for disk in SPEC.disks))
IMAGE = DiskEnd(instance=IMAGES, index=0)
ENDS = {"raw": RAW, "image": IMAGE}


@pytest.fixture
async def nodes(disk_path: Path) -> AsyncIterator[tuple[Node, Node]]:
    async with stream_nodes(disk_path) as found:
        yield found


async def filled(node: Node, spec: InstanceSpec) -> bytes:
    """Give the first disk data here and there; return it."""
    data = node.fill(b"data" * 50_000)
    if spec is IMAGES:
        await emptied(node, spec)
        raw = node.paths.below("/raw")
        raw.write_bytes(data)
        qemu_io(node.disk(), f"write -s {raw} 0 {SIZE}M", "write -z 1M 1M")
    return data


async def emptied(node: Node, spec: InstanceSpec, *indexes: int) -> None:
    """Make disks as a creation makes them; all by default."""
    for disk in spec.disks:
        if not indexes or disk.index in indexes:
            node.disk(disk.index).unlink()
            await device(node.paths, NAME, disk).create(SIZE)


def content(node: Node, spec: InstanceSpec, index: int = 0) -> bytes:
    """Return the disk; an image is what it was created as, and sound."""
    path = node.disk(index)
    if spec is not IMAGES:
        return path.read_bytes()
    assert os.getxattr(path, "user.ganeti.disk").decode() == spec.disks[index].uuid
    return raw_of(path)


BOTH = pytest.mark.parametrize(
    ("source", "target"), [("raw", "image"), ("image", "raw"), ("image", "image")]
)


async def test_snapshot_of_an_image_is_sent_as_its_disk(nodes: tuple[Node, Node]) -> None:
    data = await filled(nodes[0], IMAGES)
    snapshot = nodes[0].disk().with_name("snapshot")
    snapshot.write_bytes(nodes[0].disk().read_bytes())
    qemu_io(nodes[0].disk(), "write -P 7 0 1M")
    await carry(nodes, {"disk": replace(IMAGE, snapshot=str(snapshot))}, {"disk": RAW})
    assert nodes[1].disk().read_bytes() == data


@BOTH
async def test_disk_moves_to_another_node(
    nodes: tuple[Node, Node], source: str, target: str
) -> None:
    out, into = ENDS[source], ENDS[target]
    data = await filled(nodes[0], out.instance)
    await emptied(nodes[1], into.instance)
    result = await carry(nodes, {"disk": out}, {"disk": into})
    assert result.data_bytes == SIZE * MIB
    assert content(nodes[1], into.instance) == data


@BOTH
async def test_disk_is_copied_within_a_node(
    nodes: tuple[Node, Node], source: str, target: str
) -> None:
    node, (out, into) = nodes[0], (ENDS[one].instance for one in (source, target))
    data = await filled(node, out)
    await emptied(node, into, 1)
    args = CopyArgs(
        instance_name=NAME, token="the token", source=out.disks[0], target=into.disks[1]
    )
    result: StreamResult = await node.call(STREAM_COPY, args)
    assert result.data_bytes == SIZE * MIB
    assert content(node, into, 1) == data


async def test_image_becomes_a_dump_and_a_dump_an_image(nodes: tuple[Node, Node]) -> None:
    data = await filled(nodes[0], IMAGES)
    result = await exported(nodes, disk=IMAGE)
    assert result.sha256 == hashlib.sha256(data).hexdigest()
    assert (nodes[1].paths.exports / f"{NAME}.new/d0").read_bytes() == data
    finish = FinishExportArgs(export=NAME, config="")
    await nodes[1].call(EXPORT_FINISH, finish)
    await emptied(nodes[0], IMAGES)
    dump = DumpEnd(export=NAME, file="d0")
    await carry((nodes[1], nodes[0]), {"dump": dump}, {"disk": IMAGE})
    assert content(nodes[0], IMAGES) == data


async def test_image_is_backed_up_and_restored_above_other_data(
    nodes: tuple[Node, Node],
) -> None:
    node, data = nodes[0], await filled(nodes[0], IMAGES)
    node.paths.below(f"/srv/ganeti/backup/{NAME}").mkdir(parents=True, mode=0o700)
    disk = EndArgs(disk=replace(IMAGE, changes=True))
    await node.call(STREAM_WITHIN, within(disk, point_end(), limit=2 * SIZE * MIB))
    commit_point(node)
    other = EndArgs(disk=replace(IMAGE, index=1, holds_data=True))
    for _ in range(2):  # what an interrupted restore has left is such an image, too
        await emptied(node, IMAGES, 1)
        qemu_io(node.disk(1), f"write -P 7 0 {SIZE}M")
        await node.call(STREAM_WITHIN, within(point_end(), other))
        assert content(node, IMAGES, 1) == data
    size = SIZE * MIB // CLUSTER * 32
    sums = within(point_end(sums=True), EndArgs(sums=SumsEnd()), size=size, limit=size)
    await node.call(STREAM_WITHIN, sums)
    qemu_io(node.disk(0), "write -P 8 2M 64k")
    changed = EndArgs(disk=replace(IMAGE, changes=True, sums="the token"))
    saved = await node.call(
        STREAM_WITHIN, within(changed, point_end(point="20261127-190500", parent=POINT))
    )
    assert CLUSTER < saved.data_bytes < 2 * CLUSTER


async def test_image_that_a_guest_uses_is_neither_read_nor_written(
    nodes: tuple[Node, Node],
) -> None:
    node = nodes[0]
    await filled(node, IMAGES)
    await emptied(node, SPEC, 1)
    disks = IMAGES.disks
    with in_use(node.disk(0)):
        for source, target in ((disks[0], SPEC.disks[1]), (SPEC.disks[1], disks[0])):
            args = CopyArgs(instance_name=NAME, token="the token", source=source, target=target)
            with pytest.raises(GanetiError, match="a program uses the image; stop the guest"):
                await node.call(STREAM_COPY, args)


async def test_scripts_do_not_get_an_image(nodes: tuple[Node, Node]) -> None:
    await filled(nodes[0], IMAGES)
    with pytest.raises(StorageError, match="this operation needs a disk with format=raw"):
        await carry(nodes, {"disk": replace(BY_SCRIPT, instance=IMAGES)}, {"disk": RAW})
    await nodes[1].call(
        STREAM_END, StreamArgs(instance_name=NAME, token="the token", receives=True)
    )


async def test_image_with_another_file_is_not_sent(nodes: tuple[Node, Node]) -> None:
    node = nodes[0]
    secret = node.paths.below("/secret")
    secret.write_bytes(b"s" * SIZE * MIB)
    node.disk(0).unlink()
    ran("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", secret, node.disk(0))
    args = CopyArgs(
        instance_name=NAME, token="the token", source=IMAGES.disks[0], target=SPEC.disks[1]
    )
    with pytest.raises(StorageError, match="backing file"):
        await node.call(STREAM_COPY, args)
    assert b"ss" not in node.disk(1).read_bytes()
