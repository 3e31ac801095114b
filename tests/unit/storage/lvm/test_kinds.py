"""Volume groups and physical volumes as storage units."""

from pathlib import Path

import pytest

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.base.process import CommandFailed, Completed
from ganeti.model.disk_templates import StorageUnit
from ganeti.storage.lvm.groups import VolumeGroups
from ganeti.storage.lvm.physical import PhysicalVolumes
from ganeti.storage.lvm.pools import ThinPools
from ganeti.storage.lvm.tools import Lvm
from tests.support.model_lvm import MIB, ModelLvm, ModelPhysical

GROUP = StorageUnit(kind="lvm-vg", key="xenvg")


@pytest.fixture
def model(tmp_path: Path) -> ModelLvm:
    model = ModelLvm(tmp_path)
    model.devices["/dev/sdb"] = ModelPhysical("xenvg", 128 * MIB, used=8 * MIB)
    model.devices["/dev/sdc"] = ModelPhysical("", 64 * MIB)
    model.add("xenvg", "d1", 8 * MIB)
    return model


@pytest.mark.requirement("S2", "S3")
async def test_groups_are_listed_with_their_sizes(model: ModelLvm) -> None:
    kind = VolumeGroups(model.lvm)
    (one,) = await kind.units(Paths())
    assert (one.name, one.size, one.used, one.free) == ("xenvg", 384, 8, 376)
    assert (one.allocatable, one.problem) == (True, "")
    assert await kind.check(Paths(), "xenvg") == ""
    assert await kind.check(Paths(), "nosuch") == "nosuch does not exist"
    disks = await kind.disks(Paths(), GROUP)
    assert [(disk.unit, disk.name, disk.size) for disk in disks] == [(GROUP, "d1", 8)]
    assert await kind.disks(Paths(), StorageUnit(kind="lvm-vg", key="nosuch")) == []


@pytest.mark.requirement("S4")
async def test_what_is_closed_to_new_volumes_is_no_free_space(model: ModelLvm) -> None:
    groups, devices = VolumeGroups(model.lvm), PhysicalVolumes(model.lvm)
    assert (await groups.space(Paths(), GROUP)).free == 376
    await devices.set_allocatable(Paths(), "/dev/sda", allocatable=False)
    assert [(one.name, one.allocatable) for one in await devices.units(Paths())] == [
        ("/dev/sda", False),
        ("/dev/sdb", True),
    ]
    assert (await groups.space(Paths(), GROUP)).free == 120
    ran = len(model.acts())
    await devices.set_allocatable(Paths(), "/dev/sda", allocatable=False)
    assert len(model.acts()) == ran
    for path in ("/dev/sdc", "/dev/nosuch", "--force"):
        with pytest.raises(StorageError):
            await devices.set_allocatable(Paths(), path, allocatable=True)


@pytest.mark.requirement("S3", "S6")
async def test_a_group_that_lost_a_device_is_found_and_repaired(model: ModelLvm) -> None:
    kind = VolumeGroups(model.lvm)
    assert await kind.repair(Paths(), "xenvg") == []
    model.devices["/dev/sdb"].missing = True
    model.add("xenvg", "lost", partial=True)
    assert "lacks 1 physical volumes" in await kind.check(Paths(), "xenvg")
    assert "is missing" in await PhysicalVolumes(model.lvm).check(Paths(), "/dev/sdb")
    said = await kind.repair(Paths(), "xenvg")
    assert said == ["1 missing physical volumes were dropped", "volume xenvg/lost is lost"]
    assert model.acts()[-1] == "vgreduce"
    assert model.ran[-2][-2:] == ["--", "xenvg"]
    assert await kind.check(Paths(), "xenvg") == ""
    with pytest.raises(StorageError, match="volume group nosuch does not exist"):
        await kind.repair(Paths(), "nosuch")


async def test_a_group_that_is_not_there_has_no_space(model: ModelLvm) -> None:
    with pytest.raises(StorageError, match="volume group nosuch does not exist"):
        await VolumeGroups(model.lvm).space(Paths(), StorageUnit(kind="lvm-vg", key="nosuch"))


async def test_a_node_without_lvm_reports_what_to_install() -> None:
    async def missing(argv: list[str], **_given: object) -> Completed:
        done = Completed(tuple(argv), 127, b"", b"")
        raise CommandFailed(done, "cannot be started: No such file or directory")

    groups = VolumeGroups(Lvm(run=missing))  # type: ignore[arg-type] # a runner
    with pytest.raises(StorageError, match="install the package lvm2"):
        await groups.space(Paths(), StorageUnit(kind="lvm-vg", key="xenvg"))
    assert await groups.units(Paths()) == []


@pytest.mark.requirement("S7")
def test_the_kinds_know_nothing_of_each_other() -> None:
    import ganeti.storage.lvm.physical as devices
    from ganeti.storage.lvm import groups

    texts = [Path(str(module.__file__)).read_text("utf-8") for module in (groups, devices)]
    assert "storage.lvm.physical" not in texts[0]
    assert "storage.lvm.groups" not in texts[1]


POOL = StorageUnit(kind="lvm-thin", key="xenvg/thin")


@pytest.mark.requirement("S2", "S3")
async def test_thin_pools_are_units_of_their_own(model: ModelLvm) -> None:
    kind = ThinPools(model.lvm)
    assert await kind.units(Paths()) == []
    pool = model.add("xenvg", "thin", 64 * MIB, kind="t", percents=(25.0, 10.0))
    for name in ("t1", "t2"):
        model.add("xenvg", name, 40 * MIB, kind="V", pool="thin", tags=["ganeti.disk.x"])
    (one,) = await kind.units(Paths())
    assert (one.name, one.size, one.used, one.free) == ("xenvg/thin", 64, 16, 0)
    space = await kind.space(Paths(), POOL)
    assert (space.total, space.free, space.promised) == (64, 0, 80)
    disks = await kind.disks(Paths(), POOL)
    assert [(disk.unit, disk.name, disk.size) for disk in disks] == [
        (POOL, "t1", 40),
        (POOL, "t2", 40),
    ]
    assert [one.name for one in await VolumeGroups(model.lvm).disks(Paths(), GROUP)] == ["d1"]
    with pytest.raises(StorageError, match="thin pool xenvg/nosuch does not exist"):
        await kind.space(Paths(), StorageUnit(kind="lvm-thin", key="xenvg/nosuch"))
    assert await kind.problems(Paths()) == []
    pool.percents = (85.5, 10.0)
    (problem,) = await kind.problems(Paths())
    assert problem.startswith("thin pool xenvg/thin uses 85.5% of its data, and when it is full")
    assert "lvextend --size +SIZE xenvg/thin" in problem
    pool.percents = (10.0, 91.0)
    assert "lvextend --poolmetadatasize" in await kind.check(Paths(), "xenvg/thin")
    pool.partial = True
    assert "is missing" in await kind.check(Paths(), "xenvg/thin")
    for name in ("t1", "t2"):  # another's
        model.volumes["xenvg", name].tags.clear()
    assert await kind.problems(Paths()) == []
