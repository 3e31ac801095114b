"""Restoring a backup: what comes back, what is refused, and what a failure leaves."""

import asyncio
import dataclasses
import io
import os
import sqlite3
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base import certificates as ca
from ganeti.base import tls
from ganeti.base.errors import ErrorCode, GanetiError, PrereqError, StoreError
from ganeti.base.files import exclusive_file
from ganeti.base.paths import Paths
from ganeti.bootstrap.membership import make_directories, write_identity
from ganeti.bootstrap.restore import GRANT_LEAP, restore
from ganeti.config.transaction import put_row
from ganeti.jobs.record import JOB_KIND, job_key
from ganeti.model import wire
from ganeti.model.job import OpState, StoredJob, UndoStep
from ganeti.model.names import JobStatus
from ganeti.model.objects import Disk, Grant, Instance, Node, NodeRow, NodeUuid
from ganeti.model.opcodes.test import OpTestDelay
from ganeti.model.recovery import NodeState
from ganeti.model.stored import Stored
from ganeti.recovery.grants import SHARED
from ganeti.store import restoring as restoring_module
from ganeti.store.archive import JobArchive
from ganeti.store.backup import read_backup, write_backup
from ganeti.store.database import History
from ganeti.store.database_reader import LogReader
from ganeti.store.election import FORCED_IDS, FORCED_STRIDE, FORMER_SILENCE_S, LastContact
from ganeti.store.encoding import MemberList, decode_ceiling, encode_ceiling
from ganeti.store.interface import (
    JOB_ID_CEILING_KEY,
    MEMBERS_KEY,
    META_KIND,
    ZERO,
    Identity,
    Position,
    Row,
)
from ganeti.store.preserved_states import preserved_states
from ganeti.store.register import Accepted, Answer, Promise, Register, RegisterFile
from ganeti.store.restoring import present_state_at, replace_state, rows_at
from ganeti.store.worker import Worker
from tests.support.predictable import FrozenClock
from tests.unit.config.sample import (
    CLUSTER_UUID,
    NODES,
    sample_cluster,
    sample_group,
    sample_instance,
    sample_node,
)
from tests.unit.store.conformance import MemorySink
from tests.unit.store.scripted_connection import Script, sqlite_error

KEY = ca.new_key()
AUTHORITY_KEY = ca.new_key()
AUTHORITY = ca.new_authority(AUTHORITY_KEY, "c.example", CLUSTER_UUID, 1_790_000_000.0)
REQUEST = ca.signing_request(KEY, "node1.example.com")
CERTIFICATE = ca.sign_node(
    AUTHORITY,
    AUTHORITY_KEY,
    REQUEST,
    node_uuid=NODES[0],
    node_name="node1.example.com",
    now=1_790_000_000.0,
)
IDENTITY = Identity(CLUSTER_UUID, NODES[0])
AT = Position(3, 40)
MEMBERS = MemberList(frozenset(NODES), frozenset(NODES))
DELAY = OpTestDelay(duration=0.0)


def job(job_id: int, *statuses: JobStatus, **fields: object) -> StoredJob:
    ops = tuple(OpState(op=DELAY, status=status) for status in statuses)
    return msgspec.structs.replace(StoredJob(id=job_id, ops=ops, received=10.0), **fields)


def row_of(stored: StoredJob) -> Row:
    return Row(JOB_KIND, job_key(stored.id), wire.encode(stored))


def content(*more: Row) -> list[Row]:
    own = sample_node(1, certificate=tls.fingerprint(CERTIFICATE))
    things: list[Stored] = [
        sample_cluster(),
        sample_group(),
        own,
        sample_node(2),
        sample_node(3),
    ]
    rows = [Row(put.kind, put.key, put.value) for put in (put_row(thing) for thing in things)]
    rows.append(Row(META_KIND, MEMBERS_KEY, MEMBERS.encode()))
    rows.append(Row(META_KIND, JOB_ID_CEILING_KEY, encode_ceiling(2000)))
    return sorted([*rows, *more], key=lambda row: (row.kind.encode(), row.key.encode()))


def backup_of(rows: list[Row], cluster: str = CLUSTER_UUID, at: Position = AT) -> bytes:
    async def stream() -> AsyncIterator[Position | Row]:
        yield at
        for row in rows:
            yield row

    sink = MemorySink()
    asyncio.run(write_backup(stream(), sink, cluster))
    return bytes(sink.data)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return member(tmp_path / "root")


def member(root: Path) -> Paths:
    """A candidate that was the master alone in epoch 5."""
    root.mkdir()
    paths = Paths(root)
    make_directories(paths, [])
    write_identity(paths, KEY, CERTIFICATE, AUTHORITY)
    accepted = Accepted(5, 2, NODES[0], frozenset(NODES[:1]), 3000, frozenset(NODES))
    register = Register(CLUSTER_UUID, Promise(6, NODES[1]), accepted)
    RegisterFile(paths.register).decide(lambda _old: Answer(True, register))
    return paths


class Nodes:
    """Nodes that answer: which master they hear."""

    def __init__(self, heard: dict[NodeUuid, LastContact | None] | None = None) -> None:
        self.heard = dict.fromkeys(NODES) if heard is None else heard
        self.asked: list[NodeUuid] = []

    async def ask(self, nodes: Iterable[Node]) -> dict[NodeUuid, LastContact | None]:
        self.asked = [node.uuid for node in nodes]
        return {uuid: self.heard[uuid] for uuid in self.asked if uuid in self.heard}


def restored(
    paths: Paths,
    data: bytes,
    *,
    is_sure: bool = False,
    is_undo: bool = False,
    nodes: Nodes | None = None,
) -> list[str]:
    file = paths.root / "backup"
    file.write_bytes(data)
    ask = (nodes or Nodes()).ask
    wanted = {"is_sure": is_sure, "is_undo": is_undo}
    done = asyncio.run(restore(paths, file, clock=FrozenClock(), ask_nodes=ask, **wanted))
    return done.lines


def state_of(paths: Paths) -> dict[tuple[str, str], bytes]:
    return {(row.kind, row.key): row.value for row in rows_at(paths.state)}


def ceiling_of(rows: dict[tuple[str, str], bytes]) -> int:
    return decode_ceiling(rows[META_KIND, JOB_ID_CEILING_KEY])


@pytest.mark.requirement("G8")
def test_epochs_and_job_ids_continue_far_beyond_all_known_ones(paths: Paths) -> None:
    lines = restored(paths, backup_of(content()))
    rows = state_of(paths)
    found = present_state_at(paths.state, IDENTITY)
    register = RegisterFile(paths.register).read()
    assert register is not None
    accepted = register.accepted
    assert accepted is not None
    assert found.position == Position(accepted.epoch, 1)
    assert found.epoch == accepted.epoch == register.promised.epoch > 6 + FORCED_STRIDE
    assert (accepted.master, accepted.sync_set) == (NODES[0], frozenset(NODES[:1]))
    assert accepted.voters == frozenset(NODES)
    assert ceiling_of(rows) == accepted.job_id_ceiling >= 3000 + FORCED_IDS
    assert any("epoch 5" in line for line in lines)
    assert paths.state.stat().st_mode & 0o777 == 0o600


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["joblog", "x", "ünï"]), st.text(max_size=20).filter(bool)),
        st.binary(max_size=3000),
        max_size=30,
    )
)
def test_whatever_rows_there_are_come_back(
    tmp_path_factory: pytest.TempPathFactory, more: dict[tuple[str, str], bytes]
) -> None:
    legal = {name: value for name, value in more.items() if name[1].encode("utf-8", "ignore")}
    encodable = {
        name: value for name, value in legal.items() if _is_utf8(name[0]) and _is_utf8(name[1])
    }
    rows = content(*(Row(kind, key, value) for (kind, key), value in encodable.items()))
    paths = member(tmp_path_factory.mktemp("m") / "root")
    restored(paths, backup_of(rows))
    found = state_of(paths)
    found[META_KIND, JOB_ID_CEILING_KEY] = encode_ceiling(2000)
    assert found == {(row.kind, row.key): row.value for row in rows}


def _is_utf8(text: str) -> bool:
    return text == text.encode("utf-8", "replace").decode()


@pytest.mark.requirement("D12", "D7")
def test_rows_of_automatic_recovery_are_not_trusted_after_a_restore(paths: Paths) -> None:
    fenced = NodeRow(NODES[1], NodeState.FENCED, 3, why="power off")
    armed = NodeRow(NODES[2], NodeState.HEALTHY, 3, is_armed=True)
    of_now = {
        ("node", row.node): put_row(sample_node(number, recovery=row)).value
        for number, row in ((2, fenced), (3, armed))
    }
    rows = [
        Row(row.kind, row.key, of_now.get((row.kind, NodeUuid(row.key)), row.value))
        for row in content()
    ]
    lines = restored(paths, backup_of(rows))
    assert any("(node2.example.com, node3.example.com)" in line for line in lines)
    before, found = {(row.kind, row.key): row.value for row in content()}, state_of(paths)
    assert found.pop((META_KIND, JOB_ID_CEILING_KEY))
    assert found == {key: value for key, value in before.items() if key in found}


@pytest.mark.requirement("D8")
def test_restored_grants_are_later_than_the_records_of_nodes(paths: Paths) -> None:
    grant = Grant(7, frozenset({SHARED}), NODES[0], 3)
    disk = Disk(uuid="d1", size=1, template="sharedfile", grant=grant)
    (found,) = restored_instance(paths, disks=(disk,)).disks
    assert found.grant == dataclasses.replace(grant, generation=7 + GRANT_LEAP)


@pytest.mark.requirement("D1", "D3")
def test_second_copy_counts_after_a_restore_only_when_it_is_synchronised(paths: Paths) -> None:
    grant = Grant(7, frozenset(NODES[:2]), NODES[0], 3)
    disk = Disk(uuid="d1", size=1, template="drbd", grant=grant)
    (found,) = restored_instance(paths, disks=(disk,)).disks
    assert found.grant is not None
    assert found.grant.current == {NODES[0]}


@pytest.mark.requirement("D7")
def test_restored_instance_is_protected_when_its_node_has_confirmed_that_again(
    paths: Paths,
) -> None:
    assert not restored_instance(paths, under_lease=True).under_lease


def restored_instance(paths: Paths, **fields: Any) -> Instance:
    put = put_row(msgspec.structs.replace(sample_instance(1), **fields))
    restored(paths, backup_of(content(Row(put.kind, put.key, put.value))))
    return wire.decode(state_of(paths)[put.kind, put.key], Instance)


@pytest.mark.requirement("G7", "G11")
def test_jobs_that_had_not_ended_neither_run_nor_are_undone(paths: Paths) -> None:
    S = JobStatus  # noqa: N806 - short for a table
    undo = (UndoStep("blockdev_remove", {}),)
    jobs = [
        job(1, S.SUCCESS, end=11.0),
        job(2, S.QUEUED, S.QUEUED),
        job(3, S.SUCCESS, S.RUNNING, S.QUEUED, undo=undo, cancel_requested=True),
        job(4, S.RUNNING),
    ]

    async def archive() -> None:
        worker = Worker("archive")
        archive = await JobArchive.open(paths.job_archive, worker)
        await archive.append([(4, b"how it ended")])
        await archive.close()
        await worker.close()

    asyncio.run(archive())
    lines = restored(paths, backup_of(content(*map(row_of, jobs))))
    found = {
        wire.decode(value, StoredJob).id: wire.decode(value, StoredJob)
        for (kind, _), value in state_of(paths).items()
        if kind == JOB_KIND
    }
    assert found.keys() == {1, 2, 3}  # how the fourth ended is in the archive
    assert found[1] == jobs[0]
    for job_id in (2, 3):
        assert found[job_id].undo == ()
        assert not found[job_id].cancel_requested
        assert found[job_id].end is not None
    assert [state.status for state in found[3].ops] == [S.SUCCESS, S.ERROR, S.ERROR]
    assert "not known" in str(found[3].ops[1].result)
    assert any("2 jobs had not ended" in line and "2, 3" in line for line in lines)


@pytest.mark.requirement("G3")
def test_a_damaged_or_hostile_file_changes_nothing(paths: Paths) -> None:
    data = backup_of(content(Row("x", "k", bytes(5000))))
    head, _, rest = data.partition(b"\n")
    huge = head + b"\n" + b"\x01\x00\x01" + b"\xff" * 8 + rest
    step = max(1, len(data) // 60)
    hostile = [data[:length] for length in range(0, len(data), step)]
    hostile += [data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :] for i in range(0, len(data), step)]
    hostile += [huge, data + b"x", head.replace(b"1", b"true", 1) + b"\n" + rest, b"[" * 5000]
    before = RegisterFile(paths.register).read()
    for wrong in hostile:
        with pytest.raises(GanetiError):
            restored(paths, wrong)
    assert not paths.state.exists()
    assert RegisterFile(paths.register).read() == before


def test_a_value_of_gigabytes_is_refused_before_it_is_read() -> None:
    class Endless(io.RawIOBase):
        given = 0

        def read(self, size: int = -1) -> bytes:
            self.given += size
            return b"\xff" * size

    source = Endless()
    start = io.BytesIO(backup_of([]).partition(b"\n")[0] + b"\n\x01")

    def read(size: int) -> bytes:
        return start.read(size) or source.read(size)

    with pytest.raises(StoreError, match="larger than any"):
        list(read_backup(read))
    assert source.given < 100


def test_rows_out_of_order_or_twice_are_refused(paths: Paths) -> None:
    row = Row("x", "k", b"")
    for rows in ([*content(), row, row], [Row("z", "z", b""), *content()]):
        with pytest.raises(StoreError, match="not in order"):
            restored(paths, backup_of(rows))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (backup_of(content(), cluster="another"), "is of cluster another"),
        (backup_of([]), "no configuration"),
        (
            backup_of([row for row in content() if row.key != NODES[0]]),
            "this node is not a master candidate in the backup",
        ),
    ],
)
def test_a_backup_that_does_not_belong_here_is_refused(paths: Paths, data: bytes, why: str) -> None:
    with pytest.raises(GanetiError, match=why):
        restored(paths, data, is_sure=True)
    assert not paths.state.exists()


def test_only_a_regular_file_is_read(paths: Paths) -> None:
    os.mkfifo(paths.root / "pipe")
    ask = Nodes().ask
    for name in ("pipe", "nothing", "."):
        with pytest.raises(PrereqError):
            asyncio.run(restore(paths, paths.root / name, clock=FrozenClock(), ask_nodes=ask))


def test_newer_states_are_discarded_only_on_request(paths: Paths) -> None:
    newer = [Row("instance", "i", b'{"name": "web9"}'), row_of(job(77, JobStatus.SUCCESS))]
    replace_state(paths.state, IDENTITY, History(Position(5, 9), b"x" * 16), newer)
    data = backup_of(content())
    with pytest.raises(PrereqError, match="newer than the backup") as refused:
        restored(paths, data)
    assert refused.value.code == ErrorCode.EXISTS
    lines = "\n".join(restored(paths, data, is_sure=True))
    assert "lost: 1 instances (web9)" in lines
    assert "lost: 1 jobs (77)" in lines
    assert "state.db.aside-5-9" in lines
    kept = Paths(paths.root).state.with_name("state.db.aside-5-9")
    with sqlite3.connect(kept) as old:
        assert old.execute("SELECT count(*) FROM rows").fetchone() == (2,)
    old.close()


def test_a_state_of_which_the_backup_was_made_needs_no_copy(paths: Paths) -> None:
    replace_state(paths.state, IDENTITY, History(AT, b"x" * 16), content())
    data = backup_of(content())
    restored(paths, data, is_sure=True)
    assert preserved_states(paths.state) == []
    reader = LogReader(paths.state)
    try:
        before = Position(AT.epoch, AT.serial - 1)
        assert reader.shared_with(History(before, b"x" * 16)) == before, "a follower needs none"
        after = Position(AT.epoch, AT.serial + 1)
        assert reader.shared_with(History(after, b"x" * 16)) == ZERO
    finally:
        reader.close()


def test_an_attempt_that_is_taken_back_leaves_no_copy(paths: Paths) -> None:
    replace_state(paths.state, IDENTITY, History(Position(900, 2), b"x" * 16), content())
    restored(paths, backup_of(content()), is_sure=True, is_undo=True)
    assert preserved_states(paths.state) == []


def test_others_that_had_the_last_state_come_first(paths: Paths) -> None:
    both = Accepted(5, 3, NODES[0], frozenset(NODES[:2]), 3000, frozenset(NODES))
    register = Register(CLUSTER_UUID, Promise(6, NODES[1]), both)
    RegisterFile(paths.register).decide(lambda _old: Answer(True, register))
    with pytest.raises(PrereqError, match=r"node2\.example\.com had the last state"):
        restored(paths, backup_of(content()))
    restored(paths, backup_of(content()), is_sure=True)


@pytest.mark.requirement("G2", "G4")
def test_restore_is_refused_while_a_node_has_contact_with_another_master(paths: Paths) -> None:
    before = RegisterFile(paths.register).read()
    nodes = Nodes(
        {NODES[0]: None, NODES[1]: None, NODES[2]: LastContact(NODES[1], FORMER_SILENCE_S - 0.1)}
    )
    with pytest.raises(
        PrereqError, match=r"node2\S* is the master: its last contact with node3\S* was 9\.9 s ago"
    ):
        restored(paths, backup_of(content()), is_sure=True, nodes=nodes)
    assert not paths.state.exists()
    assert RegisterFile(paths.register).read() == before


@pytest.mark.parametrize(
    "heard", [LastContact(NODES[1], FORMER_SILENCE_S), LastContact(NODES[0], 0.0)]
)
def test_a_master_that_is_gone_or_was_here_is_no_obstacle(paths: Paths, heard: LastContact) -> None:
    lines = restored(paths, backup_of(content()), nodes=Nodes(dict.fromkeys(NODES, heard)))
    assert not any("did not report whether" in line for line in lines)


def test_restore_reports_nodes_without_an_answer(paths: Paths) -> None:
    offline = sample_node(3, offline=True)
    put = put_row(offline)
    rows = [Row(put.kind, put.key, put.value) if row.key == NODES[2] else row for row in content()]
    nodes = Nodes({})
    lines = restored(paths, backup_of(rows), nodes=nodes)
    assert nodes.asked == list(NODES[:2])
    assert any("node2.example.com did not report" in line for line in lines)


def test_unreadable_state_is_moved_away(paths: Paths) -> None:
    paths.state.write_bytes(b"no database" * 1000)
    with pytest.raises(PrereqError, match="cannot be opened"):
        restored(paths, backup_of(content()))
    assert any("damaged-1" in line for line in restored(paths, backup_of(content()), is_sure=True))
    assert paths.state.with_name("state.db.damaged-1").read_bytes().startswith(b"no database")


def test_a_master_daemon_that_runs_keeps_its_state(paths: Paths) -> None:
    with (
        exclusive_file(paths.state.with_name("state.db.lock")),
        pytest.raises(StoreError, match="stop ganeti-masterd"),
    ):
        restored(paths, backup_of(content()))


STEPS = ("BEGIN IMMEDIATE", "DELETE FROM log", "DELETE FROM rows", "INSERT INTO rows",
         "INSERT INTO meta", "COMMIT", "VACUUM INTO")  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.requirement("G3", "G16")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR])
def test_wherever_writing_fails_the_old_state_stays_and_a_second_try_succeeds(
    paths: Paths, step: str, code: int
) -> None:
    old = [Row("instance", "i", b'{"name": "web9"}')]
    replace_state(paths.state, IDENTITY, History(Position(2, 1), b"x" * 16), old)
    script = Script()
    history = History(Position(2000, 1), b"y" * 16)

    def connect(path: Path) -> sqlite3.Connection:
        connection = script.connect(path)
        connection.is_writer = True  # type: ignore[attr-defined] # the script's own class
        script.failures[step] = sqlite_error(code)
        return connection

    with pytest.raises(StoreError):
        replace_state(paths.state, IDENTITY, history, content(), connect)
    assert state_of(paths) == {("instance", "i"): b'{"name": "web9"}'}
    replace_state(paths.state, IDENTITY, history, content())
    assert len(state_of(paths)) == len(content())


@pytest.mark.requirement("G8", "G11")
def test_repeated_restore_repairs_a_crash_before_the_register(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Death(Exception):
        pass

    def die(*_args: object) -> None:
        raise Death

    before = RegisterFile(paths.register).read()
    with monkeypatch.context() as patched:
        patched.setattr(restoring_module, "register_restored", die)
        with pytest.raises(Death):
            restored(paths, backup_of(content()))
    assert RegisterFile(paths.register).read() == before
    first = present_state_at(paths.state, IDENTITY)
    restored(paths, backup_of(content()), is_sure=True)
    second = present_state_at(paths.state, IDENTITY)
    assert second.position.epoch > first.position.epoch + FORCED_STRIDE
    assert second.job_id_ceiling >= first.job_id_ceiling + FORCED_IDS
