"""The allow-list of directories for disks, and the walk below it (A41)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.storage.confinement import AllowedDirectories, DirectoryMissing, why_refused

ROOT = "/srv/ganeti/file-storage"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A node that allows ROOT, which exists."""
    paths = Paths(tmp_path)
    paths.etc.mkdir(parents=True)
    paths.file_storage_paths.write_text(f"# where disks go\n{ROOT}/\n\n")
    paths.below(ROOT).mkdir(parents=True)
    return paths


def enter_and_write(paths: Paths, path: str) -> None:
    with AllowedDirectories.read(paths, shared=False).enter(path, make=True) as place:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        os.close(os.open(place.name, flags, dir_fd=place.directory))


def open_existing(paths: Paths, path: str) -> None:
    with AllowedDirectories.read(paths, shared=False).enter(path) as place:
        os.close(place.open_file(os.O_RDWR))


def test_a_path_below_an_allowed_directory_is_entered_and_its_directory_made_private(
    paths: Paths,
) -> None:
    enter_and_write(paths, f"{ROOT}/web1/disk0")
    directory = paths.below(f"{ROOT}/web1")
    assert (directory / "disk0").is_file()
    assert directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.requirement("F37")
def test_without_the_list_nothing_is_allowed(paths: Paths) -> None:
    paths.file_storage_paths.unlink()
    with pytest.raises(StorageError, match="not below a directory that this node allows"):
        enter_and_write(paths, f"{ROOT}/web1/disk0")


@pytest.mark.requirement("A41", "G24")
@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/srv/ganeti/file-storage2/disk0",
        f"{ROOT}/../../../etc/passwd",
        f"{ROOT}/web1/../../x",
        f"{ROOT}/./disk0",
        f"{ROOT}/web1/disk\n0",
        f"{ROOT}/web1/disk\x000",
        "srv/ganeti/file-storage/disk0",
        "",
        f"/{ROOT}/disk0",
        ROOT,
        f"{ROOT}/",
    ],
)
def test_a_path_that_is_not_below_an_allowed_directory_is_refused(paths: Paths, path: str) -> None:
    before = sorted(paths.root.rglob("*"))
    with pytest.raises(StorageError):
        enter_and_write(paths, path)
    assert sorted(paths.root.rglob("*")) == before


@pytest.mark.requirement("A41")
@pytest.mark.parametrize(
    "entry",
    [
        *("/", "/bin", "/sbin", "/lib", "/lib64", "/usr", "/usr/local/disks", "/usr/lib/x"),
        *("/boot", "/etc", "/etc/ganeti", "/dev", "/dev/shm", "/proc", "/sys/kernel"),
        *("/home", "/root", "/var", "/run", "/tmp", "/var/lib", "/var/lib/ganeti"),
        *("/var/lib/ganeti/disks", "/srv/../etc", "/srv/./x", "srv/disks", "disks"),
    ],
)
def test_forbidden_entries_of_the_list_are_not_used_and_reported(paths: Paths, entry: str) -> None:
    paths.file_storage_paths.write_text(f"{entry}\n/srv/fine\n")
    allowed = AllowedDirectories.read(paths, shared=False)
    assert allowed.entries == ("/srv/fine",)
    assert len(allowed.problems) == 1
    assert entry in allowed.problems[0]


@pytest.mark.parametrize("entry", ["/srv", "/home/disks", "/mnt/x", "/var/disks", "/libx"])
def test_ordinary_places_may_be_allowed(entry: str) -> None:
    assert why_refused(entry) is None


@pytest.mark.requirement("A41")
def test_a_symlink_planted_as_a_directory_is_refused(paths: Paths, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    paths.below(f"{ROOT}/web1").symlink_to(outside)
    with pytest.raises(StorageError, match="web1 is not a real directory"):
        enter_and_write(paths, f"{ROOT}/web1/disk0")
    assert list(outside.iterdir()) == []


@pytest.mark.requirement("A41")
def test_a_symlink_planted_as_the_file_is_refused(paths: Paths, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("data of somebody")
    paths.below(f"{ROOT}/web1").mkdir()
    paths.below(f"{ROOT}/web1/disk0").symlink_to(victim)
    with pytest.raises(StorageError, match="not a regular file"):
        open_existing(paths, f"{ROOT}/web1/disk0")
    with pytest.raises(FileExistsError):
        enter_and_write(paths, f"{ROOT}/web1/disk0")


@pytest.mark.requirement("A41")
def test_a_directory_swapped_for_a_symlink_after_it_was_opened_changes_nothing(
    paths: Paths, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "disk0").write_text("data of somebody")
    enter_and_write(paths, f"{ROOT}/web1/disk0")
    directory = paths.below(f"{ROOT}/web1")
    with AllowedDirectories.read(paths, shared=False).enter(f"{ROOT}/web1/disk0") as place:
        directory.rename(directory.with_name("moved"))
        directory.symlink_to(outside)
        os.unlink(place.name, dir_fd=place.directory)
        place.remove_directory_if_empty()
    assert (outside / "disk0").read_text() == "data of somebody"
    assert not directory.with_name("moved").joinpath("disk0").exists()


@pytest.mark.requirement("A41")
@pytest.mark.parametrize("kind", ["fifo", "device", "directory", "hard link"])
def test_what_is_no_plain_file_is_refused(paths: Paths, tmp_path: Path, kind: str) -> None:
    directory = paths.below(f"{ROOT}/web1")
    directory.mkdir()
    disk = directory / "disk0"
    if kind == "fifo":
        os.mkfifo(disk)
    elif kind == "directory":
        disk.mkdir()
    elif kind == "hard link":
        (tmp_path / "other").write_text("data of somebody")
        disk.hardlink_to(tmp_path / "other")
    else:
        _as_root(lambda: os.mknod(disk, 0o060600, os.makedev(7, 250)))
    with pytest.raises(StorageError, match=r"regular file|hard links"):
        open_existing(paths, f"{ROOT}/web1/disk0")


@pytest.mark.requirement("A41")
@pytest.mark.parametrize("where", ["web1", "web1/disk0"])
def test_a_bind_mount_inside_an_allowed_directory_is_refused(
    paths: Paths, tmp_path: Path, where: str
) -> None:
    enter_and_write(paths, f"{ROOT}/web1/disk0")
    target = paths.below(f"{ROOT}/{where}")
    source = tmp_path / "source"
    if target.is_dir():
        source.mkdir()
        (source / "disk0").write_text("data of somebody")
    else:
        source.write_text("data of somebody")
    with _bound(source, target), pytest.raises(StorageError, match="mount point"):
        open_existing(paths, f"{ROOT}/web1/disk0")


@pytest.mark.requirement("A41")
def test_an_allowed_directory_that_leads_into_the_system_is_refused(paths: Paths) -> None:
    paths.below("/etc/secrets").mkdir()
    paths.below(ROOT).rmdir()
    paths.below(ROOT).symlink_to(paths.below("/etc/secrets"))
    with pytest.raises(StorageError, match="/etc belongs to the system"):
        enter_and_write(paths, f"{ROOT}/web1/disk0")


@pytest.mark.requirement("A41")
def test_an_allowed_directory_that_leads_out_of_a_virtual_node_is_refused(
    paths: Paths, tmp_path_factory: pytest.TempPathFactory
) -> None:
    paths.below(ROOT).rmdir()
    paths.below(ROOT).symlink_to(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(StorageError, match="leads outside"):
        enter_and_write(paths, f"{ROOT}/web1/disk0")


@pytest.mark.parametrize("where", [ROOT, f"{ROOT}/web1"])
def test_a_directory_that_everybody_can_write_is_refused(paths: Paths, where: str) -> None:
    directory = paths.below(where)
    directory.mkdir(exist_ok=True)
    directory.chmod(0o777)
    with pytest.raises(StorageError, match="is world-writable"):
        enter_and_write(paths, f"{ROOT}/web1/disk0")


def test_a_directory_of_another_user_is_refused(paths: Paths) -> None:
    directory = paths.below(f"{ROOT}/web1")
    directory.mkdir()
    _as_root(lambda: os.chown(directory, 12345, -1))
    with pytest.raises(StorageError, match="belongs to user 12345"):
        enter_and_write(paths, f"{ROOT}/web1/disk0")


def test_a_missing_allowed_directory_is_never_made(paths: Paths) -> None:
    shutil.rmtree(paths.below(ROOT))
    with pytest.raises(DirectoryMissing, match="create or mount it"):
        enter_and_write(paths, f"{ROOT}/web1/disk0")
    assert not paths.below(ROOT).exists()


def test_what_is_shared_is_not_moved_below_the_prefix_of_a_virtual_node(
    paths: Paths, disk_path: Path
) -> None:
    paths.file_storage_paths.write_text(f"{disk_path}\n")
    with AllowedDirectories.read(paths, shared=True).enter(f"{disk_path}/disk0") as place:
        os.close(os.open(place.name, os.O_CREAT | os.O_WRONLY, dir_fd=place.directory))
    assert (disk_path / "disk0").exists()


def test_an_allowed_directory_inside_another_is_separate(paths: Paths) -> None:
    inner = f"{ROOT}/fast"
    paths.below(inner).mkdir()
    paths.file_storage_paths.write_text(f"{ROOT}\n{inner}\n")
    with AllowedDirectories.read(paths, shared=False).enter(f"{inner}/disk0") as place:
        assert place.above is None


def _as_root(act: object) -> None:
    """Do what needs privileges, or skip."""
    assert callable(act)
    try:
        act()
    except PermissionError:
        pytest.skip("needs the privileges of root")


class _bound:  # noqa: N801 -- used as a context manager, like contextlib's
    """A bind mount for the time of a block."""

    def __init__(self, source: Path, target: Path) -> None:
        self._words = ["mount", "--bind", str(source), str(target)]
        self._target = target

    def __enter__(self) -> None:
        if subprocess.run(self._words, capture_output=True, check=False).returncode:
            pytest.skip("needs the right to mount")

    def __exit__(self, *exc: object) -> None:
        subprocess.run(["umount", str(self._target)], check=True)
