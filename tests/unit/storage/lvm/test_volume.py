"""Disks that are logical volumes: made, grown, removed, with a failure at every command."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.storage.lvm import volume as volume_module
from ganeti.storage.lvm.volume import LogicalVolume
from tests.support.model_lvm import EXTENT, MIB, ModelDevices, ModelLvm, ModelPhysical

UUID = "11111111-0000-4000-8000-000000000000"
OTHER = "22222222-0000-4000-8000-000000000000"
NAME = "11111111-0000-4000-8000-00000000000f.disk0"
SPEC = DiskSpec(
    uuid=UUID, index=0, size=8, template="plain", logical_id=("xenvg", NAME), params={"stripes": 1}
)
KEY = ("xenvg", NAME)


@pytest.fixture
def model(tmp_path: Path) -> ModelLvm:
    return ModelLvm(tmp_path)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume_module, "BUSY_PAUSES_S", (0.0, 0.0))


def disk(model: ModelLvm, spec: DiskSpec = SPEC, **fields: Any) -> LogicalVolume:
    return LogicalVolume(Paths(), spec, lvm=model.lvm, devices=ModelDevices(model, **fields))


def content(model: ModelLvm, name: str = NAME) -> bytes:
    return model.file("xenvg", name).read_bytes()


@pytest.mark.requirement("G12", "F26")
async def test_a_new_volume_reads_as_zeros_and_reports_whose_it_is(model: ModelLvm) -> None:
    made = disk(model)
    await made.create(8)
    assert content(model) == bytes(8 * MIB)
    assert model.volumes[KEY].tags == [f"ganeti.disk.{UUID}"]
    assert await made.size_mib() == 8
    await made.open(DiskRole.PRIMARY)
    assert made.path == str(model.file("xenvg", NAME))


async def test_the_size_is_whole_extents_and_no_less_than_was_asked_for(model: ModelLvm) -> None:
    await disk(model).create(9)
    assert model.volumes[KEY].size == 12 * MIB
    assert content(model) == bytes(12 * MIB)


async def test_without_wiping_only_lvm_clears_the_first_blocks(model: ModelLvm) -> None:
    await disk(model, replace(SPEC, wipe=False)).create(8)
    (made,) = [words for words in model.ran if words[0] == "lvcreate"]
    assert made[made.index("--zero") + 1] == "y"
    assert model.acts() == ["lvcreate"]


@pytest.mark.requirement("S77")
async def test_stripes_become_words_of_the_command_and_no_more_than_there_is_to_lie_on(
    model: ModelLvm,
) -> None:
    model.devices["/dev/sdb"] = ModelPhysical("xenvg", 64 * MIB)
    model.devices["/dev/sdc"] = ModelPhysical("other", 64 * MIB)
    await disk(model, replace(SPEC, params={"stripes": 4, "stripe_size": 128})).create(8)
    assert model.volumes[KEY].stripes == ("2", "128k")


@pytest.mark.sampled(5)
@pytest.mark.requirement("G11", "F24")
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(7))
async def test_a_creation_that_fails_leaves_nothing_or_can_be_gone_on_with(
    model: ModelLvm, number: int, after: bool
) -> None:
    model.fail_at, model.fails_after = number, after
    try:
        await disk(model).create(8)
    except StorageError:
        made = model.volumes.get(KEY)
        assert made is None or content(model) == bytes(8 * MIB) or len(made.tags) == 2
    model.fail_at = -1
    await disk(model).create(8)
    assert content(model) == bytes(8 * MIB)
    assert model.volumes[KEY].tags == [f"ganeti.disk.{UUID}"]


@pytest.mark.requirement("G12", "F26")
async def test_a_volume_that_was_not_filled_to_the_end_is_never_used_before_it_is(
    model: ModelLvm,
) -> None:
    model.add("xenvg", NAME, 8 * MIB, tags=[f"ganeti.disk.{UUID}", "ganeti.unwiped.0"])
    with pytest.raises(StorageError, match="creation or growth is incomplete"):
        await disk(model).check_identity()
    await disk(model).open(DiskRole.PRIMARY)
    assert content(model) == bytes(8 * MIB)


@pytest.mark.requirement("G12", "F26")
async def test_nothing_is_written_to_a_device_that_is_another_volume(model: ModelLvm) -> None:
    wrong = disk(model, wrong=frozenset({NAME}))
    with pytest.raises(StorageError, match="the device is another volume"):
        await wrong.create(8)
    model.add("xenvg", NAME, 8 * MIB, tags=[f"ganeti.disk.{UUID}", f"ganeti.unwiped.{4 * MIB}"])
    before = content(model)
    with pytest.raises(StorageError, match="the device is another volume"):
        await wrong.open(DiskRole.PRIMARY)
    assert content(model) == before


@pytest.mark.requirement("G12", "A48")
@pytest.mark.parametrize("tags", [[], [f"ganeti.disk.{OTHER}"]])
async def test_a_volume_that_is_in_the_way_is_not_touched(model: ModelLvm, tags: list[str]) -> None:
    model.add("xenvg", NAME, 8 * MIB, tags=tags)
    before = content(model)
    with pytest.raises(StorageError, match="a volume of this name exists"):
        await disk(model).create(8)
    assert content(model) == before
    assert model.acts() == []


@pytest.mark.requirement("G12")
async def test_another_disks_volume_is_neither_removed_nor_used(model: ModelLvm) -> None:
    model.add("xenvg", NAME, 8 * MIB, tags=[f"ganeti.disk.{OTHER}"])
    await disk(model).remove()
    assert KEY in model.volumes
    assert await disk(model).size_mib() is None
    for use in (disk(model).open(DiskRole.PRIMARY), disk(model).grow(12)):
        with pytest.raises(StorageError, match="has no such volume"):
            await use


async def test_a_volume_without_a_tag_is_accepted_as_upstreams(model: ModelLvm) -> None:
    model.add("xenvg", NAME, 8 * MIB, tags=["originstname+web1"], is_active=False)
    await disk(model).open(DiskRole.SECONDARY)
    assert model.volumes[KEY].is_active
    await disk(model).remove()
    assert KEY not in model.volumes
    await disk(model).remove()


async def test_a_removal_waits_for_users_of_the_device_with_a_limit(
    model: ModelLvm,
) -> None:
    await disk(model).create(8)
    model.busy = 2
    await disk(model).remove()
    assert KEY not in model.volumes
    await disk(model).create(8)
    model.volumes[KEY].is_open = True
    with pytest.raises(StorageError, match="in use"):
        await disk(model).remove()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"size": EXTENT}, "has 4 MiB instead of 8 MiB"),
        ({"partial": True}, "a physical volume with a part of it is missing"),
    ],
)
async def test_a_volume_that_is_not_whole_is_not_used(
    model: ModelLvm, changes: dict[str, Any], why: str
) -> None:
    await disk(model).create(8)
    for name, value in changes.items():
        setattr(model.volumes[KEY], name, value)
    for use in (disk(model).check_identity(), disk(model).open(DiskRole.PRIMARY)):
        with pytest.raises(StorageError, match=why):
            await use


@pytest.mark.requirement("G12", "F26")
async def test_what_a_larger_volume_has_more_reads_as_zeros_and_the_rest_stays(
    model: ModelLvm,
) -> None:
    await disk(model).create(8)
    with model.file("xenvg", NAME).open("r+b") as device:
        device.write(b"guest")
        device.seek(8 * MIB - 5)
        device.write(b"data!")
    await disk(model).grow(16)
    data = content(model)
    assert len(data) == 16 * MIB
    assert (data[:5], data[8 * MIB - 5 : 8 * MIB]) == (b"guest", b"data!")
    assert data[8 * MIB :] == bytes(8 * MIB)
    ran = len(model.ran)
    await disk(model).grow(16)
    assert [words[0] for words in model.ran[ran:]] == ["lvs", "lvs"]


@pytest.mark.sampled(5)
@pytest.mark.requirement("G12", "F26")
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(7))
async def test_a_growth_that_breaks_off_never_shows_anothers_data(
    model: ModelLvm, number: int, after: bool
) -> None:
    await disk(model).create(8)
    model.fail_at, model.fails_after = len(model.ran) + number, after
    try:
        await disk(model).grow(16)
    except StorageError:
        model.fail_at = -1
        await disk(model).open(DiskRole.PRIMARY)
        assert content(model) == bytes(model.volumes[KEY].size)
    model.fail_at = -1
    await disk(model).grow(16)
    assert content(model) == bytes(16 * MIB)


async def test_no_room_is_reported_and_nothing_is_left(model: ModelLvm) -> None:
    with pytest.raises(StorageError, match=r"cannot create disk 0 .*insufficient free space"):
        await disk(model).create(1000)
    assert model.volumes == {}
    await disk(model).create(8)
    with pytest.raises(StorageError, match=r"cannot grow disk 0 .*Insufficient"):
        await disk(model).grow(1000)
    await disk(model).open(DiskRole.PRIMARY)
    assert model.volumes[KEY].tags == [f"ganeti.disk.{UUID}"]


@pytest.mark.requirement("A48", "A49", "G24")
@pytest.mark.parametrize(
    "logical_id",
    [
        ("xenvg", "-f"),
        ("--config=x", "d0"),
        ("xenvg", "../root"),
        ("xenvg", "a b"),
        ("xenvg", 'a" || lv_name="b'),
        ("xenvg", "x_mlog"),
        ("xenvg", "snapshot1"),
        ("xenvg", ".."),
        ("xenvg", "n" * 128),
        ("xenvg", ""),
        ("xenvg",),
        (1, "d0"),
    ],
)
def test_names_that_could_be_anything_else_are_refused(logical_id: Any) -> None:
    with pytest.raises(StorageError):
        LogicalVolume(Paths(), replace(SPEC, logical_id=logical_id))


async def test_a_snapshot_keeps_the_data_and_foreign_ones_are_not_removed(model: ModelLvm) -> None:
    made = disk(model)
    await made.create(8)
    path = await made.take("copy1")
    assert await made.take("copy1") == path
    with model.file("xenvg", NAME).open("r+b") as device:
        device.write(b"later")
    assert Path(path).read_bytes() == bytes(8 * MIB)
    model.add("xenvg", "mine")
    with pytest.raises(StorageError, match="is another volume"):
        await made.take("mine")
    await made.drop("mine")
    await made.drop("copy1")
    await made.drop("copy1")
    assert model.volumes.keys() == {KEY, ("xenvg", "mine")}


@pytest.mark.requirement("G12")
async def test_a_rollback_writes_the_disk_and_keeps_every_snapshot(model: ModelLvm) -> None:
    made = disk(model)
    await made.create(8)
    for name, text in (("s1", b"first"), ("s2", b"second"), ("", b"third")):
        with model.file("xenvg", NAME).open("r+b") as device:
            device.write(text)
        if name:
            await made.make(name)
            await made.make(name)
    model.volumes["xenvg", "s2"].is_active = False
    for name, text in (("s1", b"first"), ("s2", b"second"), ("s1", b"first")):
        await made.roll_back(name)
        assert content(model).rstrip(b"\0") == text
    assert model.volumes.keys() == {KEY, ("xenvg", "s1"), ("xenvg", "s2")}


async def test_a_snapshot_has_space_for_every_block_and_for_its_table(model: ModelLvm) -> None:
    made = disk(model)
    await made.create(128)
    model.devices["/dev/sda"].size = 512 * MIB
    await made.make("s1")
    chunks = 128 * MIB // 4096
    assert model.volumes["xenvg", "s1"].size >= chunks * (4096 + 16) + 4 * MIB


async def test_a_rollback_needs_its_own_whole_snapshot_and_a_disk_that_is_not_used(
    model: ModelLvm,
) -> None:
    made = disk(model)
    await made.create(8)
    await made.make("s1")
    model.add("xenvg", "mine", 8 * MIB)
    for name in ("mine", "s9"):
        with pytest.raises(StorageError, match="does not exist"):
            await made.roll_back(name)
    with pytest.raises(StorageError, match="the device is another volume"):
        await disk(model, wrong=frozenset(["s1"])).roll_back("s1")
    model.volumes["xenvg", "s1"].state = "I"
    with pytest.raises(StorageError, match="its space was exhausted"):
        await made.roll_back("s1")
    assert content(model) == bytes(8 * MIB)


async def test_adopting_keeps_the_data_and_can_be_undone(model: ModelLvm) -> None:
    model.add("xenvg", "data1", 8 * MIB)
    data = content(model, "data1")
    mine = disk(model)
    assert await mine.adoptable_mib("data1") == 8
    await mine.adopt("data1")
    await mine.adopt("data1")
    assert content(model) == data
    assert model.volumes.keys() == {KEY}
    await mine.open(DiskRole.PRIMARY)
    await mine.give_back("data1")
    await mine.give_back("data1")
    assert model.volumes.keys() == {("xenvg", "data1")}
    assert model.volumes["xenvg", "data1"].tags == []


@pytest.mark.requirement("G11", "F24")
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(4))
async def test_an_adoption_that_breaks_off_is_gone_on_with_or_undone(
    model: ModelLvm, number: int, after: bool
) -> None:
    for end in ("adopt", "give_back"):
        model.volumes.clear()
        model.add("xenvg", "data1", 8 * MIB)
        model.fail_at, model.fails_after = len(model.ran) + number, after
        with pytest.raises(StorageError):
            await disk(model).adopt("data1")
        model.fail_at = -1
        await getattr(disk(model), end)("data1")
        assert model.volumes.keys() == {KEY if end == "adopt" else ("xenvg", "data1")}


@pytest.mark.requirement("A48")
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"tags": [f"ganeti.disk.{OTHER}"]}, "it is disk 2222"),
        ({"is_open": True}, "a program or device of the node uses it"),
        ({"kind": "s", "origin": "x"}, "a snapshot"),
        ({"kind": "o"}, "the origin of one"),
        ({"kind": "m"}, "a mirror"),
        ({"kind": "t"}, "a pool"),
        ({"partial": True}, "is missing"),
        (None, "it does not exist"),
    ],
)
async def test_what_is_used_or_anothers_is_not_adopted(
    model: ModelLvm, fields: dict[str, Any] | None, why: str
) -> None:
    if fields is not None:
        model.add("xenvg", "root", 8 * MIB, **fields)
    for use in (disk(model).adoptable_mib("root"), disk(model).adopt("root")):
        with pytest.raises(StorageError, match=f"cannot be adopted: .*{why}"):
            await use
    assert model.acts() == []
    for name in ("-f", "../x", "x_rmeta_0"):
        with pytest.raises(StorageError):
            await disk(model).adopt(name)


# --- thin volumes ---

THIN = replace(SPEC, params={"stripes": 4, "thin_pool": "thin"})


@pytest.fixture
def pool(model: ModelLvm) -> ModelLvm:
    """A group whose space a pool has nearly taken."""
    model.add("xenvg", "thin", 252 * MIB, kind="t")
    return model


@pytest.mark.requirement("G11", "G12", "F26")
async def test_a_thin_volume_needs_no_wiping_and_no_space_of_its_group(pool: ModelLvm) -> None:
    made = disk(pool, THIN)
    await made.create(512)
    assert content(pool) == bytes(512 * MIB)
    volume = pool.volumes[KEY]
    assert (volume.pool, volume.tags) == ("thin", [f"ganeti.disk.{UUID}"])
    assert pool.acts() == ["lvcreate"]
    await made.create(512)
    await made.open(DiskRole.PRIMARY)
    await made.grow(1024)
    assert await made.size_mib() == 1024
    assert pool.acts() == ["lvcreate", "lvextend"]
    assert len(content(pool)) == 1024 * MIB
    await made.remove()
    assert KEY not in pool.volumes


@pytest.mark.requirement("G11")
async def test_a_thin_snapshot_takes_no_space_and_a_rollback_keeps_it(pool: ModelLvm) -> None:
    made = disk(pool, THIN)
    await made.create(8)
    pool.file("xenvg", NAME).write_bytes(b"before".ljust(8 * MIB, b"\0"))
    await made.make("s1")
    copy = pool.volumes["xenvg", "s1"]
    assert (copy.pool, copy.size, copy.tags) == ("thin", 8 * MIB, [f"ganeti.snapshot.{UUID}"])
    (words,) = [one for one in pool.ran if "--snapshot" in one]
    assert "--size" not in words
    pool.file("xenvg", NAME).write_bytes(b"behind".ljust(8 * MIB, b"\0"))
    copy.is_active = pool.volumes[KEY].is_active = False  # as after a boot
    await made.roll_back("s1")
    assert content(pool).startswith(b"before")
    assert copy.is_active
    await made.drop("s1")
    assert ("xenvg", "s1") not in pool.volumes


@pytest.mark.requirement("G11", "G12")
async def test_a_pool_that_cannot_be_used_is_refused_with_the_command(pool: ModelLvm) -> None:
    for fields, why in (
        ({"params": {"thin_pool": "other"}}, "lvcreate --type thin-pool --size SIZE --zero y"),
        ({"params": {"thin_pool": "plain"}}, "xenvg/plain is not a thin pool"),
        ({"exclusive": True}, "exclusive storage"),
    ):
        pool.volumes.pop(("xenvg", "plain"), None)
        pool.add("xenvg", "plain")
        with pytest.raises(StorageError, match=why):
            await disk(pool, replace(THIN, **fields)).create(8)
    found = pool.volumes["xenvg", "thin"]
    found.zeroes = False
    with pytest.raises(StorageError, match="lvchange --zero y xenvg/thin"):
        await disk(pool, THIN).create(8)
    await disk(pool, replace(THIN, wipe=False)).create(8)
    found.partial = True
    with pytest.raises(StorageError, match="a part of thin pool xenvg/thin is missing"):
        await disk(pool, replace(THIN, logical_id=("xenvg", "another"))).create(8)


@pytest.mark.requirement("G11", "F24")
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(4))
async def test_a_thin_creation_that_fails_can_be_repeated(
    pool: ModelLvm, number: int, after: bool
) -> None:
    pool.fail_at, pool.fails_after = number, after
    try:
        await disk(pool, THIN).create(8)
    except StorageError:
        made = pool.volumes.get(KEY)
        assert made is None or made.tags == [f"ganeti.disk.{UUID}"]
    pool.fail_at = -1
    await disk(pool, THIN).create(8)
    assert pool.volumes[KEY].pool == "thin"
