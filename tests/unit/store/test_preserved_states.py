"""Preserved states of former masters: their number and the summary of their contents."""

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ganeti.jobs.record import JOB_KIND, job_key
from ganeti.model.objects import NodeUuid
from ganeti.store import preserved_states as module
from ganeti.store.archive import JobArchive
from ganeti.store.database import Database, History, Limits, connect
from ganeti.store.database_reader import LogReader
from ganeti.store.encoding import NO_DIGEST
from ganeti.store.interface import ZERO, Delete, Position, Put, Transaction
from ganeti.store.preserved_states import preserve_state, preserved_states, read_preserved
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
            return preserve_state(connection, self.path, self.database.history, shared)
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
async def test_missing_jobs_are_in_neither_the_state_nor_the_archive(
    state: State, tmp_path: Path
) -> None:
    state.write(1, jobs(7, 8, 9, 10))
    preserved = state.keep()
    state.write(2, Transaction((Delete(JOB_KIND, job_key(8)), Delete(JOB_KIND, job_key(9)))))
    worker = Worker("archive")
    archive = await JobArchive.open(tmp_path / "archive.db", worker)
    await archive.append([(9, b"{}")])
    found = read_preserved(preserved, state.path, tmp_path / "archive.db")
    await archive.close()
    await worker.close()
    assert found is not None
    assert (found.shared, found.position, found.job_ids) == (SHARED, Position(1, 1), (8,))
    assert "after position 4294967298 (epoch 1, serial 2)" in found.summary()
    assert "up to position 4294967297" in found.summary()
    assert found.summary().endswith("only this file has jobs 8")
    assert stat.S_IMODE(preserved.stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.glob("*aside*")} == {preserved.name}


async def test_summary_counts_many_jobs_and_reports_none(state: State) -> None:
    state.write(1, jobs(*range(1, 31)))
    preserved = state.keep(ZERO)
    found = read_preserved(preserved, state.path, None)
    assert found is not None
    assert found.summary().endswith("no job of it is missing here")
    assert "after" not in found.summary()
    state.write(1, Transaction(tuple(Delete(JOB_KIND, job_key(n)) for n in range(1, 31))))
    found = read_preserved(preserved, state.path, None)
    assert found is not None
    assert found.summary().endswith(", 19, 20 and 10 more")


async def test_only_the_newest_states_are_kept(state: State) -> None:
    made = []
    for number in range(module.KEPT + 2):
        state.write(1)
        made.append(state.keep())
        os.utime(made[-1], (number, number))
    assert preserved_states(state.path) == made[-module.KEPT :]


@pytest.mark.requirement("G16")
async def test_failed_copy_leaves_no_file(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError(28, "No space left on device")

    state.write(1)
    monkeypatch.setattr(module, "sync_file", fail)
    with pytest.raises(OSError, match="No space"):
        state.keep()
    assert not list(state.path.parent.glob("*aside*"))


async def test_unreadable_state_has_no_contents(state: State) -> None:
    preserved = state.path.with_name("state.db.aside-1-1")
    preserved.write_bytes(b"garbage" * 1000)
    assert read_preserved(preserved, state.path, None) is None
    assert read_preserved(preserved.with_name("none"), state.path, None) is None


@pytest.mark.requirement("G2")
async def test_shorter_history_of_an_epoch_is_a_prefix_of_the_longer(state: State) -> None:
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
