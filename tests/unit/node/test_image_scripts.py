"""Scripts of OS definitions on disks in images: they get raw copies, and a failed script changes nothing."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.errors import GanetiError, GuestOsError
from ganeti.model.instance_spec import DiskSpec
from ganeti.node import image_scripts
from ganeti.node.carrier.order import EndOrder
from ganeti.node.image_scripts import ImageOfScript
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.disks import BLOCKDEV_CREATE, BLOCKDEV_REMOVE, DiskArgs
from ganeti.rpc.procedures.programs import OS_CREATE, OS_RENAME, ScriptResult
from ganeti.storage.image_files import new_image, raw_copy, write_empty_image
from tests.support.qemu_images import in_use, qemu_io, raw_of
from tests.unit.node.test_os import CALL, CREATE, DISK, RENAME, ROOT, SPEC, Node

pytestmark = pytest.mark.requirement("G12", "S131")

MIB = 1 << 20
WRITE = 'printf "%s" new | dd of="$DISK_0_PATH" conv=notrunc 2>/dev/null'


def image(index: int) -> DiskSpec:
    return replace(
        DISK,
        uuid=f"d{index}",
        index=index,
        logical_id=("loop", f"{ROOT}/web1/disk{index}", "qcow2"),
        params={"format": "qcow2"},
    )


RAW = replace(DISK, index=2, logical_id=("loop", f"{ROOT}/web1/disk2"))
INSTANCE = replace(SPEC, disks=(image(0), image(1), RAW))


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node with two images and a raw disk; the images have data at 512 KiB."""
    node = Node(tmp_path)
    for disk in INSTANCE.disks:
        args = DiskArgs(instance_name=SPEC.name, disk=disk)
        await node.handlers[BLOCKDEV_CREATE.name](args, CALL)
        if disk is not RAW:
            qemu_io(path(node, disk.index), "write -P 9 512k 64k")
    yield node
    await node.tasks.close()


def path(node: Node, index: int) -> Path:
    return node.paths.below(f"{ROOT}/web1/disk{index}")


def check_nothing_is_left(node: Node) -> None:
    found = sorted(one.name for one in path(node, 0).parent.iterdir())
    assert found == ["disk0", "disk1", "disk2"]


async def create(node: Node, call: Call = CALL) -> ScriptResult:
    args = replace(CREATE, instance=INSTANCE)
    done = await node.call(OS_CREATE.name, args, call)
    assert isinstance(done, ScriptResult)
    return done


async def test_script_reads_and_writes_the_disk_in_an_image(node: Node) -> None:
    node.script("create", f'{WRITE}; od -An -tx1 -j524288 -N2 "$DISK_0_PATH" >&2; env >&2')
    said = (await create(node)).tail
    assert "09 09" in said
    assert f"DISK_0_PATH={path(node, 0)}.script_copy" in said
    assert f"DISK_2_PATH={path(node, 2)}\n" in said
    assert "PYTHON" not in said
    data = raw_of(path(node, 0))
    assert (data[:4], data[512 * 1024 :][:1], len(data)) == (b"new\0", b"\x09", MIB)
    assert os.getxattr(path(node, 0), "user.ganeti.disk") == b"d0"
    assert path(node, 0).stat().st_mode & 0o777 == 0o600
    check_nothing_is_left(node)


async def test_only_changed_images_are_written_again(node: Node) -> None:
    before = [path(node, index).stat().st_ino for index in range(3)]
    node.script("create", f'{WRITE}; printf raw | dd of="$DISK_2_PATH" conv=notrunc 2>/dev/null')
    await create(node)
    after = [path(node, index).stat().st_ino for index in range(3)]
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True, True]
    assert path(node, 2).read_bytes()[:4] == b"raw\0"


async def test_rename_script_gets_the_disk(node: Node) -> None:
    node.script("rename", f"{WRITE}; echo renamed >&2")
    args = replace(RENAME, instance=INSTANCE)
    assert (await node.call(OS_RENAME.name, args)).tail == "renamed"
    assert raw_of(path(node, 0))[:3] == b"new"


async def test_repeated_call_does_not_run_the_script_again(node: Node) -> None:
    node.script("create", f'echo ran >>"{node.paths.root}/runs"; {WRITE}')
    first = await create(node)
    assert await create(node) == first
    assert (node.paths.root / "runs").read_text() == "ran\n"


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("echo no >&2; exit 5", r"exit status 5(?s:.*)no$"),
        ("kill -TERM $$", "signal 15"),
        ("kill -TERM $PPID", "signal 15"),
        ("kill -KILL $PPID", "signal 9"),
        ("rm $DISK_0_PATH", "No such file"),
        (": >$DISK_0_PATH", "the data ends at byte 0"),
    ],
)
async def test_failed_script_changes_no_image(node: Node, end: str, why: str) -> None:
    before = [path(node, index).read_bytes() for index in (0, 1)]
    node.script("create", f"{WRITE}; {end}")
    with pytest.raises(GuestOsError, match=why):
        await create(node)
    assert [path(node, index).read_bytes() for index in (0, 1)] == before
    check_nothing_is_left(node)


async def test_image_in_use_is_not_given_to_a_script(node: Node) -> None:
    node.script("create", 'touch "$0.ran"')
    with (
        in_use(path(node, 0)),
        pytest.raises(GuestOsError, match="a program uses the image; stop the guest"),
    ):
        await create(node)
    assert not (node.os / "create.ran").exists()


async def test_copies_of_an_interrupted_node_are_replaced_or_removed(node: Node) -> None:
    def interrupt() -> None:
        for index in (0, 1):
            for name in (raw_copy, new_image):
                Path(name(str(path(node, index)))).write_bytes(b"rest")

    interrupt()
    node.script("create", WRITE)
    await create(node)
    check_nothing_is_left(node)
    interrupt()
    for disk in INSTANCE.disks:
        args = DiskArgs(instance_name=SPEC.name, disk=disk)
        await node.handlers[BLOCKDEV_REMOVE.name](args, CALL)
    assert not path(node, 0).parent.exists()


@pytest.mark.parametrize("number", range(4))
def test_full_disk_changes_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Two images are copied out, and back; one of these copies fails."""
    images = [ImageOfScript(str(tmp_path / name), MIB) for name in ("a", "b")]
    for one in images:
        with Path(one.path).open("wb") as file:
            write_empty_image(file.fileno(), MIB)
        qemu_io(Path(one.path), "write -P 9 0 64k")
    before = [Path(one.path).read_bytes() for one in images]
    real, counted = image_scripts._copy, iter(range(4))

    def copy(source: EndOrder, sink: EndOrder, size: int) -> None:
        real(source, sink, size)
        if next(counted) == number:
            raise GanetiError("No space left on device")

    monkeypatch.setattr(image_scripts, "_copy", copy)
    script = ["/bin/sh", "-c", 'for one; do echo new >"$one"; truncate -s 1M "$one"; done', "sh"]
    with pytest.raises(GanetiError, match="No space left"):
        image_scripts.run(images, [*script, *(one.raw for one in images)])
    assert [Path(one.path).read_bytes() for one in images] == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "b"]
