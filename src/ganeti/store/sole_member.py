"""What every back end with one member does alike: roles, leases, campaigns and the member list."""

import abc
import asyncio
import contextlib
from collections.abc import AsyncGenerator

from ganeti.base.errors import NotMaster, StoreError
from ganeti.model.objects import NodeUuid
from ganeti.store.backup import write_backup
from ganeti.store.electorate import Electorate, greatest_ceiling, greatest_epoch
from ganeti.store.encoding import MemberList, encode_ceiling
from ganeti.store.interface import (
    JOB_ID_CEILING_KEY,
    MEMBERS_KEY,
    META_KIND,
    ZERO,
    ByteSink,
    Campaign,
    CampaignKind,
    Follower,
    Identity,
    Lease,
    Lost,
    Master,
    MemberChange,
    Membership,
    Position,
    Put,
    Receipt,
    Role,
    Row,
    Transaction,
    check_transaction,
)
from ganeti.store.notices import RoleFeed
from ganeti.store.register import Accepted, AcceptRequest, PromiseRequest


class SoleMember(abc.ABC):
    """The part of a `StateBackend` that decides; the rest, below, carries out."""

    def __init__(self, identity: Identity, electorate: Electorate) -> None:
        self._identity = identity
        self._electorate = electorate
        self._roles = RoleFeed()
        self._campaigning = asyncio.Lock()
        self._changing_members = asyncio.Lock()
        self._members = MemberList.decode(None, identity.node_uuid)
        self._position = ZERO
        self._epoch = 0  # the greatest that this store has taken
        self._closed = False
        self._forced = False
        self._registered_ceiling = 0

    @abc.abstractmethod
    def load(self) -> AsyncGenerator[Position | Row, None]:
        """As `StateBackend` says."""

    @abc.abstractmethod
    def _add(self, lease: Lease, txn: Transaction, size: int) -> asyncio.Future[Position]:
        """Queue a transaction of the current lease; raises like `commit`."""

    @abc.abstractmethod
    async def _drained(self) -> None:
        """Wait until nothing waits to be written."""

    @abc.abstractmethod
    async def _keep_epoch(self, epoch: int) -> None:
        """Write the epoch down, synced, and forget unawaited transactions that were lost."""

    @abc.abstractmethod
    async def _stored_ceiling(self) -> int:
        """The ceiling of job ids in the rows."""

    # Roles

    def role_changes(self) -> AsyncGenerator[Role, None]:
        return self._roles.changes()

    async def campaign(self, how: Campaign) -> None:
        async with self._campaigning:
            self._check_usable()
            self._step_down("a new epoch is being taken")
            await self._drained()
            lease = await self._take_epoch(how.kind)
            self._check_usable()
            self._forced = how.kind is CampaignKind.FORCE
            self._roles.change(Master(lease))

    async def _take_epoch(self, kind: CampaignKind) -> Lease:
        """Greater than all promised ones; promised, then written here, then registered (R2, R7)."""
        registers = await self._electorate.registers()
        epoch = max(greatest_epoch(registers), self._epoch, self._position.epoch) + 1
        cluster, node = self._identity.cluster_uuid, self._identity.node_uuid
        await self._electorate.promise(PromiseRequest(cluster, epoch, node), kind)
        self._check_usable()
        await self._keep_epoch(epoch)
        self._epoch = epoch
        ceiling = max(greatest_ceiling(registers), await self._stored_ceiling())
        accepted = Accepted(epoch, 0, node, frozenset((node,)), ceiling)
        await self._electorate.accept(AcceptRequest(cluster, accepted), kind)
        self._registered_ceiling = ceiling
        return Lease(epoch)

    async def step_down(self, why: str) -> None:
        self._step_down(why)
        await self._drained()

    def _step_down(self, reason: str, to: NodeUuid | None = None) -> None:
        if isinstance(self._roles.role, Master):
            self._roles.change(Follower(reason, to or self._identity.node_uuid))

    def _lose(self, reason: str) -> None:
        """Closed for good: nobody may believe any more what this store says."""
        self._roles.change(Lost(reason))

    def _check_usable(self) -> None:
        role = self._roles.role
        if isinstance(role, Lost):
            raise NotMaster(f"the store is closed for good: {role.reason}")
        if self._closed:
            raise NotMaster("the store is closed")

    def _check_readable(self) -> None:
        role = self._roles.role
        if isinstance(role, Lost):
            raise StoreError(f"the store is closed for good: {role.reason}")
        if self._closed:
            raise StoreError("the store is closed")

    def _check_lease(self, lease: Lease) -> None:
        self._check_usable()
        role = self._roles.role
        if not isinstance(role, Master):
            raise NotMaster("this node is not the master")
        if role.lease != lease:
            raise NotMaster(f"epoch {lease.epoch} is over: this is epoch {role.lease.epoch}")

    # Writing and reading

    async def _until_writable(self, lease: Lease) -> None:
        """Raises like `commit`; what is added at once after it keeps the order of the calls."""
        self._check_lease(lease)

    async def commit(self, lease: Lease, txn: Transaction) -> Receipt:
        size = check_transaction(txn)
        await self._until_writable(lease)
        # Shielded: a caller that is cancelled does not take back what is on its way to the disk.
        position = await asyncio.shield(self._add(lease, txn, size))
        return Receipt(position, self._membership(0).degraded)

    async def backup(self, sink: ByteSink) -> Position:
        async with contextlib.aclosing(self.load()) as snapshot:
            return await write_backup(snapshot, sink, self._identity.cluster_uuid)

    async def raise_job_id_ceiling(self, lease: Lease, ceiling: int) -> None:
        self._check_lease(lease)
        node = self._identity.node_uuid
        accepted = Accepted(lease.epoch, 0, node, frozenset((node,)), ceiling)
        request = AcceptRequest(self._identity.cluster_uuid, accepted)
        await self._electorate.accept(request, CampaignKind.VOTE)
        row = Put(META_KIND, JOB_ID_CEILING_KEY, encode_ceiling(ceiling))
        await self.commit(lease, Transaction((row,)))
        self._registered_ceiling = max(self._registered_ceiling, ceiling)

    # Members

    async def members(self) -> Membership:
        self._check_readable()
        return self._membership(max(self._registered_ceiling, await self._stored_ceiling()))

    async def change_members(self, lease: Lease, change: MemberChange) -> Receipt:
        async with self._changing_members:
            position = await self._write_members(lease, change)
        return Receipt(position, self._membership(0).degraded)

    async def _write_members(self, lease: Lease, change: MemberChange) -> Position:
        """Write the list with one node changed; raises like `commit`."""
        await self._until_writable(lease)
        members = self._members.changed(change, self._identity.node_uuid)
        row = Put(META_KIND, MEMBERS_KEY, members.encode())
        written = self._add(lease, Transaction((row,)), len(row.value))

        def apply(done: asyncio.Future[Position]) -> None:
            """Also when the caller was cancelled meanwhile."""
            if not done.cancelled() and done.exception() is None:
                self._members = members

        written.add_done_callback(apply)
        return await asyncio.shield(written)

    def _membership(self, ceiling: int) -> Membership:
        node = self._identity.node_uuid
        is_master = isinstance(self._roles.role, Master)
        return Membership(
            master=node if is_master else None,
            epoch=self._epoch,
            voters=self._members.voters,
            candidates=self._members.candidates,
            holders=frozenset((node,)),
            degraded=self._members.candidates != {node}
            or (is_master and self._forced and len(self._members.voters) > 1),
            job_id_ceiling=ceiling,
        )
