"""States that another master's took the place of, kept beside the present one (R9); blocks.

Only what the other master surely has not is kept, and of that the last few. Each is a database like
the present one; its `meta` says how far the two histories may go together.
"""

import re
import sqlite3
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.files import sync_directory, sync_file
from ganeti.store.database import History, connect, create_private, read_history
from ganeti.store.interface import ZERO, Position
from ganeti.store.stored_tail import JOB_KIND

KEPT = 3
SHOWN_JOBS = 20
_SHARED = "shared"
_NAME = re.compile(r"\.aside-\d+-\d+\Z", re.ASCII)


@dataclass(frozen=True)
class Aside:
    """What such a state has."""

    path: Path
    shared: Position
    """Up to here at most it goes with the history of the master that replaced it; ZERO if not known."""
    position: Position
    job_ids: tuple[int, ...]
    """Jobs that neither the present state nor the archive has."""

    def told(self) -> str:
        """What somebody might miss."""
        after = f"after {_told(self.shared)} " if self.shared > ZERO else ""
        what = f"it was written {after}up to {_told(self.position)}"
        if not self.job_ids:
            return f"{what}; it has no job that is not here"
        shown = ", ".join(str(job_id) for job_id in self.job_ids[:SHOWN_JOBS])
        more = len(self.job_ids) - SHOWN_JOBS
        return f"{what}; only it has jobs {shown}" + (f" and {more} more" if more > 0 else "")


def _told(position: Position) -> str:
    return f"position {position.as_int()} (epoch {position.epoch}, serial {position.serial})"


def asides_of(state: Path) -> list[Path]:
    """Those beside a state, the oldest first."""
    found = [path for path in state.parent.glob(f"{state.name}.aside-*") if _NAME.search(path.name)]
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))


def keep_aside(
    connection: sqlite3.Connection, state: Path, history: History, shared: Position
) -> Path:
    """Copy a state, synced, and remove the oldest copies; sqlite3.Error or OSError, and none is left."""
    at = history.position
    aside = state.with_name(f"{state.name}.aside-{at.epoch}-{at.serial}")
    part = state.with_name(f".{state.name}.aside")
    try:
        part.unlink(missing_ok=True)
        create_private(part)
        connection.execute("VACUUM INTO ?", (str(part),))
        with closing(connect(part)) as copy:
            copy.execute(
                "INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)",
                (_SHARED, str(shared.as_int()).encode()),
            )
        sync_file(part)
        part.replace(aside)
    finally:
        part.unlink(missing_ok=True)
    for old in asides_of(state)[:-KEPT]:
        old.unlink()
    sync_directory(state.parent)
    return aside


def read_aside(aside: Path, state: Path, archive: Path | None) -> Aside | None:
    """What it has that the present state and the archive have not; None if that cannot be read."""
    try:
        # Nobody writes it: so no side files are made beside it.
        with closing(sqlite3.connect(f"{aside.as_uri()}?immutable=1", uri=True)) as connection:
            position = read_history(connection).position
            found = connection.execute("SELECT value FROM meta WHERE name = ?", (_SHARED,))
            shared = Position.from_int(int((found.fetchone() or (b"0",))[0]))
            jobs = _live_jobs(connection)
        with _reading(state) as connection:
            jobs -= _live_jobs(connection)
        if archive is not None and archive.is_file():
            with _reading(archive) as connection:
                jobs -= _archived(connection, jobs)
    except (sqlite3.Error, OSError, ValueError):
        return None
    return Aside(aside, shared, position, tuple(sorted(jobs)))


def _reading(path: Path) -> "closing[sqlite3.Connection]":
    connection = connect(path)
    connection.execute("PRAGMA query_only = ON")
    return closing(connection)


def _live_jobs(connection: sqlite3.Connection) -> set[int]:
    return {
        int(key)
        for (key,) in connection.execute("SELECT key FROM rows WHERE kind = ?", (JOB_KIND,))
    }


def _archived(connection: sqlite3.Connection, jobs: Collection[int]) -> set[int]:
    return {
        job_id
        for job_id in jobs
        if connection.execute("SELECT 1 FROM jobs WHERE id = ?", (job_id,)).fetchone()
    }
