"""What every back end of the state does, and what only the embedded one; the test files of each run it."""

import abc
import asyncio
import io
from contextlib import aclosing

import pytest

from ganeti.base.errors import NotMaster, Refused, StoreError
from ganeti.model.objects import NodeUuid
from ganeti.store.backend import StateBackend, become_master
from ganeti.store.backup import BackupHeader, read_backup
from ganeti.store.interface import (
    MAX_OPERATIONS,
    MAX_TRANSACTION_BYTES,
    META_KIND,
    ZERO,
    Campaign,
    CampaignKind,
    Delete,
    Follower,
    Lease,
    Master,
    MemberChange,
    NotInLog,
    Position,
    Put,
    Row,
    Transaction,
)
from ganeti.store.job_ids import JobIdAllocator

VOTE = Campaign(CampaignKind.VOTE)
FORCE = Campaign(CampaignKind.FORCE)
CLUSTER = "cluster-1"
NODE = NodeUuid("node-1")
OTHER = NodeUuid("node-2")


class Harness(abc.ABC):
    """One node's disk, and the stores that are opened on it one after the other."""

    @abc.abstractmethod
    async def open(self, *, log_entries: int = 20_000) -> StateBackend: ...

    @abc.abstractmethod
    def fill(self, store: StateBackend) -> None:
        """From now on the disk is full."""

    @abc.abstractmethod
    async def free(self, store: StateBackend) -> None:
        """Make room, and wait until the store has found out."""

    @abc.abstractmethod
    def hold_sync(self, store: StateBackend) -> None:
        """Let the next sync take until more waits behind it."""

    def silence_others(self, *, is_silent: bool) -> None:  # noqa: B027 - there may be none to silence
        """The other voters answer nobody, or they do again."""


def put(key: str, value: bytes | str = b"v", kind: str = "instance") -> Transaction:
    return Transaction((Put(kind, key, value.encode() if isinstance(value, str) else value),))


async def rows_of(store: StateBackend) -> dict[tuple[str, str], bytes]:
    """The rows of a snapshot, in its order."""
    async with aclosing(store.load()) as snapshot:
        return {
            (item.kind, item.key): item.value async for item in snapshot if isinstance(item, Row)
        }


async def keys_of(store: StateBackend) -> list[str]:
    return [key for kind, key in await rows_of(store) if kind != META_KIND]


async def position_of(store: StateBackend) -> Position:
    async with aclosing(store.load()) as snapshot:
        first = await anext(snapshot)
    assert isinstance(first, Position)
    return first


async def master(harness: Harness) -> tuple[StateBackend, Lease]:
    store = await harness.open()
    return store, await become_master(store, VOTE)


class MemorySink:
    def __init__(self) -> None:
        self.data = bytearray()

    async def write(self, data: bytes) -> None:
        self.data += data


class StoreConformance:
    """What every back end does, whether it asks for votes or elects by itself."""

    async def test_a_new_store_is_empty_and_follows(self, harness: Harness) -> None:
        store = await harness.open()
        assert await rows_of(store) == {}
        assert await position_of(store) == ZERO
        assert isinstance(store.statistics().role, Follower)
        await store.close()

    async def test_a_committed_row_is_loaded_with_its_position(self, harness: Harness) -> None:
        store, lease = await master(harness)
        receipt = await store.commit(lease, put("web1", "running"))
        assert receipt.position == Position(lease.epoch, 1)
        assert await position_of(store) == receipt.position
        assert await rows_of(store) == {("instance", "web1"): b"running"}
        await store.close()

    @pytest.mark.requirement("S192")
    async def test_next_master_returns_the_same_log_after_a_position(
        self, harness: Harness
    ) -> None:
        store, lease = await master(harness)
        begin = (await store.commit(lease, put("web1", "a"))).position
        await store.commit(lease, put("web2", "b"))
        gone = Put("instance", "web1", b"a")
        end = await store.commit(lease, Transaction((gone, Delete("instance", "web1"))))
        assert await store.log_after(end.position) == []
        found = await store.log_after(begin)
        await store.close()
        store, lease = await master(harness)
        last = await store.commit(lease, put("web3", "c"))
        again = await store.log_after(begin)
        assert again[: len(found)] == found, (found, again)
        assert again[-1].position == last.position
        assert [one.previous for one in again] == [begin, *(one.position for one in again[:-1])]
        rows = [
            one for entry in again for one in entry.transaction.operations if one.kind != META_KIND
        ]
        web2, web3 = Put("instance", "web2", b"b"), Put("instance", "web3", b"c")
        assert rows == [web2, gone, Delete("instance", "web1"), web3], again
        for unknown in (Position(last.position.epoch, 77), Position(begin.epoch, 77)):
            with pytest.raises(NotInLog):
                await store.log_after(unknown)
        await store.close()

    async def test_operations_of_a_transaction_happen_in_order(self, harness: Harness) -> None:
        store, lease = await master(harness)
        txn = Transaction(
            (
                Put("a", "k", b"1"),
                Delete("a", "k"),
                Put("a", "k", b"2"),
                Put("b", "k", b"3"),
                Delete("b", "k"),
                Delete("c", "never there"),
            )
        )
        await store.commit(lease, txn)
        assert await rows_of(store) == {("a", "k"): b"2"}
        await store.close()

    async def test_rows_are_loaded_by_kind_and_key(self, harness: Harness) -> None:
        store, lease = await master(harness)
        names = [("b", "x"), ("a", "é"), ("a", "z"), ("a", "Z"), ("a", ""), ("a", "\U0001f600")]
        await store.commit(lease, Transaction(tuple(Put(kind, key, b"") for kind, key in names)))
        assert list(await rows_of(store)) == sorted(names)
        await store.close()

    @pytest.mark.requirement("G2")
    async def test_positions_grow(self, harness: Harness) -> None:
        store, lease = await master(harness)
        first = [(await store.commit(lease, put("a"))).position for _ in range(3)]
        await store.step_down("asked to")
        second_lease = await become_master(store, VOTE)
        assert second_lease.epoch > lease.epoch
        second = [(await store.commit(second_lease, put("b"))).position for _ in range(2)]
        positions = first + second
        assert [position.serial for position in positions] == [1, 2, 3, 1, 2]
        assert [position.epoch for position in positions[2:4]] == [lease.epoch, second_lease.epoch]
        numbers = [position.as_int() for position in positions]
        assert numbers == sorted(set(numbers))
        await store.close()

    async def test_concurrent_commits_share_syncs(self, harness: Harness) -> None:
        store, lease = await master(harness)
        harness.hold_sync(store)
        receipts = await asyncio.gather(
            *(store.commit(lease, put(f"{number:03}")) for number in range(200))
        )
        assert [receipt.position.serial for receipt in receipts] == list(range(1, 201))
        statistics = store.statistics()
        assert statistics.transactions == 200
        assert statistics.syncs <= 20
        assert statistics.largest_batch >= 10
        await store.close()

    async def test_submitted_transactions_keep_their_place(self, harness: Harness) -> None:
        store, lease = await master(harness)
        store.submit(lease, put("x", "1"))
        store.submit(lease, put("x", "2"))
        receipt = await store.commit(lease, put("y"))
        store.submit(lease, put("x", "3"))
        assert receipt.position.serial == 3
        last = await store.commit(lease, Transaction())  # waits for all before it
        assert last.position.serial == 5
        assert (await rows_of(store))["instance", "x"] == b"3"
        await store.close()

    async def test_posted_transactions_keep_their_place(self, harness: Harness) -> None:
        store, lease = await master(harness)
        first = store.post(lease, put("x", "1"))
        receipt = await store.commit(lease, put("x", "2"))
        assert first is not None
        assert first.done()
        assert (first.result().serial, receipt.position.serial) == (1, 2)
        assert (await rows_of(store))["instance", "x"] == b"2"
        await store.close()

    async def test_a_post_is_refused_like_a_commit(self, harness: Harness) -> None:
        store, lease = await master(harness)
        with pytest.raises(Refused, match="operations"):
            store.post(lease, Transaction(put("a").operations * 100_000))
        await store.step_down("asked to")
        with pytest.raises(NotMaster):
            store.post(lease, put("a"))
        await store.close()

    @pytest.mark.requirement("G1", "G16")
    async def test_what_waits_behind_a_refused_post_is_refused_with_it(
        self, harness: Harness
    ) -> None:
        store, lease = await master(harness)
        harness.hold_sync(store)
        held = asyncio.create_task(store.commit(lease, put("held")))
        await asyncio.sleep(0)
        posted = store.post(lease, put("lost", bytes(900_000)))
        behind = asyncio.create_task(store.commit(lease, put("built on it")))
        await asyncio.sleep(0)
        harness.fill(store)
        assert posted is not None
        for write in (posted, behind):
            with pytest.raises(Refused):
                await write
        await asyncio.wait((held,))
        await harness.free(store)
        assert set(await keys_of(store)) <= {"held"}
        await asyncio.gather(held, return_exceptions=True)
        await store.close()

    @pytest.mark.requirement("G1", "G2")
    async def test_a_restart_keeps_all_acknowledged(self, harness: Harness) -> None:
        store, lease = await master(harness)
        for number in range(20):
            await store.commit(lease, put(f"{number:02}", str(number)))
        digest, position = store.statistics().digest, await position_of(store)
        await store.close()
        again = await harness.open()
        assert await keys_of(again) == [f"{number:02}" for number in range(20)]
        assert again.statistics().digest == digest
        assert await position_of(again) == position
        await again.close()

    async def test_a_follower_does_not_write(self, harness: Harness) -> None:
        store = await harness.open()
        with pytest.raises(NotMaster):
            await store.commit(Lease(1), put("a"))
        assert await rows_of(store) == {}
        await store.close()

    async def test_stepping_down_ends_the_lease(self, harness: Harness) -> None:
        store, lease = await master(harness)
        store.submit(lease, put("a"))
        await store.step_down("asked to")
        assert isinstance(store.statistics().role, Follower)
        assert (await store.members()).master is None
        with pytest.raises(NotMaster):
            await store.commit(lease, put("b"))
        assert await keys_of(store) == ["a"]
        assert (await become_master(store, VOTE)).epoch > lease.epoch
        await store.close()

    async def test_role_changes_are_reported_in_order(self, harness: Harness) -> None:
        store = await harness.open()
        async with aclosing(store.role_changes()) as roles:
            assert isinstance(await anext(roles), Follower)
            lease = await become_master(store, VOTE)
            assert await anext(roles) == Master(lease)
            await store.step_down("asked to")
            follower = await anext(roles)
            assert isinstance(follower, Follower)
            assert follower.reason == "asked to"
            await store.close()
            with pytest.raises(StopAsyncIteration):
                await anext(roles)

    @pytest.mark.requirement("G3", "F7")
    async def test_load_is_one_snapshot_during_writes(self, harness: Harness) -> None:
        store, lease = await master(harness)
        for start in range(0, 1200, 100):
            operations = (Put("m", f"{n:04}", b"old") for n in range(start, start + 100))
            await store.commit(lease, Transaction(tuple(operations)))
        ends = Transaction((Put("a", "first", b"old"), Put("z", "last", b"old")))
        before = (await store.commit(lease, ends)).position
        async with aclosing(store.load()) as snapshot:
            items = [await anext(snapshot) for _ in range(3)]
            change = (Put("a", "first", b"new"), Delete("m", "0700"), Put("z", "last", b"new"))
            await store.commit(lease, Transaction(change))
            items += [item async for item in snapshot]
        rows = [item for item in items[1:] if isinstance(item, Row)]
        assert items[0] == before
        assert len(rows) == 1202
        assert {row.value for row in rows} == {b"old"}
        assert len(await rows_of(store)) == 1201
        await store.close()

    async def test_two_loads_do_not_disturb_each_other(self, harness: Harness) -> None:
        store, lease = await master(harness)
        for number in range(8):
            await store.commit(lease, put(str(number)))
        async with aclosing(store.load()) as first, aclosing(store.load()) as second:
            pairs = [(await anext(first), await anext(second)) for _ in range(9)]
        assert all(one == two for one, two in pairs)
        await store.close()

    async def test_a_transaction_has_limits(self, harness: Harness) -> None:
        store, lease = await master(harness)
        most = tuple(Put("k", f"{number}", b"") for number in range(MAX_OPERATIONS))
        await store.commit(lease, Transaction(most))
        with pytest.raises(Refused, match="100 operations"):
            await store.commit(lease, Transaction((*most, Put("k", "one more", b""))))
        largest = bytes(MAX_TRANSACTION_BYTES - 2)
        await store.commit(lease, Transaction((Put("k", "l", largest),)))
        with pytest.raises(Refused, match="bytes"):
            await store.commit(lease, Transaction((Put("k", "l", largest + b"x"),)))
        with pytest.raises(Refused, match="not valid text"):
            store.submit(lease, put("\udc80"))
        assert store.statistics().transactions == 2
        assert (await rows_of(store))["k", "l"] == largest
        await store.close()

    async def test_closing_answers_every_pending_commit(self, harness: Harness) -> None:
        store, lease = await master(harness)
        harness.hold_sync(store)
        commits = [asyncio.create_task(store.commit(lease, put(f"{n:02}"))) for n in range(30)]
        await asyncio.sleep(0)
        await store.close()
        receipts = await asyncio.gather(*commits)
        assert [receipt.position.serial for receipt in receipts] == list(range(1, 31))
        again = await harness.open()
        assert len(await keys_of(again)) == 30
        await again.close()

    async def test_closed_store_reports_that_it_is_closed(self, harness: Harness) -> None:
        store, lease = await master(harness)
        await store.close()
        await store.close()
        with pytest.raises(NotMaster, match="closed"):
            await store.commit(lease, put("a"))
        with pytest.raises(NotMaster, match="closed"):
            await become_master(store, VOTE)
        with pytest.raises(StoreError, match="closed"):
            await rows_of(store)

    async def test_a_store_may_be_closed_while_it_is_loaded(self, harness: Harness) -> None:
        store, lease = await master(harness)
        await store.commit(lease, put("a"))
        async with aclosing(store.load()) as snapshot:
            await anext(snapshot)
            await store.close()

    async def test_a_cancelled_caller_does_not_take_the_write_back(self, harness: Harness) -> None:
        store, lease = await master(harness)
        harness.hold_sync(store)
        commit = asyncio.create_task(store.commit(lease, put("a")))
        await asyncio.sleep(0)
        commit.cancel()
        await asyncio.wait((commit,))
        assert commit.cancelled()
        receipt = await store.commit(lease, put("b"))
        assert receipt.position.serial == 2
        assert await keys_of(store) == ["a", "b"]
        await store.close()

    @pytest.mark.requirement("G16", "F1")
    async def test_a_full_disk_refuses_reads_on_and_recovers(self, harness: Harness) -> None:
        store, lease = await master(harness)
        await store.commit(lease, put("before"))
        harness.fill(store)
        for key in ("first", "second"):
            with pytest.raises(Refused):
                await store.commit(lease, put(key, bytes(900_000)))
        with pytest.raises(Refused):
            store.submit(lease, put("third"))
        assert store.statistics().is_full
        assert await keys_of(store) == ["before"]
        await harness.free(store)
        receipt = await store.commit(lease, put("after"))
        assert receipt.position == Position(lease.epoch, 2)
        assert await keys_of(store) == ["after", "before"]
        assert isinstance(store.statistics().role, Master)
        await store.close()
        again = await harness.open()
        assert await keys_of(again) == ["after", "before"]
        await again.close()

    @pytest.mark.requirement("G16")
    async def test_a_refused_submit_is_reported_by_the_next_call(self, harness: Harness) -> None:
        store, lease = await master(harness)
        harness.hold_sync(store)
        held = asyncio.create_task(store.commit(lease, put("held")))
        await asyncio.sleep(0)
        store.submit(lease, put("lost", bytes(900_000)))
        harness.fill(store)
        behind = asyncio.create_task(store.commit(lease, put("built on it", bytes(900_000))))
        with pytest.raises(Refused):
            await behind
        await asyncio.wait((held,))
        await harness.free(store)
        with pytest.raises(Refused, match="without a waiting caller"):
            await store.commit(lease, put("too"))
        await store.commit(lease, put("fine"))
        keys = await keys_of(store)
        assert keys[0] == "fine"
        assert set(keys) <= {"held", "fine"}
        await asyncio.gather(held, return_exceptions=True)
        await store.close()

    async def test_a_sole_member_is_not_degraded(self, harness: Harness) -> None:
        store, lease = await master(harness)
        members = await store.members()
        assert members.master == NODE
        assert members.epoch == lease.epoch
        assert members.voters == members.candidates == frozenset((NODE,))
        assert members.holders <= members.candidates  # none where others keep the state
        assert not members.degraded
        assert not (await store.commit(lease, put("a"))).degraded
        await store.close()

    async def test_members_change_only_by_their_own_call(self, harness: Harness) -> None:
        store, lease = await master(harness)
        with pytest.raises(Refused, match="change_members"):
            await store.commit(lease, put("members", b"{}", META_KIND))
        with pytest.raises(Refused, match="must stay voter"):
            await store.change_members(lease, MemberChange(NODE, is_voter=True, is_candidate=False))
        await store.close()

    async def test_a_backup_has_every_row_and_the_position(self, harness: Harness) -> None:
        store, lease = await master(harness)
        for number in range(5):
            await store.commit(lease, put(f"{number}", bytes(300_000)))
        sink = MemorySink()
        position = await store.backup(sink)
        items = list(read_backup(io.BytesIO(sink.data).read))
        assert items[0] == BackupHeader(CLUSTER, position)
        assert position == await position_of(store)
        rows = {(item.kind, item.key): item.value for item in items if isinstance(item, Row)}
        assert rows == await rows_of(store)
        await store.close()

    @pytest.mark.requirement("G8")
    async def test_job_ids_continue_above_every_ceiling(self, harness: Harness) -> None:
        store, lease = await master(harness)
        ids = JobIdAllocator((await store.members()).job_id_ceiling)
        ceiling = ids.ceiling_for(3)
        assert ceiling == 1000
        await store.raise_job_id_ceiling(lease, ceiling)
        ids.raised(ceiling)
        assert list(ids.take(3)) == [1, 2, 3]
        assert (await store.members()).job_id_ceiling == 1000
        await store.close()
        again = await harness.open()
        new_lease = await become_master(again, VOTE)
        later = JobIdAllocator((await again.members()).job_id_ceiling)
        assert later.ceiling == 1000
        with pytest.raises(NotMaster):
            await again.raise_job_id_ceiling(lease, 2000)
        await again.raise_job_id_ceiling(new_lease, 2000)
        later.raised(2000)
        assert list(later.take(1)) == [1001]
        await again.close()


class EmbeddedConformance:
    """What only a back end does that asks for votes, and has a log of its own."""

    @pytest.mark.requirement("G4")
    async def test_every_campaign_takes_a_greater_epoch(self, harness: Harness) -> None:
        store, first = await master(harness)
        second = await become_master(store, VOTE)
        await store.close()
        again = await harness.open()
        third = await become_master(again, VOTE)
        fourth = await become_master(again, FORCE)
        assert first.epoch < second.epoch < third.epoch < fourth.epoch
        await again.close()

    @pytest.mark.requirement("G4")
    async def test_a_lease_of_an_old_epoch_is_refused(self, harness: Harness) -> None:
        store, old = await master(harness)
        new = await become_master(store, VOTE)
        with pytest.raises(NotMaster, match="epoch 1 is over"):
            await store.commit(old, put("a"))
        with pytest.raises(NotMaster):
            store.submit(old, put("a"))
        with pytest.raises(NotMaster):
            await store.change_members(old, MemberChange(OTHER, is_voter=True, is_candidate=True))
        await store.commit(new, put("b"))
        assert await keys_of(store) == ["b"]
        await store.close()

    async def test_what_waits_is_written_before_a_new_epoch(self, harness: Harness) -> None:
        store, lease = await master(harness)
        commits = [asyncio.create_task(store.commit(lease, put(f"{n}"))) for n in range(5)]
        await asyncio.sleep(0)
        new = await become_master(store, VOTE)
        receipts = await asyncio.gather(*commits)
        assert {receipt.position.epoch for receipt in receipts} == {lease.epoch}
        assert (await store.commit(new, put("z"))).position == Position(new.epoch, 1)
        await store.close()

    @pytest.mark.requirement("F10")
    async def test_the_log_is_bounded(self, harness: Harness) -> None:
        store = await harness.open(log_entries=10)
        lease = await become_master(store, VOTE)
        for number in range(60):
            await store.commit(lease, put(str(number % 7)))
        assert store.statistics().log_entries == 10
        await store.close()

    async def test_other_candidates_make_a_lonely_master_degraded(self, harness: Harness) -> None:
        store, lease = await master(harness)
        voter = MemberChange(OTHER, is_voter=True, is_candidate=False)
        assert not (await store.change_members(lease, voter)).degraded
        candidate = MemberChange(OTHER, is_voter=True, is_candidate=True)
        assert (await store.change_members(lease, candidate)).degraded
        assert (await store.commit(lease, put("a"))).degraded
        await store.close()
        again = await harness.open()
        assert (await again.members()).candidates == frozenset((NODE, OTHER))
        lease = await become_master(again, VOTE)
        gone = MemberChange(OTHER, is_voter=False, is_candidate=False)
        assert not (await again.change_members(lease, gone)).degraded
        assert (await again.members()).voters == frozenset((NODE,))
        await again.close()

    async def test_force_past_other_voters_is_degraded(self, harness: Harness) -> None:
        store, lease = await master(harness)
        await store.change_members(lease, MemberChange(OTHER, is_voter=True, is_candidate=False))
        harness.silence_others(is_silent=True)
        forced = await become_master(store, FORCE)
        assert (await store.commit(forced, put("a"))).degraded
        harness.silence_others(is_silent=False)
        voted = await become_master(store, VOTE)
        assert not (await store.commit(voted, put("a"))).degraded
        await store.close()

    async def test_digest_distinguishes_histories(self, harness: Harness) -> None:
        store, lease = await master(harness)
        digests = []
        for value in ("1", "2", "1"):
            await store.commit(lease, put("a", value))
            digests.append(store.statistics().digest)
        assert len(set(digests)) == 3
        await store.close()
