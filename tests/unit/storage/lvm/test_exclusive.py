"""Exclusive storage: which physical volumes a disk gets for itself, and what shares one all the same."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.disk_templates import StorageUnit
from ganeti.storage.lvm.exclusive import devices_alone
from ganeti.storage.lvm.groups import VolumeGroups
from ganeti.storage.lvm.reports import Physical
from tests.support.model_lvm import MIB, ModelLvm, ModelPhysical
from tests.unit.storage.lvm.test_volume import KEY, OTHER, SPEC, UUID, disk

UNIT = StorageUnit(kind="lvm-vg", key="xenvg")
ALONE = replace(SPEC, exclusive=True)
NEXT = replace(ALONE, uuid=OTHER, logical_id=("xenvg", "other"))


@pytest.fixture
def model(tmp_path: Path) -> ModelLvm:
    made = ModelLvm(tmp_path)
    for name in ("/dev/sdb", "/dev/sdc"):
        made.devices[name] = ModelPhysical("xenvg", 16 * MIB)
    return made


async def test_a_disk_has_physical_volumes_for_itself(model: ModelLvm) -> None:
    await disk(model, ALONE).create(8)
    assert model.volumes[KEY].on == ("/dev/sdb",)
    await disk(model, NEXT).create(8)
    assert model.volumes["xenvg", "other"].on == ("/dev/sdc",)
    await disk(model, ALONE).grow(32)
    assert model.volumes[KEY].on == ("/dev/sdb", "/dev/sda")
    model.devices["/dev/sda"].used = 32 * MIB
    with pytest.raises(StorageError, match="too few unused physical volumes"):
        await disk(model, replace(NEXT, uuid=UUID[:-1] + "7", logical_id=("xenvg", "x"))).create(8)


async def test_a_disk_lies_on_as_many_as_it_has_spindles_and_never_on_others(
    model: ModelLvm,
) -> None:
    two = replace(ALONE, params={"spindles": 2})
    await disk(model, two).create(24)
    assert model.volumes[KEY].on == ("/dev/sdb", "/dev/sdc")
    assert model.volumes[KEY].stripes == ("2", "64k")
    assert await disk(model, two).spindles() == 2
    assert await disk(model, SPEC).spindles() == 0
    await disk(model, two).grow(32)
    assert model.volumes[KEY].on == ("/dev/sdb", "/dev/sdc")
    with pytest.raises(StorageError, match="its 2 physical volumes are too small for 40 MiB"):
        await disk(model, two).grow(40)
    with pytest.raises(StorageError, match="has 1 unused physical volumes of at least 4 MiB"):
        await disk(model, replace(NEXT, params={"spindles": 2})).create(8)
    # Where disks share devices nothing of that is so.
    shared = replace(NEXT, exclusive=False, params={"spindles": 2})
    await disk(model, shared).create(8)
    assert model.volumes["xenvg", "other"].on == ()


@pytest.mark.parametrize(
    ("sizes", "wanted", "spindles", "chosen"),
    [
        ({"a": 8, "b": 4, "c": 4}, 8, 2, ["b", "c"]),
        ({"a": 8, "b": 4, "c": 16}, 16, 2, ["a", "c"]),
        ({"a": 8, "b": 4, "c": 16}, 16, 1, ["c"]),
        ({"a": 8, "b": 4, "c": 16}, 3, 3, ["b", "a", "c"]),
        ({"a": 8, "b": 4, "c": 16}, 15, 3, None),
        ({"a": 8, "b": 4, "c": 16}, 32, 1, None),
    ],
)
def test_the_smallest_that_are_large_enough_are_chosen(
    sizes: dict[str, int], wanted: int, spindles: int, chosen: list[str] | None
) -> None:
    devices = [Physical(name, "vg", size, size, 0, "a--") for name, size in sizes.items()]
    used = Physical("used", "vg", 64, 32, 32, "a--")
    closed, gone = Physical("closed", "vg", 64, 64, 0, "---"), Physical("", "vg", 64, 64, 0, "a-m")
    other = Physical("other", "vg2", 64, 64, 0, "a--")
    everything = [*devices, used, closed, gone, other]
    if chosen is None:
        with pytest.raises(StorageError, match="but needs"):
            devices_alone(everything, "vg", wanted, spindles=spindles)
    else:
        assert devices_alone(everything, "vg", wanted, spindles=spindles) == chosen


async def test_an_adopted_volume_shares_nothing_and_has_its_spindles(model: ModelLvm) -> None:
    model.add("xenvg", "data1", 8 * MIB, on=("/dev/sdb", "/dev/sdc"))
    with pytest.raises(StorageError, match=r"uses 2 physical volumes: pass spindles=2"):
        await disk(model, ALONE).adoptable_mib("data1")
    two = replace(ALONE, params={"spindles": 2})
    assert await disk(model, two).adoptable_mib("data1") == 8
    model.add("xenvg", "data2", 4 * MIB, on=("/dev/sdc",))
    with pytest.raises(StorageError, match="it shares physical volumes with data2"):
        await disk(model, two).adoptable_mib("data1")


async def test_a_node_reports_how_many_are_free_and_which_are_shared(model: ModelLvm) -> None:
    groups = VolumeGroups(model.lvm)
    model.devices["/dev/sda"].size = 16 * MIB
    await disk(model, replace(ALONE, params={"spindles": 2})).create(8)
    space = await groups.space(Paths(), UNIT)
    assert (space.devices, space.free_devices) == (3, 1)
    tags = [f"ganeti.snapshot.{UUID}"]
    model.add("xenvg", "snap", 4 * MIB, tags=tags, on=model.volumes[KEY].on[:1])
    assert await groups.sharing(Paths(), UNIT) == []
    model.add("xenvg", "data", 4 * MIB, on=model.volumes[KEY].on[1:])
    [wrong] = await groups.sharing(Paths(), UNIT)
    assert f"is shared by {KEY[1]}, data" in wrong
    model.devices["/dev/sda"].size = 32 * MIB
    assert "have from 16 to 32 MiB" in (await groups.sharing(Paths(), UNIT))[1]
    assert await groups.sharing(Paths(), StorageUnit(kind="lvm-vg", key="none")) == []
