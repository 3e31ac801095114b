"""The reading side of the SQLite file, for snapshots and the log, on its own thread."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ganeti.base.errors import StoreError
from ganeti.store.database import (
    Connect,
    DiskBroken,
    History,
    connect,
    read_covered,
    read_history,
    will_pass,
)
from ganeti.store.encoding import EncodedEntry, chain_digest, row_checksum
from ganeti.store.interface import ZERO, NotInLog, Position, Row

SLICE_ROWS = 500
SLICE_BYTES = 4 << 20
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR)


class Snapshot:
    """One read transaction, read in slices; its thread is the one that first asks for a slice."""

    def __init__(self, path: Path, connect: Connect = connect) -> None:
        self._path = path
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor | None = None

    def begin(self) -> History:
        """Fix the snapshot's content and the end of its history; StoreError or DiskBroken."""
        try:
            connection = self._connection = self._connect(self._path)
            connection.execute("PRAGMA query_only = ON")
            connection.execute("BEGIN")
            history = read_history(connection)
            self._cursor = connection.execute(
                "SELECT kind, key, value, checksum FROM rows ORDER BY kind, key"
            )
        except sqlite3.Error as error:
            self.close()
            raise read_failure(error) from error
        return history

    def next_slice(self) -> list[Row]:
        """Return the next rows, none at the end; StoreError, or DiskBroken for a damaged row (G3)."""
        rows: list[Row] = []
        size = 0
        if self._cursor is None:
            raise StoreError("the snapshot is closed")
        try:
            while len(rows) < SLICE_ROWS and size < SLICE_BYTES:
                found = self._cursor.fetchone()
                if found is None:
                    break
                rows.append(_checked_row(found))
                size += len(rows[-1].value)
        except sqlite3.Error as error:
            raise read_failure(error) from error
        return rows

    def close(self) -> None:
        """End the read transaction; idempotent."""
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


class LogReader:
    """Reads the log; all calls must come from one thread."""

    def __init__(self, path: Path, connect: Connect = connect) -> None:
        self._path = path
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._history = History()

    def continues_from(self, history: History) -> bool:
        """Return whether the log continues exactly this history."""
        try:
            following = self.encoded_after(history.position, 1)
        except NotInLog:
            return False
        if not following:
            return self._history.digest == history.digest
        first = following[0]
        return chain_digest(history.digest, first.position, first.content) == first.digest

    def shared_with(self, history: History) -> Position:
        """Return the last position that another history may share with this one; ZERO if unknown.

        If that is the end of the other history, the other is a prefix of this one. An epoch has one
        writer, so of two histories the longer one of an epoch contains the shorter.
        """
        with self._reading() as connection:
            if any(_is_on_the_way(history.position, end) for end in read_covered(connection)):
                return history.position
            before = connection.execute(
                "SELECT position, digest FROM log WHERE position <= ? ORDER BY position DESC LIMIT 1",
                (history.position.as_int(),),
            ).fetchone()
            oldest = connection.execute(
                "SELECT previous FROM log ORDER BY position LIMIT 1"
            ).fetchone()
            end = read_history(connection).position
        if before is not None:
            at = Position.from_int(before[0])
            return at if at < history.position or before[1] == history.digest else ZERO
        base = Position.from_int(oldest[0]) if oldest else end
        if base <= history.position:
            return base if base < history.position else ZERO
        return history.position if base.epoch == history.position.epoch else ZERO

    def encoded_after(self, position: Position, limit: int = SLICE_ROWS) -> list[EncodedEntry]:
        """Return the following transactions; NotInLog if the log does not contain that position."""
        with self._reading() as connection:
            found = _read_log(connection, position, limit)
            self._history = read_history(connection)
        expected = found[0].previous if found else self._history.position
        if position != expected:
            raise NotInLog(f"the log does not continue {position}; load a snapshot")
        return found

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Open one read transaction; StoreError or DiskBroken."""
        try:
            if self._connection is None:
                self._connection = self._connect(self._path)
                self._connection.execute("PRAGMA query_only = ON")
            connection = self._connection
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise read_failure(error) from error

    def close(self) -> None:
        """Close; idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def _is_on_the_way(position: Position, end: Position) -> bool:
    return position.epoch == end.epoch and position <= end


def read_failure(error: sqlite3.Error) -> StoreError | DiskBroken:
    """Return the meaning of a failed read: damage is permanent, other errors may pass."""
    if (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _DAMAGE and not will_pass(error):
        return DiskBroken(str(error), perhaps_written=False)
    return StoreError(f"the state database cannot be read now: {error}")


def _checked_row(found: tuple[str, str, bytes, int]) -> Row:
    kind, key, value, checksum = found
    if row_checksum(kind, key, value) != checksum:
        reason = f"row {kind}/{key} is damaged: its checksum does not match"
        raise DiskBroken(reason, perhaps_written=False)
    return Row(kind, key, value)


def _read_log(connection: sqlite3.Connection, after: Position, limit: int) -> list[EncodedEntry]:
    entries: list[EncodedEntry] = []
    size = 0
    for position, previous, digest, content in connection.execute(
        "SELECT position, previous, digest, content FROM log WHERE position > ?"
        " ORDER BY position LIMIT ?",
        (after.as_int(), limit),
    ):
        entries.append(
            EncodedEntry(Position.from_int(position), Position.from_int(previous), digest, content)
        )
        size += len(content)
        if size >= SLICE_BYTES:
            break
    return entries
