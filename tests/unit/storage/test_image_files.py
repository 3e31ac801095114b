"""Disks in files that are images in the format qcow2."""

import os
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.base.process import Completed, run
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.protocols.qcow2 import CLUSTER
from ganeti.storage.file import MIB, FileDisk
from ganeti.storage.image_files import empty_image
from tests.unit.storage.conftest import PATH

pytestmark = pytest.mark.requirement("G12")

SPEC = DiskSpec(
    uuid="11111111-0000-4000-8000-000000000000",
    index=0,
    size=3,
    template="file",
    logical_id=("loop", PATH, "qcow2"),
    params={"format": "qcow2"},
)


def ran(*words: str | Path, cwd: Path | None = None) -> None:
    subprocess.run(words, check=True, capture_output=True, cwd=cwd)


def check(image: Path) -> None:
    ran("qemu-img", "check", "-q", "-f", "qcow2", image)


@pytest.mark.parametrize("size_mib", [1, 511, 513, 5 << 20])
async def test_new_image_has_its_size_reads_as_zeros_and_is_sound(
    paths: Paths, where: Path, size_mib: int
) -> None:
    if size_mib > 1 << 20:
        image = where.parent.parent / "large"
        image.write_bytes(b"".join(empty_image(size_mib * MIB)))
        check(image)
        return
    disk = FileDisk(paths, replace(SPEC, size=size_mib))
    await disk.create(size_mib)
    assert disk.image == str(where)
    assert await disk.size_mib() == size_mib
    assert where.stat().st_size <= 5 * CLUSTER
    check(where)
    raw = where.with_name("raw")
    ran("qemu-img", "convert", "-f", "qcow2", "-O", "raw", where, raw)
    assert raw.stat().st_size == size_mib * MIB
    assert raw.stat().st_blocks <= 8
    await disk.open(DiskRole.PRIMARY)
    await disk.create(size_mib)
    await disk.remove()
    assert not where.exists()
    assert await disk.size_mib() is None


async def test_bytes_of_an_image_are_refused(paths: Paths) -> None:
    disk = FileDisk(paths, SPEC)
    await disk.create(3)
    with pytest.raises(StorageError, match="image in the format qcow2, and this operation needs"):
        _ = disk.path


def test_unknown_format_is_refused(paths: Paths) -> None:
    with pytest.raises(StorageError, match="does not know the format 'vmdk'; known: raw, qcow2"):
        FileDisk(paths, replace(SPEC, params={"format": "vmdk"}))


@pytest.mark.parametrize(
    ("form", "logical_id"), [("qcow2", ("loop", PATH)), ("raw", ("loop", PATH, "qcow2"))]
)
def test_name_without_the_format_of_the_disk_is_refused(
    paths: Paths, form: str, logical_id: tuple[str, ...]
) -> None:
    with pytest.raises(StorageError, match="which template file needs"):
        FileDisk(paths, replace(SPEC, logical_id=logical_id, params={"format": form}))


async def test_growth_keeps_the_data_and_is_idempotent(paths: Paths, where: Path) -> None:
    disk = FileDisk(paths, SPEC)
    await disk.create(3)
    ran("qemu-io", "-f", "qcow2", "-c", "write -P 7 1M 64k", where)
    await disk.grow(700)
    await disk.grow(700)
    assert await disk.size_mib() == 700
    check(where)
    ran("qemu-io", "-f", "qcow2", "-c", "read -P 7 1M 64k", where)


async def test_growth_fails_clearly_and_changes_nothing(paths: Paths, where: Path) -> None:
    disk = FileDisk(paths, SPEC)
    await disk.create(3)
    before = where.read_bytes()

    async def locked(argv: Sequence[str], **options: Any) -> Completed:
        del argv
        return await run(["sh", "-c", 'echo Failed to get \\"write\\" lock >&2; exit 1'], **options)

    other = FileDisk(paths, SPEC, run=locked)
    with pytest.raises(StorageError, match=r"disk 0 .*: a program uses the image; stop the guest"):
        await other.grow(5)
    assert where.read_bytes() == before
    where.write_bytes(before[: CLUSTER // 2])
    await disk.grow(3)


@pytest.mark.parametrize(
    ("offset", "form", "value", "message"),
    [
        (0, ">I", 7, "no header"),
        (4, ">I", 1, "version 1"),
        (20, ">I", 8, "clusters of"),
        (24, ">Q", 0, "0 bytes"),
        (24, ">Q", 1 << 63, "bytes; accepted"),
        (32, ">I", 2, "encrypted"),
        (72, ">Q", 2, "corrupt"),
        (72, ">Q", 4, "another file"),
        (72, ">Q", 1 << 40, "unknown features"),
    ],
)
async def test_header_with_any_other_form_is_refused(
    paths: Paths, where: Path, offset: int, form: str, value: int, message: str
) -> None:
    disk = FileDisk(paths, SPEC)
    await disk.create(3)
    with where.open("r+b") as file:
        file.seek(offset)
        file.write(struct.pack(form, value))
    with pytest.raises(StorageError, match=f"cannot use disk 0 .*{message}"):
        await disk.open(DiskRole.PRIMARY)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-b", "other", "-F", "raw"], "it has a backing file"),
        (["-o", "data_file=data"], "data"),
    ],
)
async def test_image_that_names_another_file_is_refused_before_qemu_opens_it(
    paths: Paths, where: Path, options: list[str], message: str
) -> None:
    disk = FileDisk(paths, SPEC)
    await disk.create(3)
    mark = os.getxattr(where, "user.ganeti.disk")
    (where.parent / "other").write_bytes(bytes(3 * MIB))
    where.unlink()
    ran("qemu-img", "create", "-f", "qcow2", *options, where.name, "3M", cwd=where.parent)
    os.setxattr(where, "user.ganeti.disk", mark)
    where.chmod(0o600)
    before = where.read_bytes()
    for work in (
        disk.open(DiskRole.PRIMARY),
        disk.check_identity(),
        disk.grow(5),
        disk.size_mib(),
        disk.create(3),
    ):
        with pytest.raises(StorageError, match=f"cannot .* disk 0 .*{message}"):
            await work
    assert where.read_bytes() == before


async def test_raw_data_in_place_of_an_image_is_refused(paths: Paths, where: Path) -> None:
    raw = FileDisk(paths, replace(SPEC, logical_id=("loop", PATH), params={}))
    await raw.create(3)
    with pytest.raises(StorageError, match="no header of qcow2"):
        await FileDisk(paths, SPEC).open(DiskRole.PRIMARY)


async def test_header_that_a_guest_writes_into_a_raw_disk_changes_nothing(
    paths: Paths, where: Path
) -> None:
    disk = FileDisk(paths, replace(SPEC, logical_id=("loop", PATH), params={"format": "raw"}))
    await disk.create(3)
    with where.open("r+b") as file:
        file.write(empty_image(9 * MIB)[0])
    await disk.open(DiskRole.PRIMARY)
    assert await disk.size_mib() == 3


@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("crash", [False, True])
async def test_creation_that_fails_or_crashes_at_any_step_can_be_repeated(
    paths: Paths,
    where: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    step: int,
    crash: bool,
) -> None:
    done = [0]
    real: dict[str, Any] = {"ftruncate": os.ftruncate, "pwrite": os.pwrite, "fsync": os.fsync}

    def failing(name: str) -> Any:
        def work(*args: Any) -> Any:
            done[0] += 1
            if done[0] > step:
                raise OSError(5, "Input/output error")
            return real[name](*args)

        return work

    with monkeypatch.context() as patched:
        for name in real:
            patched.setattr(os, name, failing(name))
        if crash:
            patched.setattr(os, "unlink", lambda *_args, **_names: None)
        with pytest.raises(StorageError, match="Input/output error"):
            await FileDisk(paths, SPEC).create(3)
    assert where.exists() is crash
    if crash:
        os.removexattr(where, "user.ganeti.disk")  # as on a file system without attributes
    disk = FileDisk(paths, SPEC)
    await disk.create(3)
    check(where)
    assert await disk.size_mib() == 3


async def test_image_that_has_grown_since_is_rolled_back_to_the_length_of_its_snapshot(
    paths: Paths, where: Path
) -> None:
    """The disk in it has the same size all the time."""

    def clone_a_part(target: int, source: int) -> None:
        os.pwrite(target, os.pread(source, os.fstat(source).st_size, 0), 0)

    disk = FileDisk(paths, SPEC, clone=clone_a_part)
    await disk.create(3)
    empty = where.read_bytes()
    await disk.snapshots.make("s1")
    where.write_bytes(empty + b"clusters of a guest")
    await disk.snapshots.roll_back("s1")
    assert where.read_bytes() == empty
    where.write_bytes(b"no header" + empty[9:])
    with pytest.raises(StorageError, match="not an image that Ganeti made"):
        await disk.snapshots.roll_back("s1")
    where.unlink()
    other = FileDisk(paths, replace(SPEC, size=4), clone=clone_a_part)
    await other.create(4)
    with pytest.raises(StorageError, match="has 4194304 bytes, its snapshot 3145728"):
        await other.snapshots.roll_back("s1")
