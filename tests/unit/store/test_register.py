"""The node's register: its rules, and that nothing is granted which is not on disk."""

import errno
import os
import stat
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import StoreError
from ganeti.base.files import write_atomically
from ganeti.model.objects import NodeUuid
from ganeti.store import register as register_module
from ganeti.store.backends import join_cluster
from ganeti.store.election import NoVote, Vote
from ganeti.store.epochs import LEAP
from ganeti.store.interface import MAX_EPOCH, CampaignKind, Identity
from ganeti.store.ports import LocalVoter
from ganeti.store.register import (
    Accepted,
    AcceptRequest,
    Answer,
    MemoryRegister,
    Promise,
    PromiseRequest,
    Register,
    RegisterFile,
    accept,
    check_epoch,
    decode_register,
    encode_register,
    join,
    promise,
)

CLUSTER = "cluster-1"
A, B = NodeUuid("node-a"), NodeUuid("node-b")


def promised(epoch: int, candidate: NodeUuid = A) -> Register:
    return Register(CLUSTER, Promise(epoch, candidate))


def accepting(epoch: int, version: int = 0, master: NodeUuid = A, ceiling: int = 0) -> Accepted:
    return Accepted(epoch, version, master, frozenset((master,)), ceiling)


def request(accepted: Accepted, cluster: str = CLUSTER) -> AcceptRequest:
    return AcceptRequest(cluster, accepted)


@pytest.mark.requirement("G4")
@pytest.mark.parametrize(
    ("epoch", "granted"),
    [(4, False), (5, False), (6, True), (5 + LEAP, True), (6 + LEAP, False), (MAX_EPOCH, False)],
)
def test_only_a_greater_epoch_is_promised(epoch: int, granted: bool) -> None:
    answer = promise(promised(5, A), PromiseRequest(CLUSTER, epoch, A))
    assert answer.granted is granted
    assert answer.register == (promised(epoch, A) if granted else promised(5, A))
    assert bool(answer.reason) is not granted


def test_a_node_without_a_register_promises_nothing_and_accepts_nothing() -> None:
    for answer in (
        promise(None, PromiseRequest(CLUSTER, 1, A)),
        accept(None, request(accepting(1))),
        check_epoch(None, 1, A),
    ):
        assert answer == Answer(False, None, answer.reason)
        assert "only a join" in answer.reason


def test_a_node_without_a_register_lets_a_join_pass() -> None:
    assert check_epoch(None, 3, A, joining=True) == Answer(True, None)
    assert join(None, PromiseRequest(CLUSTER, 3, A)) == Answer(True, promised(3, A))
    assert not join(None, PromiseRequest(CLUSTER, -1, A)).granted


def test_joining_again_is_harmless_and_never_goes_back() -> None:
    assert join(promised(3), PromiseRequest(CLUSTER, 3, A)) == Answer(True, promised(3))
    assert join(promised(3), PromiseRequest(CLUSTER, 4, B)) == Answer(True, promised(4, B))
    assert not join(promised(3), PromiseRequest(CLUSTER, 2, A)).granted


def test_another_cluster_gets_nothing() -> None:
    old = promised(3)
    for answer in (
        join(old, PromiseRequest("cluster-2", 9, A)),
        promise(old, PromiseRequest("cluster-2", 9, A)),
        accept(old, request(accepting(9), "cluster-2")),
    ):
        assert not answer.granted
        assert answer.register == old
        assert "belongs to cluster cluster-1" in answer.reason


@pytest.mark.requirement("G4", "A26")
@pytest.mark.parametrize(
    ("epoch", "master", "granted"),
    [(4, A, False), (4, B, False), (5, A, True), (5, B, False), (6, B, True), (-1, A, False)],
)
def test_calls_of_older_epochs_and_other_masters_are_refused(
    epoch: int, master: NodeUuid, granted: bool
) -> None:
    answer = check_epoch(promised(5, A), epoch, master)
    assert answer.granted is granted
    assert answer.register == (promised(epoch, master) if granted else promised(5, A))


def test_a_master_is_registered_with_its_set() -> None:
    answer = accept(promised(5), request(accepting(5)))
    assert answer.register == replace(promised(5), accepted=accepting(5))


@pytest.mark.requirement("G4")
def test_an_accepted_greater_epoch_is_promised_too() -> None:
    answer = accept(promised(5), request(accepting(7, master=B)))
    assert answer.register == Register(CLUSTER, Promise(7, B), accepting(7, master=B))
    assert not promise(answer.register, PromiseRequest(CLUSTER, 7, A)).granted


@pytest.mark.parametrize(
    "wrong",
    [
        accepting(4),
        accepting(5, 2, master=B),
        accepting(5, 0),
        replace(accepting(5, 1), sync_set=frozenset((A, B))),
        replace(accepting(5, 2), sync_set=frozenset((B,))),
    ],
    ids=["older epoch", "other master", "older version", "other set", "set without the master"],
)
def test_a_registration_that_contradicts_an_earlier_one_is_refused(wrong: Accepted) -> None:
    old = replace(promised(5), accepted=accepting(5, 1))
    answer = accept(old, request(wrong))
    assert not answer.granted
    assert answer.register == old


@pytest.mark.requirement("G8")
def test_the_ceiling_of_job_ids_never_goes_back() -> None:
    old = replace(promised(5), accepted=accepting(5, 0, ceiling=3000))
    for new in (accepting(5, 0, ceiling=2000), accepting(6, 0, B, ceiling=0)):
        register = accept(old, request(new)).register
        assert register is not None
        assert register.job_id_ceiling == 3000
    raised = accept(old, request(accepting(5, 0, ceiling=4000))).register
    assert raised is not None
    assert raised.job_id_ceiling == 4000


EPOCHS = st.integers(-1, 6)
NODES = st.sampled_from([A, B])
REQUESTS = st.one_of(
    st.tuples(st.just("promise"), EPOCHS, NODES, st.just(0)),
    st.tuples(st.just("accept"), EPOCHS, NODES, st.integers(0, 3)),
    st.tuples(st.just("call"), EPOCHS, NODES, st.just(0)),
    st.tuples(st.just("join"), EPOCHS, NODES, st.just(0)),
)


@pytest.mark.requirement("G4")
@given(st.lists(REQUESTS, max_size=30))
def test_an_epoch_belongs_to_one_node_and_never_goes_back(
    history: list[tuple[str, int, NodeUuid, int]],
) -> None:
    register: Register | None = None
    owners: dict[int, NodeUuid] = {}
    promises: set[int] = set()
    for what, epoch, node, version in history:
        before = register.promised.epoch if register else 0
        if what == "promise":
            answer = promise(register, PromiseRequest(CLUSTER, epoch, node))
            assert not (answer.granted and epoch in promises), "promised twice"
            promises |= {epoch} if answer.granted else set()
        elif what == "accept":
            answer = accept(register, request(accepting(epoch, version, node)))
        elif what == "call":
            answer = check_epoch(register, epoch, node)
        else:
            answer = join(register, PromiseRequest(CLUSTER, epoch, node))
        if answer.granted:
            assert epoch >= before
            assert owners.setdefault(epoch, node) == node, "two masters in one epoch"
            register = answer.register
            assert register is not None
            register.validate()
            assert decode_register(encode_register(register)) == register
        else:
            assert answer.register == register


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "register"


def joined(path: Path) -> RegisterFile:
    register = RegisterFile(path)
    assert register.decide(lambda old: join(old, PromiseRequest(CLUSTER, 0, A))).granted
    return register


def test_a_promise_is_on_disk_before_it_is_given(path: Path) -> None:
    written: list[bytes] = []

    def write(target: Path, data: bytes) -> None:
        written.append(data)
        write_atomically(target, data)

    joined(path)
    register = RegisterFile(path, write=write)
    answer = register.decide(lambda old: promise(old, PromiseRequest(CLUSTER, 4, B)))
    assert answer.granted
    assert [decode_register(data) for data in written] == [promised(4, B)]
    assert RegisterFile(path).read() == promised(4, B)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_changes_nothing_is_not_written(path: Path) -> None:
    joined(path)

    def write(target: Path, data: bytes) -> None:
        raise AssertionError("written")

    register = RegisterFile(path, write=write)
    assert register.decide(lambda old: check_epoch(old, 0, A)).granted
    assert not register.decide(lambda old: promise(old, PromiseRequest(CLUSTER, 0, A))).granted
    assert register.read() == promised(0)


@pytest.mark.requirement("F1", "G16")
def test_a_full_disk_grants_nothing_and_keeps_the_old_promise(path: Path) -> None:
    joined(path)

    def write(target: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    register = RegisterFile(path, write=write)
    with pytest.raises(StoreError, match=str(path)):
        register.decide(lambda old: promise(old, PromiseRequest(CLUSTER, 4, B)))
    assert register.read() == promised(0)
    assert register.decide(lambda old: check_epoch(old, 0, A)).granted


@pytest.mark.requirement("G4")
@pytest.mark.parametrize("reader", ["a process that starts", "a process that has read before"])
def test_what_a_killed_process_left_is_synced_before_it_is_answered(
    path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    """It may have died between the change of the name and the sync of the directory."""
    joined(path)
    synced: list[Path] = []
    register = RegisterFile(path)
    if reader != "a process that starts":
        register.read()
    left = path.with_name("left")
    left.write_bytes(encode_register(promised(4, B)))
    left.rename(path)
    monkeypatch.setattr(register_module, "sync_file", synced.append)
    monkeypatch.setattr(register_module, "sync_directory", synced.append)
    assert register.read() == promised(4, B)
    assert synced == [path, path.parent]
    register.read()
    assert len(synced) == 2, "what is known to be on disk costs nothing"


@pytest.mark.requirement("G4", "G16")
def test_a_register_that_cannot_be_synced_is_not_answered(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined(path)
    register = RegisterFile(path)

    def fail(directory: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(register_module, "sync_directory", fail)
        for _ in range(2):
            with pytest.raises(StoreError, match="cannot sync the register"):
                register.read()
    assert register.read() == promised(0)


@pytest.mark.requirement("G3")
@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "format"])
def test_a_damaged_register_is_refused_loudly(path: Path, damage: str) -> None:
    register = joined(path)
    data = path.read_bytes()
    flipped = bytearray(data)
    flipped[20] ^= 1
    damaged = {
        "cut": data[:-10],
        "bit": bytes(flipped),
        "empty": b"",
        "format": data.replace(b'"format": 1', b'"format": 2'),
    }[damage]
    path.write_bytes(damaged)
    with pytest.raises(StoreError, match="damaged"):
        register.read()
    with pytest.raises(StoreError, match="damaged"):
        register.decide(lambda old: join(old, PromiseRequest(CLUSTER, 9, B)))
    assert path.read_bytes() == damaged


@pytest.mark.requirement("G4")
def test_threads_and_processes_never_share_an_epoch(path: Path) -> None:
    joined(path)
    granted: list[tuple[int, str]] = []

    def ask(candidate: NodeUuid) -> None:
        own = RegisterFile(path)  # as another process would
        for epoch in range(1, 30):
            wanted = PromiseRequest(CLUSTER, epoch, candidate)
            if own.decide(partial(promise, request=wanted)).granted:
                granted.append((epoch, candidate))

    threads = [threading.Thread(target=ask, args=(NodeUuid(name),)) for name in "xyz"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    epochs = [epoch for epoch, _ in granted]
    assert sorted(epochs) == sorted(set(epochs))
    assert max(epochs) == 29


def test_a_register_without_a_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="directory of the register"):
        RegisterFile(tmp_path / "none" / "register").read()


def test_a_register_may_be_removed_when_the_node_leaves(path: Path) -> None:
    register = joined(path)
    register.remove()
    register.remove()
    assert register.read() is None


async def test_local_voter_gives_its_reason_and_answers_only_for_itself() -> None:
    keeper = MemoryRegister()
    voter = LocalVoter(A, keeper)
    assert await voter.read(A) == NoVote("the node has not joined a cluster")
    join_cluster(keeper, Identity(CLUSTER, A))
    granted = await voter.promise(A, PromiseRequest(CLUSTER, 2, A), CampaignKind.VOTE)
    assert granted == Vote(True, promised(2))
    join_cluster(keeper, Identity(CLUSTER, A))
    assert await voter.read(A) == Vote(True, promised(2))
    refused = await voter.promise(A, PromiseRequest(CLUSTER, 2, B), CampaignKind.FORCE)
    assert isinstance(refused, Vote)
    assert not refused.granted
    assert "not greater than 2" in refused.reason
    assert isinstance(await voter.renew(B, CLUSTER, 2), NoVote)
    with pytest.raises(StoreError, match="belongs to cluster"):
        join_cluster(keeper, Identity("cluster-2", A))
