"""What is acknowledged is synced: how the files of the state are written."""

from contextlib import closing
from pathlib import Path

import pytest

from ganeti.store.database import configure, connect, create_private


@pytest.mark.requirement("G1", "G2")
def test_each_transaction_of_the_database_is_synced(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    create_private(path)
    with closing(connect(path)) as connection:
        configure(connection)
        (level,) = connection.execute("PRAGMA synchronous").fetchone()
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    assert level >= 2, "FULL: with NORMAL a power cut takes acknowledged transactions"
    assert journal == "wal"
