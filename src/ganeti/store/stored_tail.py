"""Where the state in a database file ends, as somebody sees it who does not own the file (R8)."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ganeti.store.database import read_history
from ganeti.store.election import Tail

PATIENCE_S = 0.2
JOB_KIND = "job"
"""Of the rows whose keys are job ids, in figures of one length."""


@dataclass(frozen=True, slots=True)
class StoredTail:
    """The end of a stored history, and the greatest job id in it."""

    tail: Tail
    last_job_id: int


def read_stored_tail(path: Path) -> StoredTail | None:
    """What is in the file now; None where there is no state, or it cannot be read at this moment.

    It is only a hint: the writer may be about to write more.
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
