"""Replaces a candidate's state with a backup while no master daemon runs on its node.

One SQLite transaction replaces everything and preserves the old state. Then the register records
that this node alone has the last state, at an epoch beyond all that others may have used (R10).
After a crash in between, the restored state exists but is not registered: a repeated restore does
both again.
"""

import contextlib
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path

from ganeti.base.errors import Refused, StoreError
from ganeti.base.files import exclusive_file, sync_directory
from ganeti.base.paths import Paths
from ganeti.model.objects import NodeUuid
from ganeti.store.backend import PresentState, Restoration
from ganeti.store.database import (
    CannotWriteNow,
    Connect,
    Database,
    DiskBroken,
    History,
    Limits,
    connect,
)
from ganeti.store.database_reader import Snapshot
from ganeti.store.encoding import decode_ceiling
from ganeti.store.interface import JOB_ID_CEILING_KEY, META_KIND, ZERO, Identity, Position, Row
from ganeti.store.preserved_states import preserve_state
from ganeti.store.register import (
    Accepted,
    AcceptRequest,
    Answer,
    PromiseRequest,
    Register,
    RegisterFile,
    RegisterKeeper,
    accept,
    promise,
)

_SLICE_ROWS = 500


class EmbeddedRestorer:
    """The `StateRestorer` of the embedded back end."""

    def __init__(self, paths: Paths, identity: Identity) -> None:
        self._paths, self._identity = paths, identity

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        with holding_state(self._paths.state):
            yield

    async def present_state(self) -> PresentState:
        return present_state_at(self._paths.state, self._identity)

    async def rows(self) -> AsyncGenerator[Row, None]:
        for row in rows_at(self._paths.state):
            yield row

    async def replace(self, plan: Restoration, rows: Iterable[Row]) -> str:
        path = self._paths.state
        damaged = move_away(path) if (await self.present_state()).damage else None
        history = History(plan.position, plan.digest)
        kept = replace_state(path, self._identity, history, rows, covered=plan.covered)
        register_restored(
            RegisterFile(self._paths.register),
            self._identity,
            plan.position.epoch,
            plan.job_id_ceiling,
            plan.voters,
        )
        return str(damaged or kept or "")


@contextlib.contextmanager
def holding_state(path: Path) -> Iterator[None]:
    """Lock the state for the block; raise StoreError if the master daemon has it open."""
    with contextlib.ExitStack() as opened:
        lock = path.with_name(f"{path.name}.lock")
        try:
            is_ours = opened.enter_context(exclusive_file(lock))
        except OSError as err:
            raise StoreError(f"cannot open {lock}: {err.strerror or err}") from err
        if not is_ours:
            raise StoreError(
                f"the database {path} is in use by the master daemon; stop ganeti-masterd first"
            )
        yield


def present_state_at(path: Path, identity: Identity, connect: Connect = connect) -> PresentState:
    """Return the state that a restore would replace; the caller holds the lock."""
    if not path.exists():
        return PresentState(Position(0, 0))
    database = Database(path, Limits(), connect)
    try:
        database.open(identity.cluster_uuid, identity.node_uuid)
        ceiling = decode_ceiling(database.get(META_KIND, JOB_ID_CEILING_KEY))
        return PresentState(database.history.position, database.epoch, ceiling)
    except StoreError as err:
        return PresentState(Position(0, 0), damage=err.message)
    finally:
        database.close()


def rows_at(path: Path) -> Iterator[Row]:
    """Return all rows of a state that can be opened; StoreError."""
    snapshot = Snapshot(path)
    try:
        snapshot.begin()
        while rows := snapshot.next_slice():
            yield from rows
    except DiskBroken as err:
        raise StoreError(f"the database {path} is damaged: {err}") from err
    finally:
        snapshot.close()


def move_away(path: Path) -> Path:
    """Move away a state that cannot be opened; return its new path. OSError."""
    aside = next(
        candidate
        for number in range(1, 1 << 30)
        if not (candidate := path.with_name(f"{path.name}.damaged-{number}")).exists()
    )
    # The log first: a database without its log is only old, but a log without its database is
    # useless.
    for suffix in ("-wal", "-shm", ""):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    sync_directory(path.parent)
    return aside


def replace_state(
    path: Path,
    identity: Identity,
    history: History,
    rows: Iterable[Row],
    connect: Connect = connect,
    *,
    covered: Collection[Position] = (),
) -> Path | None:
    """Replace the whole state with `rows`, at the end of `history`; return where the old state is preserved.

    An old state that ended at one of `covered` has nothing of use and is not preserved.

    The caller holds the lock. After Refused (full disk), StoreError, or an error of `rows` nothing
    has changed.
    """
    database = Database(path, Limits(), connect)
    try:
        database.open(identity.cluster_uuid, identity.node_uuid)
        old, kept = database.history, list[Path]()

        def keep(connection: sqlite3.Connection) -> None:
            kept.append(preserve_state(connection, path, old, ZERO))

        is_missed = old.position not in (ZERO, *covered)
        database.begin_snapshot(keep if is_missed else None)
        try:
            iterator = iter(rows)
            while part := list(islice(iterator, _SLICE_ROWS)):
                database.add_snapshot_rows(part)
        except BaseException:
            database.abandon_snapshot()
            raise
        database.end_snapshot(history, covered)
        database.take_epoch(history.position.epoch)
    except CannotWriteNow as err:
        raise Refused(f"the disk of {path} is full ({err}); nothing was restored") from err
    except DiskBroken as err:
        raise StoreError(f"the database {path} failed: {err}") from err
    finally:
        database.close()
    return kept[0] if kept else None


def register_restored(
    keeper: RegisterKeeper,
    identity: Identity,
    epoch: int,
    ceiling: int,
    voters: frozenset[NodeUuid],
) -> None:
    """Record in this node's register that it alone has the last state, in `epoch`; StoreError."""
    cluster, node = identity.cluster_uuid, identity.node_uuid

    def rule(old: Register | None) -> Answer:
        promised = promise(old, PromiseRequest(cluster, epoch, node))
        if not promised.granted:
            return promised
        accepted = Accepted(epoch, 0, node, frozenset((node,)), ceiling, voters)
        return accept(promised.register, AcceptRequest(cluster, accepted))

    answer = keeper.decide(rule)
    if not answer.granted:
        raise StoreError(
            f"this node's register refused the restored state ({answer.reason}); restore it again"
        )
