"""The SQLite file while a snapshot takes the place of everything."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.model.objects import NodeUuid
from ganeti.store.database import CannotWriteNow, Database, History, Limits
from ganeti.store.interface import MEMBERS_KEY, META_KIND, Position, Put, Row, Transaction

OLD, NEW = b"old", b"new"
LATER = History(Position(2, 7), b"d" * 16)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "state.db", Limits())
    made.open("cluster-1", NodeUuid("node-1"))
    made.apply([(1, Transaction((Put(META_KIND, MEMBERS_KEY, OLD),)))])
    yield made
    made.close()


def begin(database: Database) -> None:
    database.begin_snapshot()
    database.add_snapshot_rows([Row(META_KIND, MEMBERS_KEY, NEW)])


@pytest.mark.requirement("G1", "G3")
def test_what_is_read_during_a_snapshot_is_what_was_committed(database: Database) -> None:
    begin(database)
    assert database.get(META_KIND, MEMBERS_KEY) == OLD
    database.end_snapshot(LATER)
    assert database.get(META_KIND, MEMBERS_KEY) == NEW
    assert database.history == LATER


@pytest.mark.requirement("G16")
def test_nothing_else_is_written_during_a_snapshot(database: Database) -> None:
    """An open transaction is no broken disk, and is not rolled back by who meets it."""
    begin(database)
    for write in (database.probe, lambda: database.take_epoch(9)):
        with pytest.raises(CannotWriteNow, match="snapshot"):
            write()
    database.end_snapshot(LATER)
    assert database.get(META_KIND, MEMBERS_KEY) == NEW
    database.probe()


@pytest.mark.requirement("G3")
def test_an_abandoned_snapshot_leaves_everything(database: Database) -> None:
    begin(database)
    database.abandon_snapshot()
    assert database.get(META_KIND, MEMBERS_KEY) == OLD
    database.probe()
    database.apply([(1, Transaction())])
    assert database.history.position == Position(1, 2)
