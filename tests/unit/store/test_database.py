"""The SQLite file: when it is synced, and a snapshot that takes the place of everything."""

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


@pytest.mark.requirement("G1", "G2")
def test_what_a_killed_process_left_without_a_sync_is_synced_before_it_is_used(
    database: Database, tmp_path: Path
) -> None:
    """Else this node would be counted as a holder of a write that a power failure takes."""
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    again = Database(tmp_path / "state.db", Limits(), sync=sync)
    again.open("cluster-1", NodeUuid("node-1"))
    assert again.history == database.history
    assert synced == [str(tmp_path / "state.db-wal")]
    again.take_epoch(2)
    assert len(synced) == 2
    again.close()


@pytest.mark.requirement("G1")
def test_a_follower_has_synced_what_it_has_appended(tmp_path: Path) -> None:
    synced: list[History] = []
    follower = Database(
        tmp_path / "other.db", Limits(), sync=lambda _: synced.append(follower.history)
    )
    follower.open("cluster-1", NodeUuid("node-2"))
    master = Database(tmp_path / "state.db", Limits())
    master.open("cluster-1", NodeUuid("node-1"))
    follower.append(master.apply([(1, Transaction())]))
    assert synced[-1] == follower.history == master.history
    follower.close()
    master.close()


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
