"""What a node says about the room for disks."""

import os
from pathlib import Path

import pytest

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.disk_templates import FILE, SHARED_FILE
from ganeti.storage.space import directory_space, disk_files, storage_problems

ROOT = "/srv/ganeti/file-storage"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path)
    paths.etc.mkdir(parents=True)
    paths.below(ROOT).mkdir(parents=True)
    paths.file_storage_paths.write_text(f"{ROOT}\n")
    return paths


def test_the_space_is_that_of_the_file_system_in_mib(paths: Paths) -> None:
    space = directory_space(paths, FILE, ROOT)
    real = os.statvfs(paths.below(ROOT))
    assert (space.kind, space.name) == ("file", ROOT)
    assert space.total == real.f_blocks * real.f_frsize // 2**20
    assert 0 < space.free <= space.total


def test_a_directory_that_is_not_allowed_has_no_space(paths: Paths) -> None:
    with pytest.raises(StorageError, match="not below a directory"):
        directory_space(paths, FILE, "/srv/other")


def test_problems_are_bad_lines_of_the_list_and_unusable_directories(paths: Paths) -> None:
    paths.file_storage_paths.write_text(f"{ROOT}\n/etc\n")
    problems = storage_problems(paths, [(FILE, ROOT), (SHARED_FILE, "/srv/missing")])
    assert len(problems) == 2
    assert "/etc belongs to the system" in problems[0]
    assert problems[1].startswith("template sharedfile: /srv/missing is not below")


def test_a_good_node_has_no_problems(paths: Paths) -> None:
    assert storage_problems(paths, [(FILE, ROOT)]) == []


def test_files_of_disks_are_listed_with_their_paths_and_sizes(paths: Paths) -> None:
    inner = paths.below(ROOT) / "web1.example.com"
    inner.mkdir()
    (inner / "d0").write_bytes(bytes(3 * 2**20 + 1))
    (paths.below(ROOT) / "lost").symlink_to(inner / "d0")
    assert [(one.template, one.path, one.size) for one in disk_files(paths, FILE, ROOT)] == [
        ("file", f"{ROOT}/lost", 0),
        ("file", f"{ROOT}/web1.example.com/d0", 3),
    ]


def test_a_directory_that_is_not_there_has_no_files(paths: Paths) -> None:
    paths.below(ROOT).rmdir()
    assert disk_files(paths, FILE, ROOT) == []
    with pytest.raises(StorageError, match="not below a directory"):
        disk_files(paths, FILE, "/srv/other")
