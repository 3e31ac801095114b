"""The SQLite file of the state store: everything here runs on a thread and blocks.

Tables: `rows` (the state), `log` (the last transactions, for followers), `meta` (position and
digest of the history). The schema never changes after version 1: values carry a format number of
their own.
"""

import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeAlias, TypeVar

from ganeti.base.errors import StoreError
from ganeti.base.files import sync_directory
from ganeti.model.objects import NodeUuid
from ganeti.store.encoding import (
    NO_DIGEST,
    EncodedEntry,
    chain_digest,
    decode_transaction,
    encode_transaction,
    row_checksum,
)
from ganeti.store.interface import ZERO, Operation, Position, Put, Row, Transaction

SCHEMA_VERSION = 1
_TRIM_AT_LEAST = 16
_VACUUM_EVERY = 16  # batches
_VACUUM_ABOVE_PAGES = 256
_VACUUM_SLICE_PAGES = 256
_PROBE_BYTES = 64 << 10
_COVERED = "covered"
_PASSING = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM)

_AT_ONCE = (64, 16, 4, 1)
"""Numbers of rows that one statement inserts; few, so that SQLite has all of them prepared."""
_FOUR = {size: ", ".join(["(?, ?, ?, ?)"] * size) for size in _AT_ONCE}
_PUT_LOG = "INSERT INTO log (position, previous, digest, content) VALUES {}"
_PUT_ROW = (
    "INSERT INTO rows (kind, key, value, checksum) VALUES {} ON CONFLICT DO UPDATE SET"
    " value = excluded.value, checksum = excluded.checksum"
)

_Values: TypeAlias = tuple[str | int | bytes, ...]
Connect = Callable[[Path], sqlite3.Connection]
Sync = Callable[[int], None]
"""Syncs the file of a descriptor, like `os.fdatasync`."""


_BUSY_MS, _RELIEF_WAIT_MS = 5000, 200
"""Time that a statement waits for locks, and for readers where the disk is full."""
T = TypeVar("T")


class CannotWriteNow(Exception):
    """No space, or another process has locked the file.

    Certainly nothing was written, and reading still works.
    """


class DiskBroken(Exception):
    """The disk or file is no longer trustworthy; `perhaps_written` if a commit was running."""

    def __init__(self, message: str, *, perhaps_written: bool) -> None:
        super().__init__(message)
        self.perhaps_written = perhaps_written


class HistoryDiffers(Exception):
    """The received entries do not continue this history: nothing was written."""


@dataclass(frozen=True)
class Limits:
    """The amount of log that is stored."""

    log_entries: int = 20_000
    log_bytes: int = 64 << 20


@dataclass(frozen=True)
class History:
    """Position and digest at the end of a history."""

    position: Position = ZERO
    digest: bytes = NO_DIGEST


def connect(path: Path) -> sqlite3.Connection:
    """Return an autocommitting connection to an existing file, for use by the calling thread."""
    # Opened without a URI, so that no character of a path is special.
    timeout_s = _BUSY_MS / 1000
    return sqlite3.connect(path, isolation_level=None, timeout=timeout_s, cached_statements=64)


def create_private(path: Path) -> None:
    """Create an empty file of mode 0600, which SQLite's side files inherit (B9)."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
        sync_directory(path.parent)
    except OSError as error:
        raise StoreError(f"cannot open the database {path}: {error}") from error


def configure(connection: sqlite3.Connection) -> None:
    """Set durability and use of space; must run before the first table is created."""
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA journal_size_limit = {16 << 20}")
    connection.execute("PRAGMA trusted_schema = OFF")


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the schema version, 0 in a file without tables."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def with_relief(connection: sqlite3.Connection, act: Callable[[], T]) -> T:
    """Run a function that writes; if the disk is full, restart SQLite's log and run it again.

    The content of the log is moved to the database first, so the next transactions reuse the log's
    space.
    """
    try:
        return act()
    except CannotWriteNow as error:
        if not (_is_full(error.__cause__) and _starts_log_again(connection)):
            raise
        return act()


def _is_full(error: BaseException | None) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


def _starts_log_again(connection: sqlite3.Connection) -> bool:
    """Return whether the log was restarted.

    Waits briefly for readers, and needs space if the database has grown.
    """
    try:
        connection.execute(f"PRAGMA busy_timeout = {_RELIEF_WAIT_MS}")
        try:
            (busy, pages, _moved) = connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        finally:
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
    except sqlite3.Error:
        return False
    return bool(busy == 0 and pages > 0)


def will_pass(error: sqlite3.Error) -> bool:
    """Return whether space or a lock is lacking, as opposed to a broken disk."""
    code = getattr(error, "sqlite_errorcode", 0)
    return (code & 0xFF) in _PASSING or code == sqlite3.SQLITE_IOERR_SHMSIZE


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a write transaction with three possible ends: written, CannotWriteNow, or DiskBroken."""
    committing = False
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        committing = True
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if will_pass(error) and _rolled_back(connection):
            raise CannotWriteNow(str(error)) from error
        _rolled_back(connection)
        raise DiskBroken(str(error), perhaps_written=committing) from error
    except BaseException:
        _rolled_back(connection)
        raise


def _rolled_back(connection: sqlite3.Connection) -> bool:
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return not connection.in_transaction


class Database:
    """The writing side; one object, one thread."""

    def __init__(
        self, path: Path, limits: Limits, connect: Connect = connect, sync: Sync = os.fdatasync
    ) -> None:
        self._path = path
        self._limits = limits
        self._connect = connect
        self._sync = sync
        self._ahead_log: int | None = None
        """Descriptor of SQLite's write-ahead log, which exists as long as a connection does."""
        self._connection: sqlite3.Connection | None = None
        self._incoming: sqlite3.Connection | None = None
        """The connection with the transaction of a snapshot that is being written."""
        self._log_entries = 0
        self._log_bytes = 0
        self._batches = 0
        self.history = History()
        self.epoch = 0

    @property
    def log_entries(self) -> int:
        return self._log_entries

    def open(self, cluster_uuid: str, node_uuid: NodeUuid) -> None:
        """Open or create the file; StoreError if it is damaged, newer, or of another cluster."""
        create_private(self._path)
        try:
            connection = self._connection = self._connect(self._path)
            configure(connection)
            self._check_content(connection, cluster_uuid, node_uuid)
            self.history = read_history(connection)
            self.epoch = int(_get_meta(connection, "epoch", b"0"))
            self._take_over_syncing(connection)
            self._log_entries, self._log_bytes = connection.execute(
                "SELECT count(*), coalesce(sum(length(content)), 0) FROM log"
            ).fetchone()
        except (sqlite3.Error, OSError, CannotWriteNow, DiskBroken) as error:
            self.close()
            raise StoreError(
                f"cannot open the database {self._path}: {error}; if it is damaged, move it away "
                "and restore a backup"
            ) from error
        except StoreError:
            self.close()
            raise

    def _take_over_syncing(self, connection: sqlite3.Connection) -> None:
        """Let a commit write SQLite's log, and `sync` sync it.

        The first sync is for what a process has written that was killed before it could sync.
        """
        connection.execute("PRAGMA synchronous = NORMAL")
        path = self._path.with_name(f"{self._path.name}-wal")
        self._ahead_log = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self.sync()

    def sync(self) -> None:
        """Sync what `apply` has written; DiskBroken."""
        assert self._ahead_log is not None  # noqa: S101 - open
        try:
            self._sync(self._ahead_log)
        except OSError as error:
            raise DiskBroken(str(error), perhaps_written=True) from error

    def _check_content(
        self, connection: sqlite3.Connection, cluster_uuid: str, node_uuid: NodeUuid
    ) -> None:
        version = schema_version(connection)
        if version == 0:
            _create_schema(connection, {"cluster_uuid": cluster_uuid, "node_uuid": node_uuid})
        elif version != SCHEMA_VERSION:
            raise StoreError(
                f"{self._path} has version {version}: it may come from a newer release"
            )
        problems = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
        if problems != ["ok"]:
            raise StoreError(
                f"the database {self._path} is damaged ({'; '.join(problems)}); move it away and "
                "restore a backup"
            )
        for name, wanted in (("cluster_uuid", cluster_uuid), ("node_uuid", node_uuid)):
            found = _get_meta(connection, name, b"").decode()
            if found != wanted:
                raise StoreError(f"{self._path} has {name} {found} instead of {wanted}")

    def apply(self, batch: Sequence[tuple[int, Transaction]]) -> list[EncodedEntry]:
        """Write transactions, each with its epoch; CannotWriteNow or DiskBroken. `sync` makes them durable.

        Raises Refused, and writes nothing, if the serials of an epoch run out.
        """
        history, entries = self.history, []
        for epoch, txn in batch:
            position = history.position.following(epoch)
            content = encode_transaction(txn)
            digest = chain_digest(history.digest, position, content)
            entries.append(EncodedEntry(position, history.position, digest, content))
            history = History(position, digest)
        self._write(entries, [txn for _, txn in batch])
        return entries

    def append(self, entries: Sequence[EncodedEntry]) -> None:
        """Append a master's transactions with one sync; HistoryDiffers, CannotWriteNow or DiskBroken."""
        history = self.history
        for entry in entries:
            digest = chain_digest(history.digest, entry.position, entry.content)
            if entry.previous != history.position or digest != entry.digest:
                raise HistoryDiffers(
                    f"the transactions after {entry.previous} do not continue {history.position}"
                )
            history = History(entry.position, digest)
        self._write(entries, [decode_transaction(entry.content) for entry in entries])
        self.sync()

    def _write(self, entries: Sequence[EncodedEntry], txns: Sequence[Transaction]) -> None:
        with_relief(self._open_connection(), lambda: self._write_once(entries, txns))

    def _write_once(self, entries: Sequence[EncodedEntry], txns: Sequence[Transaction]) -> None:
        added = sum(len(entry.content) for entry in entries)
        last = History(entries[-1].position, entries[-1].digest)
        with self._transaction(is_synced=False) as connection:
            _insert(connection, _PUT_LOG, [_logged(entry) for entry in entries])
            _apply_operations(connection, txns)
            dropped, dropped_bytes = self._trim_log(connection, len(entries), added)
            _put_history(connection, last)
            self._vacuum(connection)
        self.history = last
        self._log_entries += len(entries) - dropped
        self._log_bytes += added - dropped_bytes

    # Snapshots, which replace all content in one transaction of SQLite

    def begin_snapshot(self, keep: Callable[[sqlite3.Connection], object] | None = None) -> None:
        """Begin to replace all content; `keep`, if given, first copies the old content (R9).

        It uses its own connection: concurrent readers see the old content.
        """
        connection = self._open_connection()
        try:
            if keep is not None:
                keep(connection)
            incoming = self._incoming = self._connect(self._path)
            configure(incoming)
            incoming.execute("BEGIN IMMEDIATE")
            incoming.execute("DELETE FROM log")
            incoming.execute("DELETE FROM rows")
        except sqlite3.Error as error:
            self._snapshot_failed(error)
        except OSError as error:
            raise CannotWriteNow(str(error)) from error

    def add_snapshot_rows(self, rows: Sequence[Row]) -> None:
        """Write the next rows; after CannotWriteNow or DiskBroken nothing has changed."""
        incoming = self._open_incoming()
        try:
            _insert(incoming, _PUT_ROW, [_stored(row.kind, row.key, row.value) for row in rows])
        except sqlite3.Error as error:
            self._snapshot_failed(error)

    def end_snapshot(self, history: History, covered: Collection[Position] = ()) -> None:
        """Make the complete snapshot the current state, synced.

        States that ended at or before `covered` contain nothing that is missing here.
        """
        incoming = self._open_incoming()
        try:
            _put_history(incoming, history)
            _put_meta(incoming, _COVERED, _encoded(covered))
            incoming.execute("COMMIT")
        except sqlite3.Error as error:
            self._snapshot_failed(error, committing=True)
        self._close_incoming()
        self.history = history
        self._log_entries = self._log_bytes = 0

    def abandon_snapshot(self) -> None:
        """Restore the content before `begin_snapshot`; idempotent."""
        self._close_incoming()

    def _snapshot_failed(self, error: sqlite3.Error, *, committing: bool = False) -> NoReturn:
        is_whole = self._incoming is None or _rolled_back(self._incoming)
        self._close_incoming()
        if is_whole and will_pass(error):
            raise CannotWriteNow(str(error)) from error
        raise DiskBroken(str(error), perhaps_written=committing) from error

    def _close_incoming(self) -> None:
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            _rolled_back(incoming)
            with suppress(sqlite3.Error):
                incoming.close()

    def _open_incoming(self) -> sqlite3.Connection:
        if self._incoming is None:
            raise StoreError(f"no snapshot is being written to {self._path}")
        return self._incoming

    @contextmanager
    def _transaction(self, *, is_synced: bool = True) -> Iterator[sqlite3.Connection]:
        """Run a `transaction`; refused while a snapshot is being written."""
        connection = self._open_connection()
        if self._incoming is not None:
            raise CannotWriteNow("a snapshot of the state is being written")
        with transaction(connection):
            yield connection
        if is_synced:
            self.sync()

    def take_epoch(self, epoch: int) -> None:
        """Record durably that this store has written in `epoch`; CannotWriteNow or DiskBroken."""
        with self._transaction() as connection:
            _put_meta(connection, "epoch", str(epoch).encode())
        self.epoch = epoch

    def probe(self) -> None:
        """Raise CannotWriteNow while there is no room for a little data; DiskBroken like other writes."""
        with self._transaction() as connection:
            _put_meta(connection, "probe", bytes(_PROBE_BYTES))
        with self._transaction() as connection:
            connection.execute("DELETE FROM meta WHERE name = 'probe'")

    def get(self, kind: str, key: str) -> bytes | None:
        """Return the value of one row."""
        try:
            row = self._open_connection().execute(
                "SELECT value FROM rows WHERE kind = ? AND key = ?", (kind, key)
            )
            found = row.fetchone()
        except sqlite3.Error as error:
            raise StoreError(f"cannot read {kind}/{key}: {error}") from error
        return None if found is None else bytes(found[0])

    def close(self) -> None:
        """Close the file; idempotent."""
        self._close_incoming()
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()
        descriptor, self._ahead_log = self._ahead_log, None
        if descriptor is not None:
            os.close(descriptor)

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError(f"the database {self._path} is closed")
        return self._connection

    def _trim_log(
        self, connection: sqlite3.Connection, new_entries: int, new_bytes: int
    ) -> tuple[int, int]:
        """Drop a batch of the oldest entries beyond the limits; return their number and bytes."""
        too_many = self._log_entries + new_entries - self._limits.log_entries
        too_large = self._log_bytes + new_bytes - self._limits.log_bytes
        if too_many <= 0 and too_large <= 0:
            return 0, 0
        oldest = connection.execute(
            "SELECT position, length(content) FROM log ORDER BY position LIMIT ?",
            (min(2 * new_entries + _TRIM_AT_LEAST, self._log_entries + new_entries - 1),),
        ).fetchall()
        dropped = dropped_bytes = 0
        last = -1
        for position, size in oldest:
            if dropped >= too_many and dropped_bytes >= too_large:
                break
            last, dropped, dropped_bytes = position, dropped + 1, dropped_bytes + size
        connection.execute("DELETE FROM log WHERE position <= ?", (last,))
        return dropped, dropped_bytes

    def _vacuum(self, connection: sqlite3.Connection) -> None:
        """Free some unused pages from time to time."""
        self._batches += 1
        if self._batches % _VACUUM_EVERY:
            return
        (unused,) = connection.execute("PRAGMA freelist_count").fetchone()
        # One page a statement: the module steps a statement without columns only once.
        for _ in range(min(unused - _VACUUM_ABOVE_PAGES, _VACUUM_SLICE_PAGES)):
            connection.execute("PRAGMA incremental_vacuum(1)")


def _create_schema(connection: sqlite3.Connection, meta: dict[str, str]) -> None:
    with transaction(connection):
        connection.execute(
            "CREATE TABLE rows (kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,"
            " checksum INTEGER NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID"
        )
        connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID")
        connection.execute(
            "CREATE TABLE log (position INTEGER PRIMARY KEY, previous INTEGER NOT NULL,"
            " digest BLOB NOT NULL, content BLOB NOT NULL)"
        )
        for name, value in meta.items():
            _put_meta(connection, name, value.encode())
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _apply_operations(connection: sqlite3.Connection, txns: Iterable[Transaction]) -> None:
    """Apply all operations in order; of several changes to one row only the last is written."""
    last: dict[tuple[str, str], Operation] = {}
    for txn in txns:
        for operation in txn.operations:
            last[operation.kind, operation.key] = operation
    puts = []
    for operation in last.values():
        if isinstance(operation, Put):
            puts.append(_stored(operation.kind, operation.key, operation.value))
        else:
            connection.execute(
                "DELETE FROM rows WHERE kind = ? AND key = ?", (operation.kind, operation.key)
            )
    _insert(connection, _PUT_ROW, puts)


def _stored(kind: str, key: str, value: bytes) -> _Values:
    return kind, key, value, row_checksum(kind, key, value)


def _logged(entry: EncodedEntry) -> _Values:
    return entry.position.as_int(), entry.previous.as_int(), entry.digest, entry.content


def _insert(connection: sqlite3.Connection, statement: str, rows: Sequence[_Values]) -> None:
    """Insert rows of four values, several per statement.

    Between two statements the loop's thread gets a turn.
    """
    start = 0
    for size in _AT_ONCE:
        while len(rows) - start >= size:
            values = [value for row in rows[start : start + size] for value in row]
            connection.execute(statement.format(_FOUR[size]), values)
            start += size


def _put_history(connection: sqlite3.Connection, history: History) -> None:
    connection.execute(
        "INSERT INTO meta (name, value) VALUES ('position', ?), ('digest', ?)"
        " ON CONFLICT DO UPDATE SET value = excluded.value",
        (str(history.position.as_int()).encode(), history.digest),
    )


def read_history(connection: sqlite3.Connection) -> History:
    """Return the end of the history in this connection's view."""
    position = int(_get_meta(connection, "position", b"0"))
    return History(Position.from_int(position), _get_meta(connection, "digest", NO_DIGEST))


def read_covered(connection: sqlite3.Connection) -> list[Position]:
    """Return the last positions of states that a restored backup replaced on purpose."""
    return [
        Position.from_int(int(one)) for one in _get_meta(connection, _COVERED, b"").decode().split()
    ]


def _encoded(positions: Collection[Position]) -> bytes:
    return " ".join(str(one.as_int()) for one in positions).encode()


def _get_meta(connection: sqlite3.Connection, name: str, default: bytes) -> bytes:
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return default if row is None else bytes(row[0])


def _put_meta(connection: sqlite3.Connection, name: str, value: bytes) -> None:
    connection.execute(
        "INSERT INTO meta (name, value) VALUES (?, ?)"
        " ON CONFLICT DO UPDATE SET value = excluded.value",
        (name, value),
    )
