"""Reads the end of the state from a database file of another process (R8)."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ganeti.store.database import read_history
from ganeti.store.election import Tail

PATIENCE_S = 0.2
JOB_KIND = "job"
"""A query for the greatest job id among the keys of one length."""


@dataclass(frozen=True, slots=True)
class StoredTail:
    """The end of a stored history, and the greatest job id in it."""

    tail: Tail
    last_job_id: int


def read_stored_tail(path: Path) -> StoredTail | None:
    """Return the present end; None if there is no state, or it cannot be read at this moment.

    The result is only a hint: the writer may be about to write more.
    """
    if not path.is_file():
        return None
    try:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=PATIENCE_S)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("BEGIN")
            history = read_history(connection)
            (last,) = connection.execute(
                "SELECT MAX(key) FROM rows WHERE kind = ?", (JOB_KIND,)
            ).fetchone()
            return StoredTail(Tail(history.position, history.digest), int(last or 0))
    except (sqlite3.Error, ValueError):
        return None
