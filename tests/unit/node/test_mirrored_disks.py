"""What the writer of a mirrored disk asks of the master, over a DRBD in memory: when its writes wait, and go on."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.errors import StorageError
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.model.objects import Grant, NodeUuid
from ganeti.model.recovery import DiskRequest, DiskRequestKind
from ganeti.node.grants import GrantRecords
from ganeti.node.mirrored_disks import MirroredDisks
from ganeti.recovery.grants import CopyRecord
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.disks import GrantArgs
from tests.support.drbd_pair import UUID, Pair
from tests.support.model_drbd import Device

pytestmark = pytest.mark.virtual_time

ONE, TWO = NodeUuid("one"), NodeUuid("two")
BOTH = frozenset((ONE, TWO))
JOIN, DROP, LEAVE = DiskRequestKind.JOIN, DiskRequestKind.DROP, DiskRequestKind.LEAVE


class Mirrored:
    """A disk on two nodes, each with its records; `one` writes."""

    def __init__(self, directory: Path) -> None:
        self.pair = Pair(directory)
        self.records = {
            at: GrantRecords(directory / f"{at}.grants", lambda at=at: NodeUuid(at))  # type: ignore[misc]  # bound to each
            for at in ("one", "two")
        }
        self.daemons = {at: self.daemon(at) for at in ("one", "two")}

    def daemon(self, at: str) -> MirroredDisks:
        return MirroredDisks(self.records[at], self.pair.nodes[at].kernel())

    @property
    def device(self) -> Device:
        return self.pair.nodes["one"].devices[UUID]

    def policy(self) -> tuple[bool, bool]:
        """Whether writes would wait once the peer is lost, and whether they do."""
        return self.device.fences, self.device.waits

    async def open(self, grant: Grant | None) -> None:
        """As a start under a grant."""

        def granted(spec: DiskSpec) -> DiskSpec:
            return replace(spec, grant=grant)

        await self.pair.disk("two").open(DiskRole.SECONDARY)
        if grant is not None:
            await self.records["one"].open([granted(self.pair.spec("one"))])
        await self.pair.disk("one", granted).open(DiskRole.PRIMARY)

    async def asks(self, generation: int = 0) -> list[DiskRequest]:
        """What a look finds, if that is the generation in the state."""
        daemon, found = self.daemons["one"], list[DiskRequest]()
        for _look in range(2):
            found = list(daemon({UUID: generation}))
            assert daemon._looking is not None
            await daemon._looking
        return found

    async def tell(self, generation: int, *current: NodeUuid) -> None:
        """What the master commits, and says to the writer."""
        args = GrantArgs(disk=UUID, grant=Grant(generation, frozenset(current), ONE, 1))
        await self.daemons["one"].granted(args, Call())

    def cut(self) -> None:
        self.pair.world.cut("one", "two")


@pytest.fixture
async def disk(tmp_path: Path) -> Mirrored:
    made = Mirrored(tmp_path)
    await made.pair.create()
    return made


def join(generation: int) -> list[DiskRequest]:
    return [DiskRequest(UUID, JOIN, generation)]


def drop(generation: int) -> list[DiskRequest]:
    return [DiskRequest(UUID, DROP, generation)]


@pytest.mark.requirement("D3", "D4")
async def test_writes_wait_for_a_copy_from_its_report_on(disk: Mirrored) -> None:
    await disk.open(Grant(1, frozenset({ONE}), ONE, 1))
    assert disk.policy() == (False, False)
    assert await disk.asks() == join(1)
    assert disk.policy() == (True, False)
    disk.cut()
    assert disk.policy() == (True, True), "the copy may be current already"
    assert await disk.asks() == drop(1)
    await disk.tell(2, ONE, TWO)  # it was
    assert disk.policy() == (True, True)
    assert await disk.asks() == drop(2)
    await disk.tell(3, ONE)
    assert disk.policy() == (False, False)
    disk.pair.nodes["one"].write(UUID)


@pytest.mark.requirement("D4", "D5")
async def test_writes_wait_for_a_lost_peer_until_a_later_grant(disk: Mirrored) -> None:
    await disk.open(Grant(4, BOTH, ONE, 1))
    assert await disk.asks() == []
    disk.cut()
    with pytest.raises(AssertionError, match="waits"):
        disk.pair.nodes["one"].write(UUID)
    for _again in range(2):
        assert await disk.asks() == drop(4)
    await disk.tell(4, ONE)  # of the same generation
    await disk.tell(3, ONE)  # late
    assert disk.device.waits
    await disk.tell(5, ONE)
    disk.pair.nodes["one"].write(UUID)
    assert await disk.asks() == []
    assert await disk.records["one"].get(UUID) == CopyRecord(5, frozenset({ONE}), is_written=True)


@pytest.mark.requirement("D3", "D4")
async def test_a_link_that_returns_by_itself_costs_no_grant(disk: Mirrored) -> None:
    await disk.open(Grant(4, BOTH, ONE, 1))
    disk.cut()
    disk.pair.world.heal()
    assert not disk.device.waits
    assert await disk.asks() == []
    disk.pair.nodes["one"].write(UUID)


@pytest.mark.requirement("D3")
async def test_a_dropped_copy_is_reported_when_it_is_synchronised(disk: Mirrored) -> None:
    await disk.open(Grant(4, BOTH, ONE, 1))
    disk.cut()
    await disk.tell(5, ONE)
    disk.pair.nodes["one"].write(UUID)
    disk.pair.world.syncs_at_once = False
    disk.pair.world.heal()
    args = GrantArgs(disk=UUID, grant=Grant(5, frozenset({ONE}), ONE, 1))
    assert await disk.asks() == []
    with pytest.raises(StorageError, match="is not synchronised"):
        await disk.daemons["two"].joins(args, Call())
    disk.pair.world.finish()
    assert await disk.asks() == join(5)
    await disk.daemons["two"].joins(args, Call())
    assert await disk.records["two"].get(UUID) == CopyRecord(5, frozenset({ONE}))


@pytest.mark.requirement("D9")
async def test_a_copy_that_was_written_apart_does_not_join(disk: Mirrored) -> None:
    await disk.open(Grant(4, BOTH, ONE, 1))
    await disk.records["two"].renew(UUID, Grant(9, frozenset({TWO}), TWO, 1))
    args = GrantArgs(disk=UUID, grant=Grant(5, frozenset({ONE}), ONE, 1))
    with pytest.raises(StorageError, match="split brain"):
        await disk.daemons["two"].joins(args, Call())
    with pytest.raises(StorageError, match="is not synchronised"):
        await disk.daemons["one"].joins(args, Call())


@pytest.mark.requirement("D5")
async def test_a_writer_without_all_data_drops_nothing(disk: Mirrored) -> None:
    await disk.open(Grant(4, BOTH, ONE, 1))
    disk.cut()
    disk.pair.world.copies[disk.device.meta].has_all = False
    assert await disk.asks() == []
    assert disk.device.waits


async def test_a_writer_that_does_not_know_its_grant_is_told(disk: Mirrored) -> None:
    await disk.open(None)
    assert await disk.asks() == join(0)
    assert not disk.device.fences
    await disk.tell(1, ONE)
    assert await disk.asks(generation=2) == join(1)
    await disk.tell(2, ONE, TWO)
    assert await disk.asks(generation=2) == []
    await disk.pair.disk("one").open(DiskRole.SECONDARY)
    assert not disk.device.fences
    assert await disk.asks() == []


async def test_a_copy_that_may_be_in_memory_only_does_not_count(disk: Mirrored) -> None:
    await disk.open(Grant(1, frozenset({ONE}), ONE, 1))
    assert disk.device.connection is not None
    object.__setattr__(disk.device.connection, "protocol", "B")
    assert await disk.asks() == []
    assert not disk.device.fences


@pytest.mark.requirement("D5")
async def test_whatever_step_of_a_grant_fails_the_writer_asks_again(tmp_path: Path) -> None:
    for fail_at in range(10):
        (tmp_path / str(fail_at)).mkdir()
        disk = Mirrored(tmp_path / str(fail_at))
        await disk.pair.create()
        await disk.open(Grant(4, BOTH, ONE, 1))
        disk.cut()
        node = disk.pair.nodes["one"]
        node.calls.clear()
        node.fail_at = fail_at
        try:
            await disk.tell(5, ONE)
        except StorageError:
            node.fail_at = None
            disk.daemons["one"] = disk.daemon("one")  # nothing depends on its memory
            assert disk.device.waits
            assert await disk.asks() == drop(5)
            await disk.tell(6, ONE)
            node.write(UUID)
        else:
            assert fail_at == 3, "look, policy, resume"
            return
    pytest.fail("it never ended")


@pytest.mark.requirement("D5")
async def test_writes_wait_if_the_record_cannot_be_written(
    disk: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    await disk.open(Grant(4, BOTH, ONE, 1))
    disk.cut()
    with monkeypatch.context() as patch:
        patch.setattr("ganeti.node.grants.write_atomically", full)
        with pytest.raises(StorageError, match="cannot write"):
            await disk.tell(5, ONE)
    assert disk.device.waits
    assert await disk.asks() == drop(4)


# Its own disk


def leave(generation: int) -> list[DiskRequest]:
    return [DiskRequest(UUID, LEAVE, generation)]


@pytest.mark.requirement("D1", "D3")
async def test_a_writer_whose_disk_failed_leaves_and_joins_again_when_it_is_filled(
    disk: Mirrored,
) -> None:
    await disk.open(Grant(4, BOTH, ONE, 1))
    disk.pair.nodes["one"].fail_disk(UUID)
    disk.pair.nodes["one"].write(UUID)
    for _again in range(2):
        assert await disk.asks() == leave(4)
    await disk.tell(5, TWO)
    assert await disk.asks() == []
    assert await disk.records["one"].get(UUID) == CopyRecord(5, frozenset({TWO}), is_written=True)
    disk.pair.world.syncs_at_once = False
    await disk.open(Grant(5, frozenset({TWO}), ONE, 1))
    assert disk.device.replication == "SyncTarget"
    assert disk.policy() == (True, False), "only the peer's copy has every write"
    assert await disk.asks() == []
    disk.pair.world.finish()
    assert await disk.asks() == join(5)
    args = GrantArgs(disk=UUID, grant=Grant(5, frozenset({TWO}), ONE, 1))
    await disk.daemons["two"].joins(args, Call())
    await disk.tell(6, ONE, TWO)
    assert await disk.asks() == []


@pytest.mark.requirement("D5")
@pytest.mark.parametrize("is_filled", [False, True])
async def test_a_writer_whose_copy_is_not_current_drops_no_peer(
    disk: Mirrored, *, is_filled: bool
) -> None:
    await disk.open(Grant(4, BOTH, ONE, 1))
    disk.pair.nodes["one"].fail_disk(UUID)
    await disk.tell(5, TWO)
    disk.pair.world.syncs_at_once = is_filled
    await disk.open(Grant(5, frozenset({TWO}), ONE, 1))
    disk.cut()
    assert disk.device.waits
    assert await disk.asks() == []


@pytest.mark.requirement("D1")
async def test_a_current_copy_that_is_being_filled_again_leaves(disk: Mirrored) -> None:
    await disk.open(Grant(4, BOTH, ONE, 1))
    disk.pair.world.syncs_at_once = False
    disk.pair.nodes["one"].fail_disk(UUID)
    await disk.open(Grant(4, BOTH, ONE, 1))
    assert await disk.asks() == leave(4)


@pytest.mark.requirement("D1", "D6")
async def test_a_failed_disk_without_a_current_peer_changes_nothing(disk: Mirrored) -> None:
    await disk.open(Grant(1, frozenset({ONE}), ONE, 1))
    disk.pair.nodes["one"].fail_disk(UUID)
    assert await disk.asks() == []


@pytest.mark.requirement("D2", "D6")
async def test_a_copy_that_is_not_current_opens_only_with_a_current_peer(disk: Mirrored) -> None:
    await disk.open(Grant(4, BOTH, ONE, 1))
    disk.pair.nodes["one"].fail_disk(UUID)
    await disk.pair.disk("one").open(DiskRole.SECONDARY)
    disk.cut()
    disk.pair.offline.add("two")
    with pytest.raises(StorageError, match="is not connected"):
        await disk.open(Grant(6, frozenset({TWO}), ONE, 1))
    assert disk.device.role == "Secondary"


@pytest.mark.requirement("D9")
async def test_copies_that_were_written_apart_are_reported(disk: Mirrored) -> None:
    await disk.open(Grant(4, BOTH, ONE, 1))
    disk.cut()
    await disk.tell(5, ONE)
    for device in (disk.device, disk.pair.nodes["two"].devices[UUID]):
        disk.pair.world.copies[device.meta].part(disk.pair.world.new_generation())
    disk.pair.world.heal()
    assert disk.device.state == "StandAlone"
    assert await disk.asks() == [DiskRequest(UUID, DiskRequestKind.SPLIT, 5)]


# The driver


@pytest.mark.requirement("D4")
async def test_a_disk_with_a_current_peer_opens_only_with_it(disk: Mirrored) -> None:
    both = Grant(4, BOTH, ONE, 1)
    await disk.open(both)
    words = [call[1] for call in disk.pair.nodes["one"].calls]
    assert words.index("disk-options") < words.index("primary")
    await disk.pair.disk("one").open(DiskRole.SECONDARY)
    disk.cut()
    disk.pair.offline.add("two")
    with pytest.raises(StorageError, match="must get each new one, but it is not connected"):
        await disk.open(both)
    await disk.open(Grant(5, frozenset({ONE}), ONE, 1))
    disk.pair.nodes["one"].write(UUID)


@pytest.mark.requirement("D4")
async def test_a_writer_does_not_leave_a_peer_that_it_must_wait_for(disk: Mirrored) -> None:
    def elsewhere(grant: Grant, spec: DiskSpec) -> DiskSpec:
        (peer,) = spec.peers
        return replace(spec, grant=grant, peers=(replace(peer, address="10.0.0.9"),))

    await disk.open(Grant(4, BOTH, ONE, 1))
    moved = disk.pair.disk("one", lambda spec: elsewhere(Grant(4, BOTH, ONE, 1), spec))
    with pytest.raises(StorageError, match="must be dropped first"):
        await moved.open(DiskRole.PRIMARY)
    await disk.tell(5, ONE)
    disk.pair.offline.add("two")
    alone = Grant(5, frozenset({ONE}), ONE, 1)
    await disk.pair.disk("one", lambda spec: elsewhere(alone, spec)).open(DiskRole.PRIMARY)
    assert disk.device.state == "Connecting"


@pytest.mark.requirement("D4")
async def test_a_disk_that_is_attached_while_it_is_written_still_waits(disk: Mirrored) -> None:
    await disk.open(Grant(4, BOTH, ONE, 1))
    await disk.pair.nodes["one"].run(["drbdsetup", "detach", "3"])
    await disk.open(Grant(4, BOTH, ONE, 1))
    (attached,) = (call for call in disk.pair.nodes["one"].calls[-12:] if call[1] == "attach")
    assert "--fencing=resource-and-stonith" in attached


@pytest.mark.requirement("D4")
async def test_a_demoted_disk_waits_no_longer(disk: Mirrored) -> None:
    await disk.open(Grant(4, BOTH, ONE, 1))
    disk.cut()
    await disk.pair.disk("one").open(DiskRole.SECONDARY)
    assert (disk.device.waits, disk.device.fences) == (False, False)
