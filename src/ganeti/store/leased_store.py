"""The part of a `StateBackend` that does not depend on the location of the state."""

import abc
import asyncio
import contextlib
from collections.abc import AsyncGenerator

from ganeti.store.backup import write_backup
from ganeti.store.encoding import MemberList, encode_ceiling
from ganeti.store.interface import (
    JOB_ID_CEILING_KEY,
    MEMBERS_KEY,
    META_KIND,
    ByteSink,
    Identity,
    Lease,
    MemberChange,
    Position,
    Put,
    Receipt,
    Role,
    Row,
    Transaction,
    check_transaction,
)
from ganeti.store.notices import RoleFeed


class LeasedStore(abc.ABC):
    """Roles, backups and the store's own rows; the interface documents the methods."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._roles = RoleFeed()

    @abc.abstractmethod
    def load(self) -> AsyncGenerator[Position | Row, None]: ...

    @abc.abstractmethod
    def _add(self, lease: Lease, txn: Transaction, size: int) -> asyncio.Future[Position]:
        """Queue a transaction under its lease.

        The future gets its position once it is written. NotMaster, Refused.
        """

    @abc.abstractmethod
    def _is_degraded(self) -> bool:
        """Return whether a present write may be lost with one node (R6)."""

    @abc.abstractmethod
    def _members_now(self) -> MemberList:
        """Return the members as written last."""

    @abc.abstractmethod
    def _members_are(self, members: MemberList) -> None:
        """Record members that have been written."""

    def role_changes(self) -> AsyncGenerator[Role, None]:
        return self._roles.changes()

    async def backup(self, sink: ByteSink) -> Position:
        async with contextlib.aclosing(self.load()) as snapshot:
            return await write_backup(snapshot, sink, self._identity.cluster_uuid)

    async def commit(self, lease: Lease, txn: Transaction) -> Receipt:
        size = check_transaction(txn)
        # Cancelling the caller cancels this future, which does not revoke the running write.
        position = await self._add(lease, txn, size)
        return Receipt(position, self._is_degraded())

    def post(self, lease: Lease, txn: Transaction) -> asyncio.Future[Position] | None:
        return self._add(lease, txn, check_transaction(txn))

    async def _write_ceiling(self, lease: Lease, ceiling: int) -> None:
        """Write the row with the ceiling of job ids; raises like `commit`."""
        row = Put(META_KIND, JOB_ID_CEILING_KEY, encode_ceiling(ceiling))
        await self.commit(lease, Transaction((row,)))

    async def _write_members(self, lease: Lease, change: MemberChange) -> Position:
        """Write the list with one node changed; raises like `commit`."""
        members = self._members_now().changed(change, self._identity.node_uuid)
        row = Put(META_KIND, MEMBERS_KEY, members.encode())
        written = self._add(lease, Transaction((row,)), len(row.value))

        def apply(done: asyncio.Future[Position]) -> None:
            """Apply the change even if the caller was cancelled meanwhile."""
            if not done.cancelled() and done.exception() is None:
                self._members_are(members)

        written.add_done_callback(apply)
        return await asyncio.shield(written)
