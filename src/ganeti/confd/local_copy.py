"""The facts from this candidate's own database: read-only, and followed by its log.

Nothing is written, and no read transaction stays open, so the master daemon, which owns the file,
never waits. The reader sees all data synced here, whether the master lives or not.
"""

import asyncio
import logging
import sqlite3
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from ganeti.base.errors import StoreError
from ganeti.confd.facts import KINDS, ClusterCopy
from ganeti.store.database import DiskBroken, read_history
from ganeti.store.database_reader import LogReader
from ganeti.store.encoding import decode_transaction, row_checksum
from ganeti.store.interface import NotInLog, Operation, Position, Put
from ganeti.store.worker import Worker

LOOK_S = 0.25
"""Interval of the checks for changes: a change is known within a second."""
_KINDS = frozenset(KINDS)

_log = logging.getLogger(__name__)


class FileReplaced(StoreError):
    """The path now refers to another file than the opened one."""


def put(facts: ClusterCopy, kind: str, key: str, value: bytes) -> None:
    """Add a row; one that cannot be decoded is logged and omitted, and the others are answered."""
    try:
        facts.put(kind, key, value)
    except StoreError as err:
        _log.warning("ignoring a row: %s", err)
        facts.delete(kind, key)


def apply(facts: ClusterCopy, operations: list[Operation], position: Position) -> None:
    """Apply the changes of a transaction."""
    for one in operations:
        if isinstance(one, Put):
            put(facts, one.kind, one.key, one.value)
        else:
            facts.delete(one.kind, one.key)
    facts.position = position.as_int()


class LocalCopy:
    """Opened with the rights for it; afterwards none are needed, because the file stays open."""

    def __init__(self, path: Path) -> None:
        """StoreError if the file does not exist, or cannot be read."""
        self._path = path
        try:
            # A read-only pragma is not enough: the file itself is opened read-only.
            self._connection = sqlite3.connect(
                f"file:{quote(str(path))}?mode=ro",
                uri=True,
                isolation_level=None,
                timeout=5.0,
                check_same_thread=False,  # by one thread at a time
            )
            self._inode = path.stat().st_ino
            self.facts = self._load()
        except (sqlite3.Error, OSError, DiskBroken) as err:
            raise StoreError(f"{path} cannot be read: {err}") from err
        self._log = LogReader(path, lambda _path: self._connection)
        self._version = -1
        self._worker = Worker("confd reader")

    async def follow(self) -> None:
        """Keep `facts` current until cancelled; FileReplaced if the file was replaced."""
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                await self.look()
        finally:
            await self._worker.close()
            with suppress(sqlite3.Error):
                self._connection.close()

    async def look(self) -> None:
        """Read changes; a failed read is repeated at the next check."""
        try:
            self._check_file()
            news = await self._worker.call(self._news)
        except NotInLog:
            await self._read_again()
        except FileReplaced:
            raise
        except (StoreError, DiskBroken, sqlite3.Error) as err:
            _log.warning("the state cannot be read now: %s", err)
        else:
            for operations, position in news:
                apply(self.facts, operations, position)

    async def _read_again(self) -> None:
        try:
            self.facts = await self._worker.call(self._load)
        except (StoreError, DiskBroken, sqlite3.Error) as err:
            _log.warning("the state cannot be read now: %s", err)
            self._version = -1

    def _check_file(self) -> None:
        try:
            inode = self._path.stat().st_ino
        except FileNotFoundError:
            inode = 0
        if inode != self._inode:
            raise FileReplaced(f"{self._path} has been replaced")

    def _news(self) -> list[tuple[list[Operation], Position]]:
        """Return the transactions since `facts`, each with its changes of them."""
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return []
        found: list[tuple[list[Operation], Position]] = []
        position = Position.from_int(self.facts.position)
        while entries := self._log.encoded_after(position):
            for entry in entries:
                operations = decode_transaction(entry.content).operations
                found.append(([one for one in operations if one.kind in _KINDS], entry.position))
            position = entries[-1].position
        self._version = version
        return found

    def _load(self) -> ClusterCopy:
        facts = ClusterCopy()
        connection = self._connection
        connection.execute("BEGIN")
        try:
            facts.position = read_history(connection).position.as_int()
            for kind in KINDS:
                for key, value, checksum in connection.execute(
                    "SELECT key, value, checksum FROM rows WHERE kind = ?", (kind,)
                ):
                    if row_checksum(kind, key, value) != checksum:
                        raise StoreError(f"row {kind}/{key} is damaged: its checksum is wrong")
                    put(facts, kind, key, value)
        finally:
            connection.execute("COMMIT")
        return facts
