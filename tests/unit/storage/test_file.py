"""Disks in files: template `file` and `sharedfile`."""

import errno
import os
from pathlib import Path

import msgspec
import pytest

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.storage.file import MIB, FileDisk
from ganeti.storage.shared_file import SharedFileDisk
from tests.unit.storage.conftest import PATH, ROOT

SPEC = DiskSpec(
    uuid="11111111-0000-4000-8000-000000000000",
    index=0,
    size=3,
    template="file",
    logical_id=("loop", PATH),
)
OTHER = msgspec.structs.replace(SPEC, uuid="22222222-0000-4000-8000-000000000000")


@pytest.fixture
def no_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without extended attributes."""

    def unsupported(*args: object) -> bytes:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "setxattr", unsupported)
    monkeypatch.setattr(os, "getxattr", unsupported)


@pytest.mark.requirement("G12")
async def test_a_new_disk_has_its_size_reads_as_zeros_and_is_private(
    paths: Paths, where: Path
) -> None:
    disk = FileDisk(paths, SPEC)
    await disk.create(3)
    assert disk.path == str(where)
    assert where.read_bytes() == bytes(3 * MIB)
    assert where.stat().st_mode & 0o777 == 0o600
    assert where.parent.stat().st_mode & 0o777 == 0o700
    assert await disk.size_mib() == 3


async def test_a_new_disk_has_its_space_reserved(paths: Paths, where: Path) -> None:
    await FileDisk(paths, SPEC).create(3)
    assert where.stat().st_blocks * 512 >= 3 * MIB


async def test_creating_again_succeeds_and_keeps_the_data(paths: Paths, where: Path) -> None:
    disk = FileDisk(paths, SPEC)
    await disk.create(3)
    with where.open("r+b") as data:
        data.write(b"written since")
    await disk.create(3)
    assert where.read_bytes().startswith(b"written since")


async def test_a_creation_that_was_cut_off_is_completed(paths: Paths, where: Path) -> None:
    where.parent.mkdir(mode=0o700)
    where.touch(0o600)
    await FileDisk(paths, SPEC).create(3)
    assert where.read_bytes() == bytes(3 * MIB)


async def test_creating_with_another_size_is_refused_and_keeps_the_disk(
    paths: Paths, where: Path
) -> None:
    await FileDisk(paths, SPEC).create(3)
    with pytest.raises(StorageError, match="instead of 4194304"):
        await FileDisk(paths, SPEC).create(4)
    assert where.stat().st_size == 3 * MIB


@pytest.mark.requirement("G12")
async def test_a_left_over_disk_of_another_instance_is_neither_taken_nor_removed(
    paths: Paths, where: Path
) -> None:
    await FileDisk(paths, OTHER).create(3)
    with where.open("r+b") as data:
        data.write(b"secret")
    disk = FileDisk(paths, SPEC)
    with pytest.raises(StorageError, match="a file with other data exists there"):
        await disk.create(3)
    await disk.remove()
    with pytest.raises(StorageError, match="belongs to another disk"):
        await disk.open(DiskRole.PRIMARY)
    assert await disk.size_mib() is None
    assert where.read_bytes().startswith(b"secret")


@pytest.mark.requirement("G12")
@pytest.mark.parametrize("position", [0, 2 * MIB, 3 * MIB - 1])
async def test_an_unmarked_file_that_holds_data_is_not_taken_for_a_new_disk(
    paths: Paths, where: Path, no_marks: None, position: int
) -> None:
    await FileDisk(paths, OTHER).create(3)
    with where.open("r+b") as data:
        data.seek(position)
        data.write(b"x")
    with pytest.raises(StorageError, match="a file with other data exists there"):
        await FileDisk(paths, SPEC).create(3)
    assert where.exists()


async def test_without_extended_attributes_all_operations_work(
    paths: Paths, where: Path, no_marks: None
) -> None:
    disk = FileDisk(paths, SPEC)
    await disk.create(3)
    await disk.create(3)
    await disk.open(DiskRole.PRIMARY)
    assert await disk.size_mib() == 3
    await disk.remove()
    assert not where.exists()


async def test_removing_takes_the_empty_directory_along_and_may_be_repeated(
    paths: Paths, where: Path
) -> None:
    disk = FileDisk(paths, SPEC)
    await disk.create(3)
    await disk.remove()
    assert not where.parent.exists()
    assert paths.below(ROOT).is_dir()
    await disk.remove()
    assert await disk.size_mib() is None


async def test_removing_one_of_two_disks_keeps_the_directory(paths: Paths, where: Path) -> None:
    second = msgspec.structs.replace(OTHER, index=1, logical_id=("loop", f"{ROOT}/web1/disk1"))
    await FileDisk(paths, SPEC).create(1)
    await FileDisk(paths, second).create(1)
    await FileDisk(paths, SPEC).remove()
    assert [one.name for one in where.parent.iterdir()] == ["disk1"]


@pytest.mark.requirement("A41")
async def test_removing_never_follows_a_link(paths: Paths, where: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("data of somebody")
    where.parent.mkdir(mode=0o700)
    where.symlink_to(victim)
    with pytest.raises(StorageError, match="not a regular file"):
        await FileDisk(paths, SPEC).remove()
    assert victim.exists()
    assert where.is_symlink()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
async def test_a_full_disk_shows_at_creation_and_nothing_remains(paths: Paths, code: int) -> None:
    def full(descriptor: int, size: int) -> None:
        raise OSError(code, os.strerror(code))

    with pytest.raises(StorageError, match=r"disk 0 .*no space left: 3 MiB are needed"):
        await FileDisk(paths, SPEC, preallocate=full).create(3)
    assert list(paths.below(ROOT).iterdir()) == []


async def test_more_than_is_free_is_refused_even_where_files_are_sparse(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs(paths.root)
    free = list(real)
    free[4] = 2 * MIB // real.f_frsize
    monkeypatch.setattr(os, "fstatvfs", lambda descriptor: os.statvfs_result(free))
    with pytest.raises(StorageError, match="3 MiB are needed, 2 MiB are free"):
        await FileDisk(paths, SPEC, preallocate=lambda descriptor, size: None).create(3)
    assert list(paths.below(ROOT).iterdir()) == []


async def test_a_sparse_file_serves_where_nothing_can_be_reserved(
    paths: Paths, where: Path
) -> None:
    await FileDisk(paths, SPEC, preallocate=lambda descriptor, size: None).create(3)
    assert where.stat().st_size == 3 * MIB
    assert where.stat().st_blocks == 0


@pytest.mark.parametrize("call", ["ftruncate", "fsync", "open"])
async def test_a_failure_at_any_step_of_creation_leaves_nothing(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real_open = os.open

    def broken(*args: object, **kwargs: object) -> int:
        if call == "open" and args[0] != "disk0":
            return real_open(*args, **kwargs)  # type: ignore[arg-type]  # passes everything on
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, call, broken)
    with pytest.raises(StorageError, match="Input/output error"):
        await FileDisk(paths, SPEC).create(3)
    monkeypatch.undo()
    assert list(paths.below(ROOT).iterdir()) == []


async def test_assembling_names_the_fault(paths: Paths, where: Path) -> None:
    disk = FileDisk(paths, SPEC)
    with pytest.raises(
        StorageError, match=r"cannot use disk 0 .*the directory web1 does not exist"
    ):
        await disk.open(DiskRole.PRIMARY)
    await disk.create(3)
    await disk.open(DiskRole.PRIMARY)
    os.truncate(where, 2 * MIB)
    with pytest.raises(StorageError, match="has 2 MiB instead of 3 MiB"):
        await disk.open(DiskRole.PRIMARY)
    where.unlink()
    with pytest.raises(StorageError, match=r"cannot use disk 0 .*No such file"):
        await disk.open(DiskRole.PRIMARY)


@pytest.mark.parametrize("size", [0, -1])
async def test_a_size_that_is_none_is_refused(paths: Paths, size: int) -> None:
    with pytest.raises(StorageError, match="is not possible"):
        await FileDisk(paths, SPEC).create(size)


@pytest.mark.parametrize(
    "logical_id", [(), ("loop",), ("loop", 5), ("blk", PATH), ("loop", PATH, "x"), (PATH, "loop")]
)
def test_a_logical_id_of_another_form_is_refused(
    paths: Paths, logical_id: tuple[str | int, ...]
) -> None:
    with pytest.raises(StorageError, match="template file needs"):
        FileDisk(paths, msgspec.structs.replace(SPEC, logical_id=logical_id))


async def test_two_virtual_nodes_see_the_same_shared_disk(
    disk_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spec = msgspec.structs.replace(
        SPEC, template="sharedfile", logical_id=("loop", f"{disk_path}/web1/disk0")
    )
    disks = []
    for name in ("node1", "node2"):
        paths = Paths(tmp_path_factory.mktemp(name))
        paths.etc.mkdir(parents=True)
        paths.file_storage_paths.write_text(f"{disk_path}\n")
        disks.append(SharedFileDisk(paths, spec))
    await disks[0].create(3)
    await disks[1].open(DiskRole.PRIMARY)
    assert disks[0].path == disks[1].path == f"{disk_path}/web1/disk0"
    await disks[1].remove()
    assert await disks[0].size_mib() is None


async def test_a_disk_grows_with_its_space_reserved_and_reads_as_zeros_there(
    paths: Paths, where: Path
) -> None:
    disk = FileDisk(paths, SPEC)
    await disk.create(3)
    with where.open("r+b") as data:
        data.write(b"x" * 3 * MIB)
    for _ in range(2):
        await disk.grow(5)
        assert where.read_bytes() == b"x" * 3 * MIB + bytes(2 * MIB)
        assert where.stat().st_blocks * 512 >= 5 * MIB
    await disk.grow(4)  # never smaller
    assert await disk.size_mib() == 5


@pytest.mark.requirement("G12")
async def test_a_disk_that_is_gone_short_or_of_another_instance_does_not_grow(
    paths: Paths, where: Path
) -> None:
    disk = FileDisk(paths, SPEC)
    with pytest.raises(StorageError, match="cannot grow disk 0"):
        await disk.grow(5)
    await FileDisk(paths, OTHER).create(3)
    with pytest.raises(StorageError, match="belongs to another disk"):
        await disk.grow(5)
    assert where.stat().st_size == 3 * MIB
    where.unlink()
    await disk.create(3)
    os.truncate(where, MIB)
    with pytest.raises(StorageError, match="data is missing"):
        await disk.grow(5)


async def test_a_disk_for_whose_growth_there_is_no_space_stays_as_it_was(
    paths: Paths, where: Path
) -> None:
    await FileDisk(paths, SPEC).create(3)

    def full(_descriptor: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with pytest.raises(StorageError, match="no space left: 2 MiB are needed"):
        await FileDisk(paths, SPEC, preallocate=full).grow(5)
    assert where.stat().st_size == 3 * MIB


# --- snapshots ---


def _copying(target: int, source: int) -> None:
    """What a file system with shared blocks does, at greater cost."""
    os.ftruncate(target, 0)
    os.pwrite(target, os.pread(source, os.fstat(source).st_size, 0), 0)


def _unable(_target: int, _source: int) -> None:
    raise OSError(errno.EOPNOTSUPP, "Operation not supported")


async def test_a_snapshot_is_a_file_beside_the_disk_that_a_rollback_keeps(
    paths: Paths, where: Path
) -> None:
    disk = FileDisk(paths, SPEC, clone=_copying)
    await disk.create(3)
    assert await disk.snapshots.can_take()
    where.write_bytes(b"old" + bytes(3 * MIB - 3))
    for _ in range(2):
        await disk.snapshots.make("s1")
    assert await disk.snapshots.take("s2") == f"{where}.s2"
    where.write_bytes(b"new" + bytes(3 * MIB - 3))
    await disk.snapshots.roll_back("s1")
    assert where.read_bytes()[:4] == b"old\0"
    assert sorted(one.name for one in where.parent.iterdir()) == ["disk0", "disk0.s1", "disk0.s2"]
    assert where.with_name("disk0.s1").stat().st_mode & 0o777 == 0o600
    for name in ("s1", "s2", "s2"):
        await disk.snapshots.drop(name, unsure=False)
    assert [one.name for one in where.parent.iterdir()] == ["disk0"]
    await disk.remove()
    await disk.snapshots.drop("s1")
    assert not where.parent.exists()


async def test_a_file_system_without_shared_blocks_is_reported_and_left_alone(
    paths: Paths, where: Path
) -> None:
    disk = FileDisk(paths, SPEC, clone=_unable)
    await disk.create(3)
    assert not await disk.snapshots.can_take()
    with pytest.raises(StorageError, match="XFS and btrfs do"):
        await disk.snapshots.make("s1")
    assert [one.name for one in where.parent.iterdir()] == ["disk0"]


@pytest.mark.requirement("G12")
async def test_other_files_are_neither_snapshots_nor_removed(paths: Paths, where: Path) -> None:
    disk = FileDisk(paths, SPEC, clone=_copying)
    await disk.create(3)
    mine = where.with_name("disk0.s1")
    mine.write_bytes(bytes(3 * MIB))
    for act in (disk.snapshots.make("s1"), disk.snapshots.roll_back("s1")):
        with pytest.raises(StorageError, match="is not its snapshot"):
            await act
    await disk.snapshots.drop("s1")
    assert mine.exists()
    mine.unlink()
    mine.symlink_to("/etc/passwd")
    with pytest.raises(StorageError, match="not a regular file"):
        await disk.snapshots.roll_back("s1")
    with pytest.raises(StorageError, match="its snapshot s9 does not exist"):
        await disk.snapshots.roll_back("s9")
    await disk.snapshots.make("s2")
    os.truncate(where, 2 * MIB)
    with pytest.raises(StorageError, match="has 2097152 bytes, its snapshot 3145728"):
        await disk.snapshots.roll_back("s2")
