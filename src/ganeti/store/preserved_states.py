"""Preserved states of former masters, stored beside the current state (R9); all calls block.

A node preserves its state when the state of another master replaces it and the histories differ.
The newest few files are kept. Each file is a database with the schema of the current state.
Its `meta` table records the last position that both histories may share.
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
class PreservedState:
    """Contents of a preserved state."""

    path: Path
    shared: Position
    """Last position that it may share with the history that replaced it; ZERO if unknown."""
    position: Position
    job_ids: tuple[int, ...]
    """Jobs that are missing from the current state and from the archive."""

    def summary(self) -> str:
        """Return a description of the changes that only this file may hold."""
        after = f"after {_describe(self.shared)} " if self.shared > ZERO else ""
        what = f"it was written {after}up to {_describe(self.position)}"
        if not self.job_ids:
            return f"{what}; no job of it is missing here"
        shown = ", ".join(str(job_id) for job_id in self.job_ids[:SHOWN_JOBS])
        more = len(self.job_ids) - SHOWN_JOBS
        return f"{what}; only this file has jobs {shown}" + (
            f" and {more} more" if more > 0 else ""
        )


def _describe(position: Position) -> str:
    return f"position {position.as_int()} (epoch {position.epoch}, serial {position.serial})"


def preserved_states(state: Path) -> list[Path]:
    """Return the preserved states beside a state, the oldest first."""
    found = [path for path in state.parent.glob(f"{state.name}.aside-*") if _NAME.search(path.name)]
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))


def preserve_state(
    connection: sqlite3.Connection, state: Path, history: History, shared: Position
) -> Path:
    """Copy and sync a state, then remove the oldest copies.

    Raise sqlite3.Error or OSError on failure; no partial copy remains.
    """
    at = history.position
    preserved = state.with_name(f"{state.name}.aside-{at.epoch}-{at.serial}")
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
        part.replace(preserved)
    finally:
        part.unlink(missing_ok=True)
    for old in preserved_states(state)[:-KEPT]:
        old.unlink()
    sync_directory(state.parent)
    return preserved


def read_preserved(path: Path, state: Path, archive: Path | None) -> PreservedState | None:
    """Return the contents missing from the current state and the archive; None if unreadable."""
    try:
        # The file never changes; `immutable` prevents SQLite from creating side files.
        with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
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
    return PreservedState(path, shared, position, tuple(sorted(jobs)))


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
