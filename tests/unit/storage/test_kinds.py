"""What a node says about the room for disks."""

import os
from pathlib import Path

import pytest

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.disk_templates import DISK_TEMPLATES, StorageUnit, storage_facts
from ganeti.storage.kinds import KINDS, storage_kind, storage_problems

ROOT = "/srv/ganeti/file-storage"
HERE = StorageUnit(kind="file", key=ROOT)
OTHER = StorageUnit(kind="file", key="/srv/other")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path)
    paths.etc.mkdir(parents=True)
    paths.below(ROOT).mkdir(parents=True)
    paths.file_storage_paths.write_text(f"{ROOT}\n")
    return paths


def test_help_texts_name_every_kind() -> None:
    page = (Path(__file__).parents[3] / "docs" / "man" / "gnt-node.md").read_text()
    lines = [line for line in page.splitlines() if "kind of storage: " in line]
    assert lines
    assert [name for name in KINDS for line in lines if name not in line] == []


async def test_the_space_is_that_of_the_file_system_in_mib(paths: Paths) -> None:
    space = await storage_kind(HERE).space(paths, HERE)
    real = os.statvfs(paths.below(ROOT))
    assert space.unit == HERE
    assert space.total == real.f_blocks * real.f_frsize // 2**20
    assert 0 < space.free <= space.total


async def test_a_directory_that_is_not_allowed_has_no_space(paths: Paths) -> None:
    with pytest.raises(StorageError, match="not below a directory"):
        await storage_kind(OTHER).space(paths, OTHER)


async def test_problems_are_bad_lines_of_the_list_and_unusable_directories(paths: Paths) -> None:
    paths.file_storage_paths.write_text(f"{ROOT}\n/etc\n")
    problems = await storage_problems(
        paths, [HERE, StorageUnit(kind="sharedfile", key="/srv/missing")]
    )
    assert len(problems) == 2
    assert "/etc belongs to the system" in problems[0]
    assert problems[1].startswith("sharedfile storage: /srv/missing is not below")


async def test_a_good_node_has_no_problems(paths: Paths) -> None:
    assert await storage_problems(paths, [HERE]) == []


async def test_files_of_disks_are_listed_with_their_paths_and_sizes(paths: Paths) -> None:
    inner = paths.below(ROOT) / "web1.example.com"
    inner.mkdir()
    (inner / "d0").write_bytes(bytes(3 * 2**20 + 1))
    (paths.below(ROOT) / "lost").symlink_to(inner / "d0")
    assert [
        (one.unit, one.name, one.size) for one in await storage_kind(HERE).disks(paths, HERE)
    ] == [
        (HERE, f"{ROOT}/lost", 0),
        (HERE, f"{ROOT}/web1.example.com/d0", 3),
    ]


@pytest.mark.requirement("S2")
async def test_directories_of_instances_are_not_storage_units(paths: Paths) -> None:
    for name in ("web1.example.com", "fast", "fast/web2.example.com"):
        (paths.below(ROOT) / name).mkdir()
    for name in ("web1.example.com", "fast/web2.example.com"):
        (paths.below(ROOT) / name / "d0").touch()
    units = await storage_kind(HERE).units(paths)
    assert [one.name for one in units] == [ROOT, f"{ROOT}/fast"]


async def test_a_directory_that_is_not_there_has_no_files(paths: Paths) -> None:
    paths.below(ROOT).rmdir()
    assert await storage_kind(HERE).disks(paths, HERE) == []
    with pytest.raises(StorageError, match="not below a directory"):
        await storage_kind(OTHER).disks(paths, OTHER)


def test_every_template_that_is_made_here_has_its_kind_of_storage() -> None:
    found = {storage_facts(row) for row in DISK_TEMPLATES.values()}
    assert {facts.kind for facts in found if facts} <= KINDS.keys()
    with pytest.raises(StorageError, match="no storage of kind 'tape' exists"):
        storage_kind(StorageUnit(kind="tape", key="x"))
