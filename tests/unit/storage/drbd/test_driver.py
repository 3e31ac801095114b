"""The driver of mirrored disks, on two nodes of a DRBD in memory."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.errors import StorageError
from ganeti.model.names import DiskRole
from ganeti.storage.drbd.metadata import MARK_SIZE
from ganeti.storage.drbd.status import UP_TO_DATE
from tests.support.drbd_pair import MINORS, SIZE, UUID, Pair
from tests.support.model_drbd import FileLayer

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


@pytest.mark.requirement("G13", "F22")
async def test_a_new_disk_is_opened_filled_and_closed(pair: Pair) -> None:
    await pair.create()
    await pair.open()
    seen = await pair.disk("one").sync_status()
    assert seen is not None
    assert seen.in_sync
    assert seen.state == "Primary, UpToDate, peer Secondary, UpToDate, Established"
    assert await pair.disk("one").size_mib() == SIZE
    for at in ("one", "two"):
        await pair.disk(at).check_identity()
        await pair.disk(at).close()
        assert await pair.disk(at).sync_status() is None
        assert await pair.disk(at).size_mib() == SIZE


@pytest.mark.requirement("G11", "F24")
async def test_nothing_is_left_of_a_disk_that_was_removed(pair: Pair) -> None:
    await pair.create()
    await pair.open()
    for at in ("one", "two"):
        await pair.disk(at).remove()
        await pair.disk(at).remove()
        assert not pair.files(at)
        assert not pair.nodes[at].devices


async def test_creating_twice_keeps_the_data(pair: Pair) -> None:
    await pair.create()
    await pair.open()
    pair.nodes["one"].write(UUID)
    before = dict(pair.world.copies)
    for at in ("one", "two"):
        await pair.disk(at).close()
        await pair.disk(at).create(SIZE)
    assert pair.world.copies == before


@pytest.mark.requirement("G11", "F24")
async def test_whatever_call_fails_a_creation_leaves_nothing_and_works_again(
    tmp_path: Path,
) -> None:
    for fail_at in range(10):
        pair = Pair(tmp_path / str(fail_at))
        node = pair.nodes["one"]
        node.fail_at = fail_at
        try:
            await pair.disk("one").create(SIZE)
        except StorageError:
            assert not pair.files("one")
        else:
            assert fail_at > 1
            return
        node.fail_at = None
        await pair.disk("one").create(SIZE)
        assert pair.files("one") == {"a.data", "a.meta"}
    pytest.fail("creation never ended")


async def _open_with_faults(pair: Pair) -> int:
    """Fail every call of opening the primary in turn; how many there were."""
    node = pair.nodes["one"]
    for fail_at in range(40):
        node.calls.clear()
        node.fail_at = fail_at
        try:
            await pair.disk("one").open(DiskRole.PRIMARY)
        except StorageError:
            continue
        finally:
            node.fail_at = None
        return fail_at
    raise AssertionError("it never opened")


@pytest.mark.requirement("G13")
async def test_opening_continues_after_an_interruption(pair: Pair) -> None:
    await pair.create()
    await pair.disk("two").open(DiskRole.SECONDARY)
    assert await _open_with_faults(pair) > 5
    assert pair.state("one") == pair.state("two") == UP_TO_DATE


@pytest.mark.requirement("F22", "G13")
async def test_a_peer_that_does_not_answer_is_only_accepted_if_it_is_marked_offline(
    pair: Pair,
) -> None:
    await pair.create()
    await pair.open()
    pair.kill("one")
    with pytest.raises(StorageError, match=r"one does not answer.*--offline=yes one"):
        await pair.disk("two").open(DiskRole.PRIMARY)
    assert pair.nodes["two"].devices[UUID].role == "Secondary"
    pair.offline.add("one")
    await pair.disk("two").open(DiskRole.PRIMARY)
    assert pair.nodes["two"].devices[UUID].role == "Primary"


@pytest.mark.requirement("F22", "G13")
async def test_a_peer_that_died_is_missed_before_its_copy_is_taken_over(pair: Pair) -> None:
    await pair.create()
    await pair.open()
    pair.offline.add("one")
    with pytest.raises(StorageError, match="one writes to it"):
        await pair.disk("two").open(DiskRole.PRIMARY)
    missed = asyncio.get_running_loop().call_later(12.0, pair.kill, "one")
    await pair.disk("two").open(DiskRole.PRIMARY)
    assert missed.when() <= asyncio.get_running_loop().time()
    assert pair.nodes["two"].devices[UUID].role == "Primary"


@pytest.mark.requirement("G13")
async def test_a_copy_without_all_data_is_not_promoted_alone(pair: Pair) -> None:
    await pair.create()
    pair.world.syncs_at_once = False
    await pair.open()
    pair.kill("one")
    pair.offline.add("one")
    with pytest.raises(StorageError, match="no copy is known to have all"):
        await pair.disk("two").open(DiskRole.PRIMARY)


@pytest.mark.requirement("G13")
async def test_a_copy_that_is_being_filled_may_write_while_the_other_one_is_there(
    pair: Pair,
) -> None:
    await pair.create()
    pair.world.syncs_at_once = False
    await pair.open()
    await pair.disk("one").open(DiskRole.SECONDARY)
    await pair.disk("two").open(DiskRole.PRIMARY)
    seen = await pair.disk("two").sync_status()
    assert seen is not None
    assert (seen.up_to_date, seen.connected, seen.percent) == (False, True, 0.0)
    assert not seen.in_sync


@pytest.mark.requirement("G13", "F22")
async def test_split_brain_is_reported_and_both_copies_stay(pair: Pair) -> None:
    await pair.create()
    await pair.open()
    pair.kill("two")
    pair.nodes["one"].write(UUID)
    pair.kill("one")
    pair.offline.add("one")
    await pair.disk("two").open(DiskRole.PRIMARY)
    pair.nodes["two"].write(UUID)
    before = dict(pair.world.copies)
    pair.offline.clear()
    for at in ("one", "two"):
        await pair.disk(at).open(DiskRole.SECONDARY)
    with pytest.raises(StorageError, match="split brain"):
        await pair.disk("two").open(DiskRole.PRIMARY)
    assert pair.world.copies == before
    seen = await pair.disk("two").sync_status()
    assert seen is not None
    theirs = await pair.disk("one").sync_status()
    assert theirs is not None
    assert not set(seen.generations[:1]) & set(theirs.generations)
    assert not set(theirs.generations[:1]) & set(seen.generations)
    # The way out that the message names: new parts for the node whose copy is given up.
    await pair.disk("one").close()
    pair.suffix["one"] = "b"
    for layer in pair.spec("one").children:
        await FileLayer(pair.nodes["one"].directory, layer).create(layer.size)
    await pair.disk("one").open(DiskRole.SECONDARY)
    await pair.disk("two").open(DiskRole.PRIMARY)
    assert pair.state("one") == UP_TO_DATE


async def _parted(pair: Pair) -> None:
    """Both copies have been written to while the link was cut, and both nodes have dropped the connection."""
    await pair.create()
    await pair.open()
    pair.world.cut("one", "two")
    pair.nodes["one"].write(UUID)
    _, device = pair.nodes["two"].by_minor(str(MINORS["two"]))
    await pair.nodes["two"].run(["drbdsetup", "primary", str(device.minor)])
    await pair.disk("two").open(DiskRole.SECONDARY)
    pair.world.heal()


@pytest.mark.requirement("G13", "F22")
async def test_a_copy_that_is_discarded_is_filled_from_the_other_one(pair: Pair) -> None:
    await _parted(pair)
    kept = pair.world.copies[str(pair.nodes["one"].directory / "a.meta")].generation
    seen = [await pair.disk(at).sync_status() for at in ("one", "two")]
    assert [one.dropped for one in seen if one] == [True, True]
    await pair.disk("two").discard()
    await pair.disk("one").open(DiskRole.PRIMARY)
    assert {copy.generation for copy in pair.world.copies.values()} == {kept}
    assert pair.state("two") == UP_TO_DATE
    pair.nodes["two"].calls.clear()
    await pair.disk("two").discard()
    assert "connect" not in {words[0] for words in pair.nodes["two"].calls}


@pytest.mark.requirement("G13")
async def test_a_disk_in_use_is_opened_again_at_once_although_its_link_is_cut(pair: Pair) -> None:
    await pair.create()
    await pair.open()
    pair.world.cut("one", "two")
    before = asyncio.get_running_loop().time()
    await pair.disk("one").open(DiskRole.PRIMARY)
    assert asyncio.get_running_loop().time() == before


@pytest.mark.requirement("G13", "F22")
async def test_a_copy_is_opened_alone_only_if_it_is_the_one_that_was_compared(pair: Pair) -> None:
    await pair.create()
    await pair.open()
    for at in ("one", "two"):
        await pair.disk(at).close()
    rest = await pair.disk("one").at_rest()
    assert rest is not None
    assert (rest.up_to_date, rest.consistent, rest.connected) == (True, True, False)
    pair.world.cut("one", "two")
    with pytest.raises(StorageError, match="changed since the copies were compared"):
        await pair.disk("one").open_alone("A" * 16, force=True)
    assert pair.nodes["one"].devices[UUID].role == "Secondary"
    await pair.disk("one").open_alone(rest.generations[0], force=False)
    assert pair.nodes["one"].devices[UUID].role == "Primary"
    await pair.disk("one").open_alone(rest.generations[0], force=False)
    await pair.disk("two").open(DiskRole.SECONDARY)
    await pair.disk("two").outdate()
    await pair.disk("two").close()
    old = await pair.disk("two").at_rest()
    assert old is not None
    assert (old.up_to_date, old.consistent) == (False, True)
    with pytest.raises(StorageError, match="not up to date"):
        await pair.disk("two").open_alone(old.generations[0], force=False)
    await pair.disk("two").open_alone(old.generations[0], force=True)
    assert pair.state("two") == UP_TO_DATE


async def test_a_copy_without_metadata_of_its_own_keeps_no_record(pair: Pair) -> None:
    assert await pair.disk("one").at_rest() is None
    await pair.create()
    rest = await pair.disk("one").at_rest()
    assert rest is not None
    assert not rest.consistent
    (pair.nodes["one"].directory / "a.meta").write_bytes(bytes(2 << 20))
    assert await pair.disk("one").at_rest() is None


async def test_a_node_that_comes_back_takes_what_it_missed(pair: Pair) -> None:
    await pair.create()
    await pair.open()
    pair.kill("two")
    pair.nodes["one"].write(UUID)
    await pair.disk("two").open(DiskRole.SECONDARY)
    await pair.disk("one").open(DiskRole.PRIMARY)
    copies = {copy.generation for copy in pair.world.copies.values()}
    assert len(copies) == 1


async def test_two_nodes_do_not_write_except_for_a_migration(pair: Pair) -> None:
    await pair.create()
    await pair.open()
    with pytest.raises(StorageError, match="one writes to it"):
        await pair.disk("two").open(DiskRole.PRIMARY)
    await pair.disk("one").open(DiskRole.BOTH)
    await pair.disk("two").open(DiskRole.BOTH)
    assert {node.devices[UUID].role for node in pair.nodes.values()} == {"Primary"}
    await pair.disk("one").open(DiskRole.SECONDARY)
    await pair.disk("two").open(DiskRole.PRIMARY)
    assert not any(node.devices[UUID].two_primaries for node in pair.nodes.values())
    assert pair.nodes["two"].devices[UUID].role == "Primary"


@pytest.mark.requirement("F25")
async def test_a_minor_that_something_else_has_is_refused_and_not_touched(pair: Pair) -> None:
    node = pair.nodes["one"]
    await node.run(["drbdsetup", "new-resource", "foreign"])
    await node.run(["drbdsetup", "new-minor", "foreign", str(MINORS["one"]), "0"])
    with pytest.raises(StorageError, match=r"minor 3 is that of resource foreign"):
        await pair.disk("one").create(SIZE)
    assert not pair.files("one")
    await pair.disk("one").remove()
    await pair.disk("one").close()
    assert "foreign" in node.devices


@pytest.mark.requirement("G12", "G13")
async def test_metadata_of_another_disk_on_a_new_volume_is_not_believed(pair: Pair) -> None:
    await pair.create()
    await pair.open()
    pair.suffix["one"] = "b"
    for layer in pair.spec("one").children:
        await FileLayer(pair.nodes["one"].directory, layer).create(layer.size)
    meta = pair.nodes["one"].directory / "b.meta"
    old = pair.nodes["one"].directory / "a.meta"
    meta.write_bytes(old.read_bytes()[:-MARK_SIZE] + b"another disk".ljust(MARK_SIZE, b"\0"))
    pair.world.copies[str(meta)] = pair.world.copies[str(old)]
    await pair.disk("one").open(DiskRole.PRIMARY)
    assert pair.state("one") == UP_TO_DATE
    assert [
        "drbdmeta",
        "--force",
        "/dev/drbd3",
        "v08",
        str(meta),
        "flex-external",
        "create-md",
    ] in (pair.nodes["one"].calls)


async def test_a_disk_in_use_is_not_closed(pair: Pair) -> None:
    await pair.create()
    await pair.open()
    pair.nodes["one"].devices[UUID].is_held = True
    for act in (pair.disk("one").close, pair.disk("one").remove):
        with pytest.raises(StorageError, match="held open"):
            await act()
    assert pair.files("one") == {"a.data", "a.meta"}


async def test_growing_waits_for_the_volumes_on_both_nodes(pair: Pair) -> None:
    await pair.create()
    await pair.open()
    with pytest.raises(StorageError, match="too small"):
        await pair.disk("one").grow(2 * SIZE)
    for at in ("one", "two"):
        data, _meta = pair.spec(at).children
        await FileLayer(pair.nodes[at].directory, data).grow(2 * SIZE)
    await pair.disk("one").grow(2 * SIZE)
    assert await pair.disk("one").size_mib() == await pair.disk("two").size_mib() == 2 * SIZE
    # A job that broke off here has not changed the configuration: what was grown stays grown.
    await pair.disk("one").close()
    await pair.disk("two").close()
    await pair.open()
    assert await pair.disk("one").size_mib() == 2 * SIZE


async def test_drbd_without_its_module_or_with_helpers_is_refused(pair: Pair) -> None:
    disk = pair.disk("one")
    (pair.nodes["one"].directory / "helper").write_text("/sbin/drbdadm\n")
    with pytest.raises(StorageError, match="usermode_helper"):
        await disk.create(SIZE)
    (pair.nodes["one"].directory / "proc").write_text("version: 9.1.0 (api:2)\n")
    with pytest.raises(StorageError, match=r"DRBD 8\.4 is required"):
        await disk.create(SIZE)
    (pair.nodes["one"].directory / "proc").unlink()
    with pytest.raises(StorageError, match="modprobe drbd"):
        await disk.create(SIZE)
    assert await disk.sync_status() is None
    await disk.remove()


@pytest.mark.requirement("G23")
async def test_no_command_line_has_the_secret(pair: Pair) -> None:
    await pair.create()
    await pair.open()
    for node in pair.nodes.values():
        assert any(words[0] == "connect" for words in node.calls)
        assert not any("shared" in word for words in node.calls for word in words)
    assert pair.spec("one").public.secret == ""


async def test_an_incomplete_disk_is_refused(pair: Pair) -> None:
    with pytest.raises(StorageError, match="must have a minor"):
        pair.disk("one", lambda spec: replace(spec, children=()))
