"""The replicated store: the conformance suite, and what only many nodes can show."""

import asyncio
import errno
import itertools
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ganeti.base.errors import CommitUnknown, GanetiError, NotMaster, Refused
from ganeti.jobs.record import JOB_KIND, job_key
from ganeti.model.objects import NodeUuid
from ganeti.store import election, feeding, fence, sync_set
from ganeti.store import embedded as embedded_module
from ganeti.store import follower as follower_module
from ganeti.store import leader as leader_module
from ganeti.store.backend import StateBackend, become_master
from ganeti.store.campaign import LATE_S
from ganeti.store.database import History, Limits
from ganeti.store.database_reader import SLICE_ROWS
from ganeti.store.election import NoVote, Vote
from ganeti.store.embedded import EmbeddedStore
from ganeti.store.interface import (
    MAX_EPOCH,
    Campaign,
    CampaignKind,
    Follower,
    Lease,
    Lost,
    Master,
    MemberChange,
    NotYet,
    Position,
)
from ganeti.store.local_log import LocalLog, Options
from ganeti.store.preserved_states import preserved_states
from ganeti.store.register import Accepted, AcceptRequest, PromiseRequest, promise
from tests.support import replicas as replicas_module
from tests.support.replicas import Replicas
from tests.unit.store.conformance import (
    CLUSTER,
    FORCE,
    NODE,
    OTHER,
    VOTE,
    EmbeddedConformance,
    Harness,
    StoreConformance,
    keys_of,
    put,
    rows_of,
)
from tests.unit.store.scripted_connection import Script, sqlite_error
from tests.unit.store.test_sqlite import until

N1, N2, N3, N4, N5 = (NodeUuid(f"n{number}") for number in range(1, 6))


class ReplicatedHarness(Harness):
    """One node of which the others are only voters."""

    def __init__(self, directory: Path) -> None:
        self.replicas = Replicas(directory, (NODE, OTHER), CLUSTER)
        self.script = Script()

    async def open(self, *, log_entries: int = 20_000) -> EmbeddedStore:
        options = Options(
            Limits(log_entries=log_entries), 0.01, self.script.connect, self.script.sync
        )
        return await self.replicas.open(NODE, options)

    def fill(self, store: StateBackend) -> None:
        self.script.max_pages = 0

    async def free(self, store: StateBackend) -> None:
        self.script.max_pages = 1 << 30
        while store.statistics().is_full:  # noqa: ASYNC110 - the store tells nobody when it probes
            await asyncio.sleep(0.005)

    def hold_sync(self, store: StateBackend) -> None:
        self.script.waits["SYNC"] = until(lambda: store.statistics().waiting > 0)

    def silence_others(self, *, is_silent: bool) -> None:
        self.replicas.silent_voters = {OTHER} if is_silent else set()


@pytest.fixture
def harness(tmp_path: Path) -> ReplicatedHarness:
    return ReplicatedHarness(tmp_path)


class TestEmbeddedStoreConforms(StoreConformance, EmbeddedConformance):
    """Both conformance suites, on a candidate of which the others are only voters."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Safety does not depend on times (R14)."""
    monkeypatch.setattr(leader_module, "TICK_S", 0.01)
    monkeypatch.setattr(leader_module, "PING_S", 0.02)
    monkeypatch.setattr(fence, "RENEW_S", 0.05)
    monkeypatch.setattr(leader_module, "RETRY_S", 0.02)
    monkeypatch.setattr(sync_set, "RETURNS_AFTER_S", 0.5)


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[Replicas]:
    made = Replicas(tmp_path, (N1, N2, N3))
    yield made
    await made.close()


async def eventually(condition: Callable[[], bool], limit_s: float = 8.0) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - looks from outside
            await asyncio.sleep(0.005)


async def three(replicas: Replicas, options: Options | None = None) -> tuple[EmbeddedStore, Lease]:
    """The first is the master, with all in the sync set; `options` are its own."""
    for name in replicas.names:
        await replicas.open(name, options if name == N1 else None)
    store = replicas.stores[N1]
    lease = await become_master(store, VOTE)
    for node in (N2, N3):
        await store.change_members(lease, MemberChange(node, is_voter=True, is_candidate=True))
    await all_in_set(store)
    return store, lease


async def all_in_set(store: EmbeddedStore) -> None:
    def is_full() -> bool:
        return store._term is not None and len(store._term.sync_set.members) == 3

    await eventually(is_full)


async def take_over(replicas: Replicas, node: NodeUuid) -> Lease:
    """A vote, after the silence that R8 wants; a master that still asks for its own comes between."""
    async with asyncio.timeout(8):
        while True:
            replicas.heard.clear()
            replicas.stores[node]._session.master = None
            try:
                return await become_master(replicas.stores[node], VOTE)
            except NotMaster as err:
                if "last contact" not in err.message:
                    raise
                await asyncio.sleep(0)


@pytest.mark.requirement("G1", "G2", "F2")
async def test_what_was_acknowledged_is_on_every_member(replicas: Replicas) -> None:
    store, lease = await three(replicas)
    receipts = [await store.commit(lease, put(f"{number:03}")) for number in range(50)]
    assert not any(receipt.degraded for receipt in receipts)
    wanted = await rows_of(store)
    for node in (N2, N3):
        assert await rows_of(replicas.stores[node]) == wanted
        assert replicas.stores[node].statistics().digest == store.statistics().digest


@pytest.mark.requirement("G1", "G2")
@pytest.mark.parametrize("error", [None, OSError(errno.EIO, "I/O error")])
async def test_followers_sync_a_write_while_the_master_does(
    replicas: Replicas, error: OSError | None
) -> None:
    """It is acknowledged by neither alone; if the master's disk fails, the next master has the write."""
    script, goes_on = Script(), threading.Event()
    store, lease = await three(replicas, Options(connect=script.connect, sync=script.sync))
    before = (await store.commit(lease, put("a"))).position
    followers = [replicas.stores[node] for node in (N2, N3)]
    script.waits["SYNC"] = goes_on.wait
    if error is not None:
        script.failures["SYNC"] = error
    writing = asyncio.create_task(store.commit(lease, put("b")))
    try:
        await eventually(lambda: all(one.statistics().position > before for one in followers))
        assert not writing.done()
        assert store.statistics().position == before
        assert store._term is not None
        assert store._term.sync_set.acknowledged == before
    finally:
        goes_on.set()
    if error is None:
        assert (await writing).position == store.statistics().position
        return
    with pytest.raises(CommitUnknown):
        await writing
    assert isinstance(store.statistics().role, Lost)
    await take_over(replicas, N2)
    assert await keys_of(replicas.stores[N2]) == ["a", "b"]


async def without_database(replicas: Replicas, *nodes: NodeUuid) -> None:
    """These have lost their databases, and not their registers; their daemons are down."""
    for node in nodes:
        await replicas.stores.pop(node).close()
        replicas.lose_database(node)


@pytest.mark.requirement("G1", "G2", "F2")
async def test_a_node_that_lost_its_database_gets_it_from_another_master(
    replicas: Replicas,
) -> None:
    store, lease = await three(replicas)
    await store.raise_job_id_ceiling(lease, 1000)
    await store.commit(lease, put("kept"))
    await without_database(replicas, N1)
    again = await replicas.open(N1)
    replicas.heard.clear()
    for how in (VOTE, FORCE):
        with pytest.raises(NotMaster, match="this node holds no state"):
            await become_master(again, how)
    await take_over(replicas, N2)
    await eventually(lambda: again.statistics().position > Position(0, 0))
    assert "kept" in await keys_of(again)
    await take_over(replicas, N1)
    assert (await again.members()).candidates == frozenset((N1, N2, N3))


@pytest.mark.requirement("G1", "F2")
async def test_a_member_that_lost_its_database_is_not_asked_for_the_state(
    replicas: Replicas,
) -> None:
    store, lease = await three(replicas)
    await store.raise_job_id_ceiling(lease, 1000)
    replicas.cut_off(N3)
    await store.commit(lease, put("kept"))  # once the third is out of the sync set
    replicas.cut_off(N1)
    await without_database(replicas, N2)
    await replicas.open(N2)
    replicas.repair(N3)
    with pytest.raises(NotMaster, match=f"the database of {N2} is gone"):
        await take_over(replicas, N3)
    replicas.repair()
    await take_over(replicas, N3)
    assert "kept" in await keys_of(replicas.stores[N3])


@pytest.mark.requirement("G1")
async def test_a_new_master_has_the_members_that_it_copied(replicas: Replicas) -> None:
    store, lease = await three(replicas)
    replicas.cut_off(N3)
    await store.change_members(lease, MemberChange(N2, is_voter=True, is_candidate=False))
    await store.step_down("asked to")
    replicas.repair()
    lease = await take_over(replicas, N3)
    late = replicas.stores[N3]
    assert (await late.members()).candidates == frozenset((N1, N3))
    await late.commit(lease, put("after"))


@pytest.mark.requirement("G1")
async def test_a_follower_that_has_nothing_gets_all_at_once(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a part it would count as a member that has everything, should the master die then."""
    monkeypatch.setattr(follower_module, "BATCH_ENTRIES", 1)
    store, lease = await three(replicas)
    many = [store.commit(lease, put(f"{number:04}")) for number in range(SLICE_ROWS + 20)]
    receipt = (await asyncio.gather(*many))[-1]
    await without_database(replicas, N2)
    again = await replicas.open(N2)
    reached, was_reached = [again.statistics().position], again._local.reached

    def reach(history: History) -> None:
        was_reached(history)
        reached.append(history.position)

    monkeypatch.setattr(again._local, "reached", reach)
    await eventually(lambda: reached[-1] >= receipt.position)
    assert reached[0] == Position(0, 0)
    assert reached[1] >= receipt.position


@pytest.mark.requirement("G1", "G4", "F4")
async def test_another_takes_over_with_everything_and_the_old_master_follows(
    replicas: Replicas,
) -> None:
    store, lease = await three(replicas)
    await store.commit(lease, put("before"))
    replicas.cut_off(N1)
    new_lease = await take_over(replicas, N2)
    assert new_lease.epoch > lease.epoch
    second = replicas.stores[N2]
    await second.commit(new_lease, put("after"))
    assert await keys_of(second) == ["after", "before"]
    replicas.repair()
    with pytest.raises(CommitUnknown):
        await store.commit(lease, put("lost"))
    await eventually(lambda: isinstance(store.statistics().role, Follower))
    with pytest.raises(NotMaster):
        await store.commit(lease, put("too late"))
    await eventually(lambda: store.statistics().digest == second.statistics().digest)
    assert "lost" not in await keys_of(store)
    assert list(replicas.directory.glob("n1.db.aside-*"))  # R9: moved aside, not merged


@pytest.mark.requirement("G1", "F3")
async def test_healed_partition_logs_the_dropped_changes(
    replicas: Replicas, caplog: pytest.LogCaptureFixture
) -> None:
    """An administrator forced the third node while the others went on."""
    store, lease = await three(replicas)
    shared = (await store.commit(lease, put("before"))).position
    await eventually(lambda: replicas.stores[N3].statistics().position == shared)
    replicas.cut_off(N3)
    last = await store.commit(lease, put(job_key(17), b"{}", JOB_KIND))
    third = replicas.stores[N3]
    forced = await become_master(third, FORCE)
    assert (await third.commit(forced, put("forced"))).degraded
    replicas.repair()
    await eventually(lambda: not (third._term is None or third._term.is_forced))
    await eventually(lambda: store.statistics().digest == third.statistics().digest)
    await eventually(lambda: "only this file has jobs 17" in caplog.text)
    assert f"node {N1} has written up to {last.position}" in caplog.text
    assert f"after position {shared.as_int()} (epoch {shared.epoch}" in caplog.text
    assert f"up to position {last.position.as_int()} (epoch" in caplog.text


@pytest.mark.requirement("G4")
async def test_a_living_master_is_not_deposed_by_a_vote(replicas: Replicas) -> None:
    _, _ = await three(replicas)
    with pytest.raises(NotYet, match="last contact"):
        await become_master(replicas.stores[N2], VOTE)


async def test_a_master_hands_over_without_losing_a_write(replicas: Replicas) -> None:
    store, lease = await three(replicas)
    await store.commit(lease, put("a"))
    second = replicas.stores[N2]
    new = await become_master(second, Campaign(CampaignKind.HAND_OVER))
    assert isinstance(store.statistics().role, Follower)
    await second.commit(new, put("b"))
    assert await keys_of(second) == ["a", "b"]


async def write_all_the_time(
    store: EmbeddedStore, lease: Lease, written: list[str], name: str
) -> None:
    """Until this node is the master no more; each one before the next, as jobs write."""
    for number in itertools.count():
        key = f"{name}-{number:05}"
        try:
            await store.commit(lease, put(key))
        except NotMaster:
            assert isinstance(store.statistics().role, Follower)
            return
        written.append(key)


@pytest.mark.requirement("G1", "G19")
async def test_a_busy_master_hands_over_at_once(replicas: Replicas) -> None:
    """What it is asked to write meanwhile waits: refused, it would end the epoch of a master that stays."""
    store, lease = await three(replicas)
    written: list[str] = []
    writers = [
        asyncio.create_task(write_all_the_time(store, lease, written, name)) for name in "abc"
    ]
    while len(written) < 20:  # noqa: ASYNC110 - no news of that
        await asyncio.sleep(0.001)
    second = replicas.stores[N2]
    async with asyncio.timeout(2):
        await become_master(second, Campaign(CampaignKind.HAND_OVER))
    await asyncio.gather(*writers)
    assert await keys_of(second) == sorted(written)


@pytest.mark.requirement("G17")
@pytest.mark.parametrize("is_behind", [True, False])
async def test_a_hand_over_to_a_node_that_falls_silent_leaves_the_master_at_work(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, *, is_behind: bool
) -> None:
    monkeypatch.setattr(embedded_module, "HAND_OVER_S", 0.1)
    monkeypatch.setattr(embedded_module, "LAST_ACKS_S", 0.1)
    store, lease = await three(replicas)
    await store.commit(lease, put("a"))
    replicas.cut_off(N2)
    begun = store.statistics().position
    writing = asyncio.create_task(store.commit(lease, put("b")))
    await asyncio.sleep(0)
    while is_behind and store.statistics().position == begun:  # noqa: ASYNC110 - no news of that
        await asyncio.sleep(0.001)
    giving = asyncio.create_task(store._hand_over(N2))
    await asyncio.sleep(0.05)
    held = asyncio.create_task(store.commit(lease, put("c")))
    await asyncio.sleep(0)
    # Only where the wait is for the last writes they are held up, and what comes next queues behind them.
    assert (store.post(lease, put("d")) is None) is not is_behind
    with pytest.raises(NotMaster, match="does not have everything"):
        await giving
    await asyncio.gather(writing, held)
    assert await keys_of(store) == ["a", "b", "c", *("d" for _ in range(is_behind))]
    assert isinstance(store.statistics().role, Master)


@pytest.mark.requirement("G17")
async def test_a_silent_member_is_dropped_and_returns(replicas: Replicas) -> None:
    store, lease = await three(replicas)
    replicas.cut_off(N3)
    receipt = await store.commit(lease, put("without n3"))
    assert not receipt.degraded
    assert N3 not in (await store.members()).holders
    replicas.repair()
    await all_in_set(store)
    assert await keys_of(replicas.stores[N3]) == ["without n3"]


@pytest.mark.requirement("G1", "F2")
async def test_master_without_answers_keeps_its_sync_set(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others hear it; with a set of it alone in their registers they could not replace it."""
    monkeypatch.setattr(sync_set, "SILENT_AFTER_S", 0.2)
    monkeypatch.setattr(replicas_module, "VOTE_S", 0.02)
    store, lease = await three(replicas)
    replicas.cut_direction(N2, N1)
    replicas.cut_direction(N3, N1)
    writing = asyncio.create_task(store.commit(lease, put("unheard")))

    def is_changing() -> bool:
        return store._term is not None and store._term.sync_set._change is not None

    await eventually(is_changing)
    began = asyncio.get_running_loop().time()
    await eventually(lambda: replicas.heard[N2][1] > began + 0.1)
    registers = [replicas.registers[node].read() for node in (N2, N3)]
    accepted = [register.accepted for register in registers if register and register.accepted]
    assert [one.sync_set for one in accepted] == [frozenset((N1, N2, N3))] * 2
    replicas.cut_off(N1)
    await take_over(replicas, N2)
    replicas.repair()
    with pytest.raises(CommitUnknown):
        await writing


async def test_lone_master_is_degraded_and_replaced_only_by_a_member(
    replicas: Replicas,
) -> None:
    store, lease = await three(replicas)
    for node in (N2, N3):
        await replicas.stores[node].close()
        del replicas.stores[node]
    receipt = await store.commit(lease, put("alone"))
    assert receipt.degraded
    replicas.cut_off(N1)
    await replicas.open(N2)
    with pytest.raises(NotMaster, match="n1"):
        await take_over(replicas, N2)
    forced = await become_master(replicas.stores[N2], FORCE)
    assert (await replicas.stores[N2].commit(forced, put("forced"))).degraded


@pytest.mark.requirement("F3")
async def test_the_other_one_of_two_nodes_needs_force(replicas: Replicas) -> None:
    for name in (N1, N2):
        await replicas.open(name)
    store = replicas.stores[N1]
    lease = await become_master(store, VOTE)
    await store.change_members(lease, MemberChange(N2, is_voter=True, is_candidate=True))
    replicas.cut_off(N1)
    with pytest.raises(NotMaster, match="--no-voting"):
        await take_over(replicas, N2)
    forced = await become_master(replicas.stores[N2], FORCE)
    assert forced.epoch > lease.epoch
    assert (await store.commit(lease, put("survivor"))).degraded


async def forced_past(replicas: Replicas, *others: NodeUuid) -> tuple[EmbeddedStore, Lease]:
    """The first and the second of five hold the state; the first is forced past the others."""
    store, lease = await three(replicas)
    for node in others:
        await store.change_members(lease, MemberChange(node, is_voter=True, is_candidate=False))
    await store.change_members(lease, MemberChange(N3, is_voter=True, is_candidate=False))
    await store.step_down("asked to")
    replicas.silent_voters |= {N3, *others}
    lease = await become_master(store, FORCE)
    await eventually(lambda: store._term is not None and len(store._term.sync_set.members) == 2)
    return store, lease


@pytest.fixture
async def five(tmp_path: Path) -> AsyncIterator[Replicas]:
    made = Replicas(tmp_path, (N1, N2, N3, N4, N5))
    yield made
    await made.close()


@pytest.mark.requirement("G1", "F3")
async def test_a_forced_master_is_degraded_until_a_majority_has_registered_it(
    five: Replicas,
) -> None:
    """However many hold what it writes: those it was forced past may have a master of their own."""
    store, lease = await forced_past(five, N4, N5)
    assert (await store.commit(lease, put("forced"))).degraded
    assert store.statistics().degraded
    assert (await store.members()).degraded
    five.silent_voters.clear()
    await eventually(lambda: not store.statistics().degraded)
    assert not (await store.commit(lease, put("elected"))).degraded
    assert not (await store.members()).degraded
    accepted = [five.registers[node].read() for node in (N3, N4, N5)]
    assert any(
        register and register.accepted and register.accepted.epoch == lease.epoch
        for register in accepted
    )


@pytest.mark.requirement("G1", "F3")
async def test_a_forced_master_that_was_elected_needs_its_majority_from_then_on(
    five: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(election, "ENDS_AFTER_S", 0.5)
    store, _ = await forced_past(five, N4, N5)
    five.silent_voters.clear()
    await eventually(lambda: not store.statistics().degraded)
    five.silent_voters |= {N3, N4, N5}
    await eventually(lambda: isinstance(store.statistics().role, Follower))


def registered_voters(replicas: Replicas) -> list[frozenset[NodeUuid]]:
    """The voters that the register of each node names."""
    registers = [replicas.registers[node].read() for node in replicas.names]
    return [
        register.accepted.voters
        for register in registers
        if register is not None and register.accepted is not None
    ]


class Died(Exception):
    """The master, in the middle of a change."""


async def die_while_changing(store: EmbeddedStore, change: MemberChange, step: str) -> None:
    """Let the master change its members, and stop after a step of that."""
    reign = store._term
    assert reign is not None
    was_acknowledged, accept = reign.acknowledged, reign._ports.voters.accept
    is_registered = asyncio.Event()

    async def acknowledged(position: Position) -> None:
        if step == "acknowledged":
            await was_acknowledged(position)
        raise Died

    async def accept_here(node: NodeUuid, request: AcceptRequest) -> Vote | NoVote:
        if node != N1:
            await asyncio.Event().wait()
        vote = await accept(node, request)
        is_registered.set()
        return vote

    if step in ("written", "acknowledged"):
        reign.acknowledged = acknowledged  # type: ignore[method-assign] # stops there
        with pytest.raises(Died):
            await store.change_members(store_lease(store), change)
        del reign.acknowledged
    elif step == "registered here":
        reign._ports.voters.accept = accept_here  # type: ignore[method-assign] # stops there
        changing = asyncio.create_task(store.change_members(store_lease(store), change))
        await is_registered.wait()
        changing.cancel()
    else:
        await store.change_members(store_lease(store), change)


def store_lease(store: EmbeddedStore) -> Lease:
    role = store.statistics().role
    assert isinstance(role, Master)
    return role.lease


@pytest.mark.sampled(3)
@pytest.mark.requirement("G1", "F2")
@pytest.mark.parametrize("step", ["written", "acknowledged", "registered here", "registered"])
@pytest.mark.parametrize("is_added", [True, False])
async def test_a_change_of_voters_that_a_master_did_not_live_to_register_is_registered(
    five: Replicas, step: str, *, is_added: bool
) -> None:
    """The next one finds it in the state, and the registers are as the state says."""
    store, lease = await three(five)
    if not is_added:
        await store.change_members(lease, MemberChange(N4, is_voter=True, is_candidate=False))
    await die_while_changing(store, MemberChange(N4, is_added, is_candidate=False), step)
    second = five.stores[N2]
    await eventually(lambda: second.statistics().digest == store.statistics().digest)
    five.cut_off(N1)
    lease = await take_over(five, N2)
    wanted = (await second.members()).voters
    assert (N4 in wanted) == is_added
    await eventually(lambda: registered_voters(five).count(wanted) >= 2)
    change = MemberChange(N4, is_voter=not is_added, is_candidate=False)
    await second.change_members(lease, change)
    wanted = second._local.members.changed(change, N2).voters
    assert registered_voters(five).count(wanted) >= 2


@pytest.mark.requirement("G1", "F2")
async def test_former_candidate_whose_demotion_was_not_registered_does_not_become_the_master(
    five: Replicas,
) -> None:
    """It would register voters without itself, and could not return after a restart."""
    store, _ = await three(five)
    change = MemberChange(N3, is_voter=False, is_candidate=False)
    await die_while_changing(store, change, "acknowledged")
    assert N3 in set().union(*registered_voters(five))
    five.cut_off(N1)
    with pytest.raises(NotMaster, match="not a master candidate any more"):
        await take_over(five, N3)
    await take_over(five, N2)


@pytest.mark.requirement("A26", "G4")
@pytest.mark.parametrize("epoch", [99, MAX_EPOCH])
async def test_voter_that_is_not_a_candidate_does_not_end_the_master(
    five: Replicas, epoch: int
) -> None:
    """Root on such a node may raise its register, and takes the master away from no one."""
    store, lease = await three(five)
    for node in (N4, N5):
        await store.change_members(lease, MemberChange(node, is_voter=True, is_candidate=False))
    five.spoil(N4, epoch)
    await store.renew(lease.epoch)
    assert not (await store.commit(lease, put("a"))).degraded
    five.cut_off(N1)
    again = await take_over(five, N2)
    assert again.epoch == (100 if epoch == 99 else lease.epoch + 1)
    assert (await five.stores[N2].commit(again, put("b"))).position.epoch == again.epoch


@pytest.mark.virtual_time
@pytest.mark.requirement("F6", "G4")
async def test_lease_runs_out_when_no_majority_confirms_it(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock decides, not what this node does: it may be frozen meanwhile."""
    store, lease = await three(replicas)
    for name in ("TICK_S", "PING_S"):  # the term does not end by itself in time
        monkeypatch.setattr(leader_module, name, 60.0)
    await asyncio.sleep(0.1)
    assert store.holds(lease.epoch)
    assert not store.holds(lease.epoch + 1)
    leader = store._term
    assert leader is not None
    replicas.silent_voters = {N2, N3}
    begun = asyncio.get_running_loop().time()
    while store.holds(lease.epoch):  # noqa: ASYNC110 - as a client would look
        await asyncio.sleep(0.05)
    lasted_s = asyncio.get_running_loop().time() - begun
    assert election.LEASE_S - fence.RENEW_S - 0.1 < lasted_s <= election.LEASE_S + 0.1
    assert store._term is leader
    await store.step_down("enough")
    assert not store.holds(lease.epoch)


@pytest.mark.requirement("G19")
async def test_silent_node_holds_up_only_the_survey_of_a_campaign(replicas: Replicas) -> None:
    """Each round waited for it, and the fence for a connection: 9 s."""
    await three(replicas)
    replicas.hush(N1)
    replicas.heard.clear()
    begun = asyncio.get_running_loop().time()
    await take_over(replicas, N2)
    assert asyncio.get_running_loop().time() - begun < 6 * LATE_S


@pytest.mark.requirement("A26", "G4")
async def test_candidate_beyond_all_others_is_ignored_and_its_own_term_ends(
    replicas: Replicas,
) -> None:
    store, lease = await three(replicas)
    replicas.spoil(N3, MAX_EPOCH)
    await store.renew(lease.epoch)
    replicas.spoil(N1, MAX_EPOCH)
    with pytest.raises(NotMaster, match="has promised epoch"):
        await store.renew(lease.epoch)


@pytest.mark.requirement("F4", "G4")
async def test_candidate_that_promised_the_epoch_to_a_loser_of_the_vote_follows_the_next_epoch(
    replicas: Replicas,
) -> None:
    """The master did not hear of that promise when it was elected."""
    _, lease = await three(replicas)
    replicas.cut_off(N3)
    request = PromiseRequest(replicas.cluster, lease.epoch + 1, N2)
    assert replicas.registers[N3].decide(lambda old: promise(old, request)).granted
    same = await take_over(replicas, N1)
    assert same.epoch == request.epoch
    store = replicas.stores[N1]
    replicas.repair()
    await eventually(lambda: not isinstance(store.statistics().role, Master))
    following = await take_over(replicas, N1)
    receipt = await store.commit(following, put("a"))
    await eventually(lambda: replicas.stores[N3].statistics().position >= receipt.position)


@pytest.mark.requirement("G1")
async def test_former_candidate_is_not_awaited_after_its_demotion(replicas: Replicas) -> None:
    """Whoever demotes it stops its daemon then; the registers must not name it any more."""
    store, lease = await three(replicas)
    await store.change_members(lease, MemberChange(N3, is_voter=True, is_candidate=False))
    accepted = [register.read() for register in replicas.registers.values()]
    sets = [found.accepted.sync_set for found in accepted if found and found.accepted]
    assert sum(N3 not in one for one in sets) >= 2


@pytest.mark.requirement("G1")
async def test_a_change_of_members_whose_caller_is_gone_is_registered(five: Replicas) -> None:
    store, lease = await three(five)
    change = MemberChange(N4, is_voter=True, is_candidate=False)
    changing = asyncio.create_task(store.change_members(lease, change))
    await eventually(lambda: store.statistics().waiting > 0 or N4 in store._local.members.voters)
    changing.cancel()
    await eventually(lambda: registered_voters(five).count(frozenset((N1, N2, N3, N4))) >= 3)


@pytest.mark.requirement("G1")
async def test_closing_the_store_ends_a_wait_for_a_change_of_members(
    five: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, lease = await three(five)
    begun = asyncio.Event()

    async def hang(_term: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(leader_module.LeaderTerm, "members_settled", hang)
    change = MemberChange(N4, is_voter=True, is_candidate=False)
    changing = asyncio.create_task(store.change_members(lease, change))
    await begun.wait()
    await store.close()
    with pytest.raises(CommitUnknown):
        await changing


@pytest.mark.requirement("G1", "G4")
async def test_each_message_of_an_epoch_that_is_over_is_refused(replicas: Replicas) -> None:
    """A follower that has promised a greater one goes on to hear its old master for a while."""
    store, lease = await three(replicas)
    second = replicas.stores[N2]
    await eventually(lambda: second.statistics().position == store.statistics().position)
    before = second.statistics().position
    second._highest.sees(lease.epoch + 1)
    replicas.cut_off(N3)
    writing = asyncio.create_task(store.commit(lease, put("late")))
    await eventually(lambda: store.statistics().position > before)
    session = second._session._session
    await eventually(lambda: session is None or session.done())
    assert second.statistics().position == before
    writing.cancel()


@pytest.mark.requirement("G4", "F2")
async def test_a_candidate_that_no_majority_has_registered_is_no_master(
    replicas: Replicas,
) -> None:
    """They have promised, and cannot keep in their registers who the master is."""
    await three(replicas)
    replicas.cut_off(N1)
    replicas.full |= {N2, N3}
    with pytest.raises(NotMaster, match="voters agree, which is not a majority"):
        await take_over(replicas, N2)
    assert isinstance(replicas.stores[N2].statistics().role, Follower)
    replicas.full.clear()
    await take_over(replicas, N2)


@pytest.mark.requirement("G1", "F2")
async def test_a_candidate_copies_from_a_member_that_has_more(replicas: Replicas) -> None:
    """The line between the master and the candidate was cut, and no other one."""
    store, lease = await three(replicas)
    replicas.cut_link(N1, N3)
    await store.commit(lease, put("without n3"))
    replicas.cut_off(N1)
    await take_over(replicas, N3)
    assert "without n3" in await keys_of(replicas.stores[N3])


@pytest.mark.requirement("G2")
async def test_no_position_goes_back_at_a_snapshot(replicas: Replicas) -> None:
    """The old master has written more than the new one, and nobody has acknowledged it."""
    store, lease = await three(replicas)
    replicas.cut_off(N1)
    replicas.silent_voters.add(N1)
    writing = asyncio.create_task(store.commit(lease, put("alone")))
    before = store.statistics().position
    await eventually(lambda: store.statistics().position > before)
    reached, was_reached = [store.statistics().position], store._local.reached

    def reach(history: History) -> None:
        was_reached(history)
        reached.append(history.position)

    store._local.reached = reach  # type: ignore[method-assign] # looks on
    replicas.silent_voters.clear()
    await take_over(replicas, N2)
    replicas.repair()
    await eventually(lambda: store.statistics().digest == replicas.stores[N2].statistics().digest)
    assert reached == sorted(reached)
    with pytest.raises(CommitUnknown):
        await writing


@pytest.mark.requirement("G1")
async def test_a_node_with_an_older_copy_of_its_database_counts_with_that(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be behind for a while: what was acknowledged before the restore is no news of it."""
    store, lease = await three(replicas)
    await replicas.stores[N3].close()
    copies = [
        (path, path.read_bytes()) for path in replicas.directory.glob("n3.db*") if path.is_file()
    ]
    await replicas.open(N3)
    await all_in_set(store)
    last = await store.commit(lease, put("later"))
    await replicas.stores.pop(N3).close()
    for path, content in copies:
        path.write_bytes(content)
    sync = store._term.sync_set if store._term else None
    assert sync is not None
    assert sync.statistics().acked[N3] == last.position
    monkeypatch.setattr(LocalLog, "append", to_nowhere)
    await replicas.open(N3)
    await eventually(lambda: sync.statistics().acked[N3] < last.position)


async def to_nowhere(_log: LocalLog, _entries: object) -> None:
    """Nothing is written."""
    await asyncio.Event().wait()


async def away_for_long(
    replicas: Replicas, options: Options
) -> tuple[EmbeddedStore, EmbeddedStore]:
    """A master, and a follower, opened with these options, that lacks more than the log has."""
    store = await replicas.open(N1, Options(Limits(log_entries=10)))
    second = await replicas.open(N2, options)
    lease = await become_master(store, VOTE)
    await store.change_members(lease, MemberChange(N2, is_voter=True, is_candidate=True))
    replicas.cut_off(N2)
    for number in range(60):
        await store.commit(lease, put(f"{number:02}"))
    return store, second


async def test_a_follower_that_was_away_for_long_gets_a_snapshot(replicas: Replicas) -> None:
    store, second = await away_for_long(replicas, Options())
    replicas.repair()
    await eventually(lambda: second.statistics().digest == store.statistics().digest)
    assert await rows_of(second) == await rows_of(store)
    assert not preserved_states(replicas.directory / f"{N2}.db"), "the master has all that it had"


@pytest.mark.requirement("G17", "F18")
async def test_a_follower_that_stands_still_costs_the_master_little(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted in bytes what waits for it, and its connection ends."""
    monkeypatch.setattr(feeding, "BEHIND_BYTES", 1 << 20)
    monkeypatch.setattr(feeding, "SEND_S", 0.2)
    store, lease = await three(replicas)
    reign = store._term
    assert reign is not None
    replicas.stalled.add(N3)
    feed, most = reign._feeds[N3], 0
    for number in range(30):
        await store.commit(lease, put(f"{number}", bytes(100_000)))
        most = max(most, sum(len(entry.content) for entry in feed.entries))
    assert most <= 1 << 20
    await eventually(lambda: not feed.is_live)
    replicas.stalled.clear()
    third = replicas.stores[N3]
    await eventually(lambda: third.statistics().digest == store.statistics().digest)


@pytest.mark.requirement("G17", "F18")
async def test_a_follower_that_stands_still_in_a_snapshot_lets_the_log_shrink(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read for it is one transaction, and SQLite's log goes on growing beside that."""
    monkeypatch.setattr(feeding, "SEND_S", 0.2)
    store, second = await away_for_long(replicas, Options())

    async def stall(*args: object) -> Position:
        replicas.stalled.add(N2)
        return await feeding.send_snapshot(*args)  # type: ignore[arg-type] # as it was given

    monkeypatch.setattr(leader_module, "send_snapshot", stall)
    replicas.repair()
    await eventually(lambda: bool(store._local._snapshots))
    await eventually(lambda: not store._local._snapshots)
    monkeypatch.setattr(leader_module, "send_snapshot", feeding.send_snapshot)
    replicas.stalled.clear()
    await eventually(lambda: second.statistics().digest == store.statistics().digest)


@pytest.mark.requirement("G2", "G3")
@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "DELETE", "INSERT INTO rows", "COMMIT"])
async def test_a_snapshot_that_is_interrupted_anywhere_is_begun_again(
    replicas: Replicas, statement: str
) -> None:
    """Whoever connects next ends the session, while its thread is at work on the file."""
    script, is_met, may_continue = Script(), threading.Event(), threading.Event()
    store, second = await away_for_long(replicas, Options(connect=script.connect))

    def wait() -> None:
        is_met.set()
        may_continue.wait(5)

    script.waits[statement] = wait
    replicas.repair()
    await eventually(is_met.is_set)
    replicas.cut_off(N2)
    replicas.repair()
    await asyncio.sleep(0.1)  # the master has connected again
    may_continue.set()
    await eventually(lambda: second.statistics().digest == store.statistics().digest)
    assert isinstance(second.statistics().role, Follower)
    assert await rows_of(second) == await rows_of(store)


@pytest.mark.requirement("G16")
async def test_space_that_returns_during_a_snapshot_is_no_broken_disk(replicas: Replicas) -> None:
    """What asks whether there is room again comes between two parts of the snapshot."""
    script = Script()
    options = Options(probe_interval_s=0.3, connect=script.connect)
    store, second = await away_for_long(replicas, options)
    script.failures["BEGIN IMMEDIATE"] = sqlite_error(sqlite3.SQLITE_FULL)
    asks = asyncio.Event()
    probe = second._local.database.probe

    def asked() -> None:
        asks.set()
        probe()

    replicas.repair()
    await eventually(lambda: second.statistics().is_full)
    second._local.database.probe = asked  # type: ignore[method-assign] # looks on
    script.waits["INSERT INTO rows"] = until(lambda: second._local.commits._probe_timer is None)
    await eventually(lambda: second.statistics().digest == store.statistics().digest)
    assert asks.is_set()
    await eventually(lambda: not second.statistics().is_full)
    assert isinstance(second.statistics().role, Follower)


@pytest.mark.requirement("G8", "G16")
async def test_master_without_a_writable_register_refuses_job_ids_until_it_is_writable(
    replicas: Replicas,
) -> None:
    store, lease = await three(replicas)
    replicas.full.add(N1)
    with pytest.raises(Refused, match=r"cannot reserve more job ids: .*no space left"):
        await store.raise_job_id_ceiling(lease, 3000)
    for name in replicas.names:
        register = replicas.registers[name].read()
        assert register is not None
        assert register.job_id_ceiling < 3000, "nobody may have heard of it"
    await store.commit(lease, put("x"))
    replicas.full.clear()
    await store.raise_job_id_ceiling(lease, 4000)
    assert (await store.members()).job_id_ceiling == 4000


@pytest.mark.requirement("G16")
@pytest.mark.parametrize(
    ("code", "error", "is_master"),
    [(sqlite3.SQLITE_READONLY, NotMaster, False), (sqlite3.SQLITE_FULL, Refused, True)],
)
async def test_unwritable_register_distinguishes_a_broken_from_a_full_disk(
    replicas: Replicas, code: int, error: type[GanetiError], *, is_master: bool
) -> None:
    script = Script()
    store = await replicas.open(N1, Options(connect=script.connect))
    lease = await become_master(store, VOTE)
    replicas.full.add(N1)
    script.failures["BEGIN IMMEDIATE"] = sqlite_error(code)
    with pytest.raises(error, match="state database"):
        await store.raise_job_id_ceiling(lease, 3000)
    assert isinstance(store.statistics().role, Master if is_master else Lost)
    assert store.statistics().is_full is is_master


@pytest.mark.requirement("G8")
async def test_job_ids_of_a_new_master_are_above_those_of_the_old_one(replicas: Replicas) -> None:
    store, lease = await three(replicas)
    await store.raise_job_id_ceiling(lease, 3000)
    replicas.cut_off(N1)
    await take_over(replicas, N3)
    assert (await replicas.stores[N3].members()).job_id_ceiling >= 3000


@pytest.mark.requirement("G8")
async def test_node_that_missed_a_ceiling_learns_it_with_the_next_change_of_the_sync_set(
    replicas: Replicas,
) -> None:
    store, lease = await three(replicas)
    replicas.silent_voters = {N3}
    await store.raise_job_id_ceiling(lease, 3000)
    await asyncio.sleep(0.1)
    register = replicas.registers[N3].read()
    assert register is not None
    assert register.job_id_ceiling < 3000
    replicas.silent_voters = set()
    version = register.accepted.version if register.accepted else 0
    replicas.cut_off(N2)

    def is_registered() -> bool:
        found = replicas.registers[N3].read()
        return bool(found and found.accepted and found.accepted.version > version)

    await eventually(is_registered)
    register = replicas.registers[N3].read()
    assert register is not None
    assert register.job_id_ceiling == 3000


@pytest.mark.requirement("G1", "F3")
async def test_majority_that_registered_an_older_set_does_not_elect_a_forced_master(
    five: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _lease = await forced_past(five, N4, N5)
    leader = store._term
    assert leader is not None
    real, agreed = leader._ask_to_accept, list[Accepted]()

    async def ask(
        accepted: Accepted,
        nodes: frozenset[NodeUuid],
        is_enough: Callable[[set[NodeUuid]], bool],
    ) -> bool:
        is_done = await real(accepted, nodes, is_enough)
        if is_done and accepted is leader._accepted:
            agreed.append(accepted)
            if len(agreed) == 1:  # another set is registered meanwhile, by force alone
                leader._version += 1
                leader._accepted = replace(accepted, version=leader._version)
        return is_done

    monkeypatch.setattr(leader, "_ask_to_accept", ask)
    five.silent_voters.clear()
    await eventually(lambda: not store.statistics().degraded)
    assert len(agreed) == 2
    assert agreed[1].version > agreed[0].version
