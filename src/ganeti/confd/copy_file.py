"""The file with the facts on a node that is not a master candidate: the master's rows, without secrets.

It has the format of the state's own database, so `LocalCopy` can follow either. All calls block.
"""

from pathlib import Path

from ganeti.base.errors import HostError, InputError, StoreError
from ganeti.base.node_files import DATABASE_PARTS
from ganeti.confd.facts import KINDS
from ganeti.store.database import CannotWriteNow, Database, DiskBroken, History, Limits
from ganeti.store.encoding import EncodedEntry, chain_digest, decode_transaction
from ganeti.store.interface import Identity, Operation, Position, Put, Row

_LIMITS = Limits(log_entries=200, log_bytes=4 << 20)
"""Confd reads changes within a second of their arrival."""


def write_copy(
    path: Path, identity: Identity, base: int | None, position: int, content: bytes
) -> int:
    """Bring the copy to a position and return its position; HostError, InputError.

    `content` is an encoded transaction: the changes since `base`, or with `base` None the whole.
    Changes with another base than the copy's position are ignored. A damaged file is replaced.
    """
    operations = _operations(content)
    try:
        database = _opened(path, identity)
        try:
            if base is None:
                _replace(database, operations, position)
            elif database.history.position.as_int() == base < position:
                _append(database, content, position)
            return database.history.position.as_int()
        finally:
            database.close()
    except (CannotWriteNow, DiskBroken, StoreError, OSError) as err:
        raise HostError(f"cannot write {path}: {err}") from err


def _operations(content: bytes) -> tuple[Operation, ...]:
    try:
        operations = decode_transaction(content).operations
    except StoreError as err:
        raise InputError(f"is not a change of the copy: {err.message}", "content") from err
    if any(one.kind not in KINDS for one in operations):
        raise InputError("has rows that confd does not use", "content")
    return operations


def _opened(path: Path, identity: Identity) -> Database:
    database = Database(path, _LIMITS)
    try:
        database.open(identity.cluster_uuid, identity.node_uuid)
    except StoreError:
        for part in DATABASE_PARTS:
            path.with_name(path.name + part).unlink(missing_ok=True)
        database = Database(path, _LIMITS)
        database.open(identity.cluster_uuid, identity.node_uuid)
    return database


def _replace(database: Database, operations: tuple[Operation, ...], position: int) -> None:
    database.begin_snapshot()
    rows = [Row(one.kind, one.key, one.value) for one in operations if isinstance(one, Put)]
    database.add_snapshot_rows(rows)
    database.end_snapshot(History(Position.from_int(position)))


def _append(database: Database, content: bytes, position: int) -> None:
    before, after = database.history, Position.from_int(position)
    digest = chain_digest(before.digest, after, content)
    database.append([EncodedEntry(after, before.position, digest, content)])
