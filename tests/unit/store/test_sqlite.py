"""The embedded store: the conformance suite, damage, broken and full disks, and kill -9."""

import asyncio
import errno
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ganeti.base.errors import CommitUnknown, NotMaster, Refused, StoreError
from ganeti.model.objects import NodeUuid
from ganeti.store.backend import StateBackend, become_master
from ganeti.store.database import Limits
from ganeti.store.database_reader import LogReader
from ganeti.store.embedded import EmbeddedStore
from ganeti.store.encoding import EncodedEntry, decode_transaction
from ganeti.store.interface import (
    ZERO,
    Delete,
    Identity,
    Lease,
    Lost,
    Master,
    Position,
    Put,
    Transaction,
)
from ganeti.store.local_log import Options
from ganeti.store.ports import alone
from ganeti.store.register import (
    MemoryRegister,
    Promise,
    PromiseRequest,
    Register,
    RegisterFile,
    join,
)
from ganeti.store.worker import Worker
from tests.unit.store.conformance import (
    CLUSTER,
    NODE,
    VOTE,
    Harness,
    StoreConformance,
    keys_of,
    put,
    rows_of,
)
from tests.unit.store.scripted_connection import Script, sqlite_error

CHILD = Path(__file__).with_name("committing_child.py")
ROUNDS = 4


def registered() -> MemoryRegister:
    return MemoryRegister(Register(CLUSTER, Promise(0, NODE)))


class SqliteHarness(Harness):
    def __init__(self, directory: Path) -> None:
        self.path = directory / "state.db"
        self.ports = alone(NODE, registered())
        self.script = Script()

    async def open(self, *, log_entries: int = 20_000) -> EmbeddedStore:
        options = Options(
            Limits(log_entries=log_entries), 0.01, self.script.connect, self.script.sync
        )
        return await EmbeddedStore.open(self.path, Identity(CLUSTER, NODE), self.ports, options)

    def fill(self, store: StateBackend) -> None:
        self.script.max_pages = 0

    async def free(self, store: StateBackend) -> None:
        self.script.max_pages = 1 << 30
        while store.statistics().is_full:  # noqa: ASYNC110 - the store tells nobody when it probes
            await asyncio.sleep(0.005)

    def hold_sync(self, store: StateBackend) -> None:
        self.script.waits["SYNC"] = until(lambda: store.statistics().waiting > 0)


def until(condition: Callable[[], bool], deadline_s: float = 5.0) -> Callable[[], None]:
    """For the writer thread: wait for something that the loop does."""

    def wait() -> None:
        give_up = time.monotonic() + deadline_s
        while not condition() and time.monotonic() < give_up:
            time.sleep(0.001)

    return wait


@pytest.fixture
def harness(tmp_path: Path) -> SqliteHarness:
    return SqliteHarness(tmp_path)


class TestEmbeddedStore(StoreConformance):
    """What every back end does, on a real file and with one voter."""


async def opened(harness: SqliteHarness) -> tuple[EmbeddedStore, Lease]:
    store = await harness.open()
    return store, await become_master(store, VOTE)


@pytest.mark.requirement("G23", "A59")
async def test_all_files_are_private_whatever_the_umask(harness: SqliteHarness) -> None:
    before = os.umask(0)
    try:
        store, lease = await opened(harness)
        await store.commit(lease, put("a"))
        modes = {
            path.name: stat.S_IMODE(path.stat().st_mode) for path in harness.path.parent.iterdir()
        }
        await store.close()
    finally:
        os.umask(before)
    assert set(modes) >= {"state.db", "state.db-wal", "state.db-shm", "state.db.lock"}
    assert set(modes.values()) == {0o600}


@pytest.mark.requirement("G4")
async def test_a_database_has_one_user_at_a_time(harness: SqliteHarness) -> None:
    store = await harness.open()
    with pytest.raises(StoreError, match="in use by another process"):
        await harness.open()
    await store.close()
    await (await harness.open()).close()


async def test_a_database_of_another_cluster_or_node_is_refused(harness: SqliteHarness) -> None:
    await (await harness.open()).close()
    for identity in (Identity("cluster-2", NODE), Identity(CLUSTER, NodeUuid("node-2"))):
        with pytest.raises(StoreError, match="instead of "):
            await EmbeddedStore.open(harness.path, identity, harness.ports)


async def test_a_database_of_a_newer_version_is_refused(harness: SqliteHarness) -> None:
    await (await harness.open()).close()
    with sqlite3.connect(harness.path) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(StoreError, match="newer release"):
        await harness.open()


@pytest.mark.requirement("G3")
async def test_a_file_that_is_no_database_is_refused_and_kept(harness: SqliteHarness) -> None:
    harness.path.write_bytes(b"something else\n" * 1000)
    with pytest.raises(StoreError, match="cannot open the database"):
        await harness.open()
    assert harness.path.read_bytes().startswith(b"something else")


@pytest.mark.requirement("G3")
async def test_a_damaged_page_is_refused_when_opened(harness: SqliteHarness) -> None:
    store, lease = await opened(harness)
    for number in range(50):
        await store.commit(lease, put(str(number), bytes(2000)))
    await store.close()
    data = bytearray(harness.path.read_bytes())
    data[4096:12288] = os.urandom(8192)
    harness.path.write_bytes(data)
    with pytest.raises(StoreError, match="move it away"):
        await harness.open()


@pytest.mark.requirement("G3")
async def test_a_damaged_row_is_never_given_out(harness: SqliteHarness) -> None:
    store, lease = await opened(harness)
    await store.commit(lease, put("web1", "aaaa"))
    await store.close()
    with sqlite3.connect(harness.path) as connection:
        connection.execute("UPDATE rows SET value = X'61616162'")
    connection.close()
    store = await harness.open()
    lease = await become_master(store, VOTE)
    with pytest.raises(StoreError, match="instance/web1 is damaged"):
        await rows_of(store)
    assert isinstance(store.statistics().role, Lost)
    with pytest.raises(NotMaster):
        await store.commit(lease, put("b"))
    await store.close()


@pytest.mark.requirement("G16")
@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("SYNC", OSError(errno.EIO, "I/O error")),
        ("SYNC", OSError(errno.ENOSPC, "no space for what was written")),
        ("COMMIT", sqlite_error(sqlite3.SQLITE_IOERR_WRITE)),
    ],
)
async def test_a_failed_sync_is_unknown_and_ends_the_store(
    harness: SqliteHarness, step: str, error: OSError | sqlite3.Error
) -> None:
    store, lease = await opened(harness)
    await store.commit(lease, put("before"))
    harness.script.failures[step] = error
    harness.hold_sync(store)
    first = asyncio.create_task(store.commit(lease, put("first")))
    await asyncio.sleep(0)
    second = asyncio.create_task(store.commit(lease, put("second")))
    with pytest.raises(CommitUnknown, match=str(harness.path)):
        await first
    with pytest.raises(Refused):
        await second
    assert isinstance(store.statistics().role, Lost)
    with pytest.raises(NotMaster, match="closed permanently"):
        await become_master(store, VOTE)
    with pytest.raises(StoreError, match="closed permanently"):
        await rows_of(store)
    await store.close()
    again = await harness.open()
    assert set(await keys_of(again)) <= {"before", "first"}
    await again.close()


@pytest.mark.requirement("G16")
async def test_a_broken_disk_before_the_sync_is_surely_not_written(harness: SqliteHarness) -> None:
    store, lease = await opened(harness)
    harness.script.failures["INSERT INTO rows"] = sqlite_error(sqlite3.SQLITE_IOERR_READ)
    with pytest.raises(Refused):
        await store.commit(lease, put("a"))
    assert isinstance(store.statistics().role, Lost)
    await store.close()
    again = await harness.open()
    assert await keys_of(again) == []
    await again.close()


@pytest.mark.requirement("G16")
@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE])
@pytest.mark.parametrize("statement", ["BEGIN", "INSERT INTO log", "INSERT INTO rows", "COMMIT"])
async def test_full_disk_at_any_step_refuses_and_store_continues(
    harness: SqliteHarness, statement: str, code: int
) -> None:
    store, lease = await opened(harness)
    await store.commit(lease, put("before"))
    harness.script.failures |= {
        statement: sqlite_error(code, "database or disk is full"),
        "PRAGMA wal_checkpoint": sqlite_error(code),
    }
    with pytest.raises(Refused, match=r"disk is full.*nothing was changed"):
        await store.commit(lease, put("during"))
    await harness.free(store)
    receipt = await store.commit(lease, put("after"))
    assert receipt.position == Position(lease.epoch, 2)
    assert await keys_of(store) == ["after", "before"]
    await store.close()


@pytest.mark.requirement("G16")
async def test_log_of_sqlite_is_used_again_where_it_has_no_space_to_grow(
    harness: SqliteHarness,
) -> None:
    store, lease = await opened(harness)
    await store.commit(lease, put("before"))
    harness.script.failures["COMMIT"] = sqlite_error(sqlite3.SQLITE_FULL)
    receipt = await store.commit(lease, put("during"))
    assert receipt.position == Position(lease.epoch, 2)
    assert await keys_of(store) == ["before", "during"]
    assert not store.statistics().is_full
    await store.close()


async def test_locked_database_refuses_and_store_continues(harness: SqliteHarness) -> None:
    store, lease = await opened(harness)
    harness.script.failures["BEGIN"] = sqlite_error(sqlite3.SQLITE_BUSY, "database is locked")
    with pytest.raises(Refused, match="locked"):
        await store.commit(lease, put("a"))
    await harness.free(store)
    await store.commit(lease, put("b"))
    await store.close()


@pytest.mark.requirement("G16")
async def test_a_campaign_on_a_full_disk_is_refused(harness: SqliteHarness) -> None:
    store, lease = await opened(harness)
    harness.script.failures["COMMIT"] = sqlite_error(sqlite3.SQLITE_FULL)
    with pytest.raises(Refused):
        await become_master(store, VOTE)
    with pytest.raises(NotMaster):
        await store.commit(lease, put("a"))
    await harness.free(store)
    new = await become_master(store, VOTE)
    assert new.epoch == lease.epoch + 2, "an epoch that was promised is never taken again"
    await store.close()


async def test_a_broken_probe_ends_the_store(harness: SqliteHarness) -> None:
    store, lease = await opened(harness)
    for statement in ("INSERT INTO rows", "PRAGMA wal_checkpoint"):
        harness.script.failures[statement] = sqlite_error(sqlite3.SQLITE_FULL)
    harness.script.failures["INSERT INTO meta"] = sqlite_error(sqlite3.SQLITE_IOERR_WRITE)
    with pytest.raises(Refused):
        await store.commit(lease, put("a"))
    roles = store.role_changes()
    assert isinstance(await anext(roles), Master)
    assert isinstance(await anext(roles), Lost)
    await roles.aclose()
    await store.close()


async def test_the_register_refuses_a_campaign(harness: SqliteHarness) -> None:
    keeper = MemoryRegister(Register("cluster-2", Promise(5, NODE)))
    harness.ports = alone(NODE, keeper)
    store = await harness.open()
    with pytest.raises(NotMaster, match="belongs to cluster cluster-2"):
        await become_master(store, VOTE)
    await store.close()


@pytest.mark.requirement("G2", "G4")
async def test_a_campaign_goes_above_what_the_register_has_promised(
    harness: SqliteHarness,
) -> None:
    keeper = MemoryRegister(Register(CLUSTER, Promise(41, NodeUuid("node-2"))))
    harness.ports = alone(NODE, keeper)
    store, lease = await opened(harness)
    assert lease == Lease(42)
    register = keeper.read()
    assert register is not None
    assert register.promised == Promise(42, NODE)
    assert register.accepted is not None
    assert register.accepted.sync_set == frozenset((NODE,))
    await store.close()


async def test_the_register_may_be_a_file_beside_the_database(
    harness: SqliteHarness, tmp_path: Path
) -> None:
    worker = Worker("register")
    keeper = RegisterFile(tmp_path / "register")
    keeper.decide(lambda register: join(register, PromiseRequest(CLUSTER, 0, NODE)))
    harness.ports = alone(NODE, keeper, worker)
    store, lease = await opened(harness)
    register = keeper.read()
    assert register is not None
    assert register.promised.epoch == lease.epoch
    await store.close()
    await worker.close()


async def test_deleted_rows_give_their_space_back(harness: SqliteHarness) -> None:
    store = await harness.open(log_entries=1)
    lease = await become_master(store, VOTE)
    for number in range(20):
        await store.commit(lease, put(str(number), bytes(200_000)))
    keys = tuple(Delete("instance", str(number)) for number in range(20))
    await store.commit(lease, Transaction(keys))
    for number in range(64 * 16):
        store.submit(lease, put("small", str(number)))
        if number % 16 == 0:
            await store.commit(lease, Transaction())
    await store.close()
    assert harness.path.stat().st_size < 3_000_000


async def test_the_write_ahead_log_does_not_grow_without_end(harness: SqliteHarness) -> None:
    store, lease = await opened(harness)
    for number in range(120):
        await store.commit(lease, put("same", bytes(100_000 + number)))
    wal = harness.path.with_name("state.db-wal")
    assert wal.stat().st_size < 12_000_000, "24 MB were written"
    await store.close()


@pytest.mark.sampled(0)
@pytest.mark.requirement("G1", "G2")
def test_kill_9_loses_no_acknowledged_commit(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    acknowledged: list[str] = []
    for _ in range(ROUNDS):
        acknowledged += run_and_kill(path, after_lines=60)
    entries, keys = asyncio.run(history_of(path))
    assert len(acknowledged) >= 60 * ROUNDS
    assert set(acknowledged) <= set(keys)
    written = [
        operation.key
        for entry in entries
        for operation in decode_transaction(entry.content).operations
        if isinstance(operation, Put)
    ]
    assert sorted(written) == sorted(keys), "nothing is written twice or torn"
    by_epoch: dict[int, list[int]] = {}
    for entry, key in zip(entries, written, strict=True):
        by_epoch.setdefault(entry.position.epoch, []).append(int(key.split("-")[1]))
    assert len(by_epoch) == ROUNDS
    for numbers in by_epoch.values():
        assert numbers == list(range(len(numbers))), "what survives is a prefix"


def run_and_kill(path: Path, *, after_lines: int) -> list[str]:
    """Start a process that commits; kill it after some answers; all that it was answered."""
    command = [sys.executable, str(CHILD), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(after_lines)]
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.readlines()
    assert child.returncode == -signal.SIGKILL
    return [line.strip() for line in lines if line.endswith("\n")]


async def history_of(path: Path) -> tuple[list[EncodedEntry], list[str]]:
    store = await EmbeddedStore.open(path, Identity(CLUSTER, NODE), alone(NODE, registered()))
    keys = await keys_of(store)
    reader = LogReader(path)
    entries = reader.encoded_after(ZERO, store.statistics().log_entries)
    reader.close()
    await store.close()
    return entries, keys


@pytest.mark.requirement("G1", "G16")
async def test_what_waits_behind_a_refused_batch_is_refused_with_it(
    harness: SqliteHarness,
) -> None:
    store, lease = await opened(harness)
    await store.commit(lease, put("before"))
    for statement in ("COMMIT", "PRAGMA wal_checkpoint"):
        harness.script.failures[statement] = sqlite_error(sqlite3.SQLITE_FULL, "disk is full")
    harness.hold_sync(store)
    first = asyncio.create_task(store.commit(lease, put("first")))
    await asyncio.sleep(0)
    behind = asyncio.create_task(store.commit(lease, put("builds upon the first")))
    for one in (first, behind):
        with pytest.raises(Refused, match="nothing was changed"):
            await one
    await harness.free(store)
    await store.commit(lease, put("after"))
    assert await keys_of(store) == ["after", "before"]
    await store.close()
