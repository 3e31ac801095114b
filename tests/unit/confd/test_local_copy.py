"""Following the database of a candidate that somebody else writes."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ganeti.base.errors import StoreError
from ganeti.confd.local_copy import FileReplaced, LocalCopy
from ganeti.config.transaction import put_row
from ganeti.model.objects import NodeUuid
from ganeti.model.stored import Stored
from ganeti.protocols.confd import QueryType
from ganeti.store.database import Database, History, Limits
from ganeti.store.interface import Delete, Position, Put, Row, Transaction
from tests.unit.confd.cluster import ask, objects
from tests.unit.config.sample import sample_instance

NODE = NodeUuid("node-1")


class Candidate:
    """A database as the master daemon has it, and confd's copy."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = Database(path, Limits(log_entries=40))
        self.database.open("cluster-1", NODE)
        self.put(*objects())
        self.copy = LocalCopy(path)

    def put(self, *things: Stored) -> None:
        self.database.apply([(1, Transaction(tuple(put_row(thing) for thing in things)))])

    def names(self) -> object:
        return ask(self.copy.facts, QueryType.INSTANCES)[1]


@pytest.fixture
async def candidate(tmp_path: Path) -> AsyncIterator[Candidate]:
    made = Candidate(tmp_path / "state.db")
    yield made
    made.database.close()
    await made.copy._worker.close()
    made.copy._connection.close()


BOTH = ["web1.example.com", "web2.example.com"]


@pytest.mark.requirement("S53", "S63")
async def test_each_transaction_is_followed_with_its_serial(candidate: Candidate) -> None:
    copy = candidate.copy
    first = copy.facts.position
    assert first == candidate.database.history.position.as_int()
    assert candidate.names() == BOTH
    candidate.put(sample_instance(3))
    await copy.look()
    assert candidate.names() == [*BOTH, "web3.example.com"]
    third = sample_instance(3)
    candidate.database.apply(
        [(2, Transaction((Delete("instance", third.uuid), Put("job", "1", b"x"))))]
    )
    await copy.look()
    assert candidate.names() == BOTH
    assert copy.facts.position == Position(2, 1).as_int() > first
    await copy.look()
    assert copy.facts.position == Position(2, 1).as_int()


@pytest.mark.requirement("S53")
async def test_reader_behind_the_log_reads_all_again(candidate: Candidate) -> None:
    for number in range(100):
        candidate.put(sample_instance(3 + number % 5))
    assert candidate.database.log_entries < 100
    await candidate.copy.look()
    assert len(candidate.copy.facts.instances) == 7
    assert candidate.copy.facts.position == candidate.database.history.position.as_int()


@pytest.mark.requirement("S53")
async def test_a_snapshot_takes_the_place_of_everything(candidate: Candidate) -> None:
    row = put_row(sample_instance(9))
    candidate.database.begin_snapshot()
    candidate.database.add_snapshot_rows(
        [
            Row(row.kind, row.key, row.value),
            *(Row(one.kind, one.key, one.value) for one in [put_row(objects()[0])]),
        ]
    )
    await candidate.copy.look()
    assert candidate.names() == BOTH
    candidate.database.end_snapshot(History(Position(4, 4), b"d" * 16))
    await candidate.copy.look()
    assert candidate.names() == ["web9.example.com"]
    assert candidate.copy.facts.position == Position(4, 4).as_int()


@pytest.mark.requirement("S63")
async def test_it_answers_while_the_master_daemon_is_dead_and_follows_the_next_one(
    candidate: Candidate,
) -> None:
    candidate.database.close()
    await candidate.copy.look()
    assert candidate.names() == BOTH
    candidate.database.open("cluster-1", NODE)
    candidate.put(sample_instance(3))
    await candidate.copy.look()
    assert candidate.names() == [*BOTH, "web3.example.com"]


@pytest.mark.requirement("S63")
async def test_it_begins_where_no_daemon_runs(candidate: Candidate) -> None:
    await candidate.copy._worker.close()
    candidate.copy._connection.close()
    candidate.database.close()
    assert not candidate.path.with_name("state.db-wal").exists()
    candidate.copy = LocalCopy(candidate.path)
    assert candidate.names() == BOTH


@pytest.mark.requirement("S64")
async def test_it_neither_writes_nor_stays_in_the_way(candidate: Candidate) -> None:
    with pytest.raises(Exception, match="readonly"):
        candidate.copy._connection.execute("DELETE FROM rows")
    candidate.put(sample_instance(3))
    await candidate.copy.look()
    writer = candidate.database._open_connection()
    busy, written, moved = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert (busy, written, moved) == (0, 0, 0)


@pytest.mark.requirement("S64")
async def test_another_file_in_its_place_ends_it(candidate: Candidate, tmp_path: Path) -> None:
    shutil.copy(candidate.path, tmp_path / "other")
    Path(tmp_path / "other").replace(candidate.path)
    with pytest.raises(FileReplaced):
        await candidate.copy.look()


@pytest.mark.requirement("S64")
async def test_a_row_that_cannot_be_read_is_left_out(
    candidate: Candidate, caplog: pytest.LogCaptureFixture
) -> None:
    uuid = sample_instance(1).uuid
    candidate.database.apply([(1, Transaction((Put("instance", uuid, b"{}"),)))])
    await candidate.copy.look()
    assert candidate.names() == ["web2.example.com"]
    assert f"instance {uuid}" in caplog.text


@pytest.mark.requirement("S64")
async def test_a_damaged_row_is_refused_at_the_start_and_keeps_what_is_known_later(
    candidate: Candidate, caplog: pytest.LogCaptureFixture
) -> None:
    candidate.database._open_connection().execute("UPDATE rows SET checksum = checksum + 1")
    with pytest.raises(StoreError, match="checksum"):
        LocalCopy(candidate.path)
    for number in range(100):
        candidate.put(sample_instance(3 + number % 5))
    before = candidate.copy.facts.position
    await candidate.copy.look()
    assert candidate.names() == BOTH
    assert candidate.copy.facts.position == before
    assert "cannot be read now" in caplog.text


def test_without_a_database_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no\.db"):
        LocalCopy(tmp_path / "no.db")
