"""States that another master's took the place of: which are kept, and what is said of them."""

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ganeti.jobs.record import JOB_KIND, job_key
from ganeti.model.objects import NodeUuid
from ganeti.store import asides
from ganeti.store.archive import JobArchive
from ganeti.store.asides import asides_of, keep_aside, read_aside
from ganeti.store.database import Database, History, Limits, connect
from ganeti.store.database_reader import LogReader
from ganeti.store.encoding import NO_DIGEST
from ganeti.store.interface import ZERO, Delete, Position, Put, Transaction
from ganeti.store.worker import Worker

SHARED = Position(1, 2)


def jobs(*ids: int) -> Transaction:
    return Transaction(tuple(Put(JOB_KIND, job_key(job_id), b"{}") for job_id in ids))


class State:
    """A state and how it goes on."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path = path
        self.database = Database(path, limits)
        self.database.open("cluster-1", NodeUuid("node-1"))
        self.history = [self.database.history]

    def write(self, epoch: int, txn: Transaction | None = None) -> None:
        self.database.apply([(epoch, txn or Transaction())])
        self.history.append(self.database.history)

    def keep(self, shared: Position = SHARED) -> Path:
        connection = connect(self.path)
        try:
            return keep_aside(connection, self.path, self.database.history, shared)
        finally:
            connection.close()

    def shared_with(self, position: Position, digest: bytes = NO_DIGEST) -> Position:
        reader = LogReader(self.path)
        try:
            return reader.shared_with(History(position, digest))
        finally:
            reader.close()


@pytest.fixture
async def state(tmp_path: Path) -> AsyncIterator[State]:
    made = State(tmp_path / "state.db", Limits(log_entries=4))
    yield made
    made.database.close()


@pytest.mark.requirement("G1", "G23")
async def test_what_is_missed_is_what_neither_the_state_nor_the_archive_has(
    state: State, tmp_path: Path
) -> None:
    state.write(1, jobs(7, 8, 9, 10))
    aside = state.keep()
    state.write(2, Transaction((Delete(JOB_KIND, job_key(8)), Delete(JOB_KIND, job_key(9)))))
    worker = Worker("archive")
    archive = await JobArchive.open(tmp_path / "archive.db", worker)
    await archive.append([(9, b"{}")])
    found = read_aside(aside, state.path, tmp_path / "archive.db")
    await archive.close()
    await worker.close()
    assert found is not None
    assert (found.shared, found.position, found.job_ids) == (SHARED, Position(1, 1), (8,))
    assert "after position 4294967298 (epoch 1, serial 2)" in found.told()
    assert "up to position 4294967297" in found.told()
    assert found.told().endswith("only it has jobs 8")
    assert stat.S_IMODE(aside.stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.glob("*aside*")} == {aside.name}


async def test_many_jobs_are_counted_and_no_jobs_are_said(state: State) -> None:
    state.write(1, jobs(*range(1, 31)))
    aside = state.keep(ZERO)
    found = read_aside(aside, state.path, None)
    assert found is not None
    assert found.told().endswith("it has no job that is not here")
    assert "after" not in found.told()
    state.write(1, Transaction(tuple(Delete(JOB_KIND, job_key(n)) for n in range(1, 31))))
    found = read_aside(aside, state.path, None)
    assert found is not None
    assert found.told().endswith(", 19, 20 and 10 more")


async def test_the_last_few_are_kept(state: State) -> None:
    made = []
    for number in range(asides.KEPT + 2):
        state.write(1)
        made.append(state.keep())
        os.utime(made[-1], (number, number))
    assert asides_of(state.path) == made[-asides.KEPT :]


@pytest.mark.requirement("G16")
async def test_a_copy_that_fails_leaves_nothing(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise OSError(28, "No space left on device")

    state.write(1)
    monkeypatch.setattr(asides, "sync_file", fail)
    with pytest.raises(OSError, match="No space"):
        state.keep()
    assert not list(state.path.parent.glob("*aside*"))


async def test_one_that_cannot_be_read_says_nothing(state: State) -> None:
    aside = state.path.with_name("state.db.aside-1-1")
    aside.write_bytes(b"garbage" * 1000)
    assert read_aside(aside, state.path, None) is None
    assert read_aside(aside.with_name("none"), state.path, None) is None


@pytest.mark.requirement("G2")
async def test_whoever_has_less_of_an_epoch_has_a_beginning_of_it(state: State) -> None:
    for epoch in (1, 1, 1, 3, 3, 3, 3, 3, 3):
        state.write(epoch)
    entries = {history.position: history for history in state.history}
    assert state.database.log_entries == 4, "the log begins after 3/2"
    in_log = entries[Position(3, 4)]
    assert state.shared_with(in_log.position, in_log.digest) == in_log.position
    assert state.shared_with(in_log.position, b"other" * 3) == ZERO
    assert state.shared_with(Position(3, 1)) == Position(3, 1)
    assert state.shared_with(Position(1, 2)) == ZERO, (
        "what of epoch 1 is here is not known any more"
    )
    assert state.shared_with(Position(3, 9)) == Position(3, 6)
    assert state.shared_with(Position(4, 1)) == Position(3, 6)


async def test_a_log_that_is_empty_knows_the_end(state: State) -> None:
    state.database.begin_snapshot()
    state.database.end_snapshot(History(Position(5, 9), b"d" * 16))
    assert state.shared_with(Position(5, 3)) == Position(5, 3)
    assert state.shared_with(Position(4, 3)) == ZERO
    assert state.shared_with(Position(6, 1)) == Position(5, 9)
