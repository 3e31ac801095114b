"""The state in etcd, behind the same interface as the embedded store, with etcd's own elections.

    follower --the leader's key is gone: create it under a lease, with the next epoch--> master
    master --the lease or the quorum is lost, a hand-over, step_down--> follower

Safety is etcd's comparison of the leader's key in each transaction; the clock only decides when to stop.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable

from ganeti.base.errors import NotMaster, ProtocolError, StoreError
from ganeti.model.objects import NodeUuid
from ganeti.store.encoding import MemberList
from ganeti.store.epochs import EXHAUSTED
from ganeti.store.etcd.election import obstacle, superseded
from ganeti.store.etcd.gateway import Gateway, GatewayError
from ganeti.store.etcd.history import History
from ganeti.store.etcd.keys import Head, Keys, LeaderKey, encode_epoch
from ganeti.store.etcd.messages import Compare, RangeAnswer, delete, get, put
from ganeti.store.etcd.upkeep import LEASE_S, EtcdOptions, Upkeep
from ganeti.store.etcd.view import View
from ganeti.store.etcd.writer import HeldLease, Writer
from ganeti.store.interface import (
    MAX_EPOCH,
    Campaign,
    CampaignKind,
    Follower,
    Identity,
    Lease,
    LogEntry,
    Lost,
    Master,
    MemberChange,
    Membership,
    NotYet,
    Position,
    Receipt,
    Row,
    StoreStatistics,
    Transaction,
    check_transaction,
)
from ganeti.store.leased_store import LeasedStore
from ganeti.store.waiting import WaitingTransactions

MARGIN_S = 0.25
"""Time by which the master stops before its lease ends in etcd."""
RENEW_S = 0.75
LEAVE_S = 1.0
"""Time limit for a master that ends to revoke its lease."""
KEEP_ALIVE_AGAIN_S = 0.1
STAND_BACK_S = 3.0
"""Time for which a candidate that has stepped down leaves the election to others."""
HAND_OVER_S = 10
"""Time for which a hand-over request is valid after the last contact with its node."""
ASK_AGAIN_S = 2.0
CAMPAIGN_S = LEASE_S + 6.0
PAGE_ROWS = 500
PAGE_BYTES = 2 << 20

NO_FORCE = (
    "the state is in etcd, which elects the master: a forced campaign without etcd's quorum does "
    "not exist. Start ganeti-etcd again on the candidates (a majority of them must run; the log "
    "on each candidate has the reason of a failure). If a majority is lost permanently: stop "
    "ganeti-masterd and ganeti-etcd on every candidate, run 'ganeti-etcd --force-new-cluster' "
    "once on the candidate that was last written to, then start ganeti-masterd there; for each "
    "other candidate run 'gnt-node modify --master-candidate=no', then '=yes'"
)

GONE_TRIES, GONE_AGAIN_S = 4, 0.15
"""A process that ends closes its connections a moment before its pid file is free."""

_log = logging.getLogger(__name__)


async def not_known(_node: NodeUuid) -> bool:
    """For a cluster whose nodes are not asked whether a master daemon runs there."""
    return False


async def no_registers(_taken: int) -> int:
    """Return 0, for a cluster whose nodes have promised no epoch yet."""
    return 0


class EtcdBackend(LeasedStore):
    """A `StateBackend`; it campaigns from `start` on."""

    def __init__(
        self,
        gateway: Gateway,
        identity: Identity,
        *,
        highest_promised: Callable[[int], Awaitable[int]] = no_registers,
        is_gone: Callable[[NodeUuid], Awaitable[bool]] = not_known,
        options: EtcdOptions | None = None,
    ) -> None:
        """Open a follower.

        `highest_promised` returns the greatest epoch of the answering registers, given a taken one.
        `is_gone` returns whether certainly no master daemon runs on a node now.
        """
        super().__init__(identity)
        self._gateway = gateway
        self._options = options or EtcdOptions()
        self._keys = Keys(identity.cluster_uuid)
        self._highest_promised, self._is_gone = highest_promised, is_gone
        self._view = View(gateway, self._keys, identity.node_uuid)
        self._writer: Writer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._valid_until = 0.0
        self._end: asyncio.Future[str] | None = None  # the reason why the lease is to end
        self._ended = asyncio.Event()
        self._ended.set()
        self._stand_back_until = 0.0
        self._obstacle = ""
        """The reason why this node does not become the master now; '' while it is the master."""
        self._end_reason = ""
        """The reason why the last lease ended; '' while this node is the master."""
        self._ceiling = 0
        self._history = History(gateway, self._keys)
        self._upkeep = Upkeep(gateway, self._keys, identity.node_uuid, self._options)
        self._changing_members = asyncio.Lock()
        self._written_members: MemberList | None = None
        self._totals = StoreStatistics(Follower(), Head().position)

    # Life

    async def start(self) -> None:
        """Begin to follow and to campaign; StoreError if etcd has the state of another version."""
        with contextlib.suppress(GatewayError, ProtocolError):
            await self._view.read()
            await self._end_earlier_life()
        self._view.start()
        self._tasks.append(asyncio.create_task(self._run(), name="etcd-election"))
        if self._options.is_managed:
            with contextlib.suppress(GatewayError, ProtocolError):
                await self._upkeep.look_at_members()
            servers = asyncio.create_task(self._upkeep.look_at_servers(), name="etcd-servers")
            self._tasks.append(servers)

    async def _end_earlier_life(self) -> None:
        """End the lease of a previous process on this node: a node runs one daemon at a time."""
        leader = self._view.leader
        if leader is not None and leader.node == self._identity.node_uuid:
            await self._remove_leader(self._view.token)

    async def _remove_leader(self, token: int) -> None:
        """Remove the leader's key of a daemon that is gone; not the key of any later one."""
        is_its = Compare(self._keys.leader, create_revision=token)
        await self._gateway.txn([is_its], [delete(self._keys.leader)])

    async def master_hung_up(self) -> None:
        """Remove the leader's key if the master's node says that its daemon is gone.

        Otherwise the lease decides, as where the whole node is silent.
        """
        for _ in range(GONE_TRIES):
            # In this order: what the node says then is about the daemon that has this token.
            leader, token = self._view.leader, self._view.token
            if leader is None or leader.node == self._identity.node_uuid or self._roles.is_closed:
                return
            if await self._is_gone(leader.node):
                _log.info("the daemon of the master %s is gone", leader.node)
                with contextlib.suppress(GatewayError, ProtocolError):
                    await self._remove_leader(token)
                return
            await asyncio.sleep(GONE_AGAIN_S)

    async def close(self) -> None:
        if self._roles.is_closed:
            return
        self._roles.is_closed = True
        if self._end is not None and not self._end.done():
            self._end.set_result("the daemon ends")
        await self._ended.wait()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._view.close()
        self._roles.close()
        await self._gateway.close()

    # The election

    async def _run(self) -> None:
        """Repeat: follow until the master's place is free, take it, keep it."""
        while not self._roles.is_closed:
            try:
                await self._until_free()
                lease, number = await self._elected()
            except (GatewayError, ProtocolError, NotMaster) as err:
                self._follow(err.message)
                await asyncio.sleep(random.uniform(0.2, 0.6))  # noqa: S311 - only to differ
                continue
            except StoreError as err:
                self._lose(err.message)
                return
            except Exception as err:  # noqa: BLE001 - or this candidate would never campaign again
                _log.exception("the election in etcd failed")
                self._lose(f"the election in etcd failed: {err!r}")
                return
            await self._serve_term(lease, number)

    async def _until_free(self) -> None:
        """Return when this node may try to become the master; StoreError if the state is damaged."""
        while True:
            if self._view.damage:
                raise StoreError(self._view.damage)
            why = obstacle(self._view, self._identity.node_uuid, self._stand_back_reason())
            if not why:
                return
            self._follow(why)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await self._view.changed()

    def _stand_back_reason(self) -> str:
        """Return why this node leaves the election to others for a moment; '' if it does not."""
        if asyncio.get_running_loop().time() >= self._stand_back_until:
            return ""
        return self._end_reason or "this node leaves the election to others for a moment"

    def _follow(self, why: str) -> None:
        leader = self._view.leader
        if why != self._obstacle:
            _log.info("follower: %s", why)
        self._obstacle = why
        master = leader.node if leader is not None else None
        if master == self._identity.node_uuid:
            master = None  # an earlier process of this daemon: its lease has yet to end
        self._roles.change(Follower(why, master))

    async def _elected(self) -> tuple[Lease, int]:
        """Create the leader's key.

        Return the lease of the interface and of etcd. Raises what `_run` expects.
        """
        view, keys, own = self._view, self._keys, self._identity.node_uuid
        promised = await self._highest_promised(max(view.epoch, view.head.position.epoch))
        epoch = max(view.epoch, view.head.position.epoch, promised) + 1
        if epoch > MAX_EPOCH:
            raise StoreError(EXHAUSTED)
        asked = asyncio.get_running_loop().time()
        number = await self._gateway.grant_lease(self._options.lease_s)
        counter, members = view.epoch_value, view.members_value
        compare = [
            Compare(keys.leader, create_revision=0),
            Compare(keys.incomplete, create_revision=0),
            Compare(keys.moved, create_revision=0),
            Compare(keys.epoch, value=counter)
            if counter
            else Compare(keys.epoch, create_revision=0),
            # A node that was demoted may not know that yet.
            Compare(keys.members, value=members)
            if members
            else Compare(keys.members, create_revision=0),
            # Read again: a watch may report the free place before the hand-over request.
            Compare(keys.hand_over, value=own.encode())
            if view.hand_over == own
            else Compare(keys.hand_over, create_revision=0),
        ]
        requests = [
            put(keys.leader, LeaderKey(own, epoch).encode(), number),
            put(keys.epoch, encode_epoch(epoch)),
            delete(keys.hand_over),
            *(get(key) for key in (keys.leader, keys.epoch, keys.head, keys.members, keys.ceiling)),
        ]
        try:
            answer = await self._gateway.txn(compare, requests)
        except GatewayError:
            # If the request was carried out after all, the key ends with the lease.
            await self._give_back(number)
            raise
        if not answer.succeeded:
            await self._give_back(number)
            raise NotMaster("another candidate won the election or was chosen as the master")
        view.take(answer)
        self._valid_until = asked + self._options.lease_s - MARGIN_S
        return Lease(epoch, str(view.token).encode()), number

    async def _give_back(self, number: int) -> None:
        with contextlib.suppress(GatewayError, ProtocolError):
            await self._gateway.revoke_lease(number)

    # A term

    async def _serve_term(self, lease: Lease, number: int) -> None:
        """Be the master until the lease must end."""
        end = self._end = asyncio.get_running_loop().create_future()
        self._ended.clear()
        held = HeldLease(
            lease.epoch,
            int(lease.token),
            self._is_valid,
            self._lost_lease,
            self._upkeep.make_room,
        )
        self._ceiling, self._written_members = self._view.job_id_ceiling, None
        self._writer = Writer(self._gateway, self._keys, self._view.head, held)
        self._obstacle = self._end_reason = ""
        if self._roles.is_closed:
            self._lost_lease("the daemon ends")
        else:
            self._roles.change(Master(lease))
        work = [
            asyncio.create_task(task, name=name)
            for task, name in (
                (self._renew(number, end), "etcd-lease"),
                (self._look_at_view(end, int(lease.token)), "etcd-rivals"),
                (self._upkeep.compact(), "etcd-compaction"),
                (self._upkeep.lead_elsewhere(), "etcd-leader"),
            )
        ]
        try:
            why = await end
        finally:
            for task in work:
                task.cancel()
            await asyncio.wait(work)
            await self._leave(number)
        _log.info("epoch %d has ended: %s", lease.epoch, why)

    async def _leave(self, number: int) -> None:
        """Give every waiting transaction its outcome, then let another candidate be elected."""
        writer = self._writer
        if writer is not None:
            await writer.end(self._end_reason or "its lease has ended")
            self._add_totals(writer)
        self._writer = self._end = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._give_back(number)
        self._stand_back_until = asyncio.get_running_loop().time() + STAND_BACK_S
        self._ended.set()

    def _is_valid(self) -> bool:
        return asyncio.get_running_loop().time() < self._valid_until

    def holds(self, epoch: int) -> bool:
        """Return whether the lease in etcd surely lasts: no other candidate is elected before it ends."""
        return (
            isinstance(self._roles.role, Master)
            and self._roles.role.lease.epoch == epoch
            and self._is_valid()
        )

    def _lost_lease(self, why: str) -> None:
        """End the mastership before any other node can be elected."""
        if self._end is None or self._end.done():
            return
        self._end.set_result(why)
        self._end_reason = self._obstacle = why
        self._roles.change(Follower(why))

    async def _renew(self, number: int, end: "asyncio.Future[str]") -> None:
        """Keep the lease for as long as etcd answers; a late answer does not delay the next question."""
        loop = asyncio.get_running_loop()
        asking: set[asyncio.Task[None]] = set()
        try:
            while (left := self._valid_until - loop.time()) > 0 and not end.done():
                await asyncio.sleep(min(RENEW_S, left))
                task = asyncio.create_task(self._keep_alive(number), name="etcd-keep-alive")
                asking.add(task)
                task.add_done_callback(asking.discard)
            self._lost_lease(
                f"the lease in etcd could not be renewed in time ({self._view.unreachable})"
            )
        finally:
            for task in asking:
                task.cancel()
            if asking:
                await asyncio.wait(asking)

    async def _keep_alive(self, number: int) -> None:
        """Renew the lease once, with several tries, before it ends."""
        loop = asyncio.get_running_loop()
        asked, is_renewed = loop.time(), None
        while is_renewed is None and (left := self._valid_until - loop.time()) > 0:
            asked = loop.time()
            try:
                is_renewed = await self._gateway.keep_alive(number, timeout_s=left)
            except (GatewayError, ProtocolError):
                await asyncio.sleep(KEEP_ALIVE_AGAIN_S)
        if is_renewed:
            until = asked + self._options.lease_s - MARGIN_S
            self._valid_until = max(self._valid_until, until)
        elif is_renewed is False:
            self._lost_lease("the lease in etcd has ended")

    async def _look_at_view(self, end: "asyncio.Future[str]", token: int) -> None:
        """End the lease if another node is the master, or requests a hand-over."""
        while not end.done():
            if why := superseded(self._view, self._identity.node_uuid, token):
                self._lost_lease(why)
            await self._view.changed()

    # Requests from outside

    async def campaign(self, how: Campaign) -> None:
        self._roles.check_usable()
        if isinstance(self._roles.role, Master):
            return
        if how.kind is CampaignKind.FORCE:
            raise NotMaster(NO_FORCE)
        self._stand_back_until = 0.0
        self._view.wake()
        try:
            async with asyncio.timeout(CAMPAIGN_S):
                if how.kind is CampaignKind.HAND_OVER:
                    await self._handed_over()
                else:
                    await self._elected_or_refused(how.kind)
        except TimeoutError:
            raise NotYet(
                f"this node was not elected in {CAMPAIGN_S:g} s: {self._obstacle}"
            ) from None

    async def _handed_over(self) -> None:
        """Request the mastership until this node has it.

        Prevents other elections meanwhile. The request ends here.
        """
        gateway, lease = self._gateway, 0
        try:
            while True:
                if not lease or not await gateway.keep_alive(lease):
                    lease = await gateway.grant_lease(HAND_OVER_S)
                await self._request_hand_over(lease)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ASK_AGAIN_S):
                        return await self._elected_or_refused(CampaignKind.HAND_OVER)
        except (GatewayError, ProtocolError) as err:
            raise NotYet(
                f"the request for a hand-over cannot be sent to the master: {err.message}"
            ) from err
        finally:
            if lease:
                await self._give_back(lease)

    async def _request_hand_over(self, lease: int) -> None:
        """Publish this node's request for the mastership; NotYet if another node requests it already."""
        key, own = self._keys.hand_over, self._identity.node_uuid.encode()
        is_free = Compare(key, create_revision=0)
        answer = await self._gateway.txn([is_free], [put(key, own, lease)], [get(key)])
        found = [one for answered in answer.responses for one in answered.response_range.kvs]
        if found and found[0].value != own:
            other = found[0].value.decode(errors="replace")
            raise NotYet(f"the mastership is being handed over to {other}")

    async def _elected_or_refused(self, kind: CampaignKind) -> None:
        async with contextlib.aclosing(self.role_changes()) as roles:
            async for role in roles:
                if isinstance(role, Master):
                    return
                if isinstance(role, Lost):
                    raise NotMaster(role.reason)
                other = role.master if kind is not CampaignKind.HAND_OVER else None
                if other is not None:
                    raise NotMaster(f"the master is {other}; ask it to hand over")
        raise NotMaster("the store is closed")

    async def step_down(self, why: str) -> None:
        if isinstance(self._roles.role, Master):
            self._lost_lease(why)
        await self._ended.wait()

    # Writing

    def submit(self, lease: Lease, txn: Transaction) -> None:
        size = check_transaction(txn)
        self._writable(lease).add_unawaited(txn, size)

    async def raise_job_id_ceiling(self, lease: Lease, ceiling: int) -> None:
        ceiling = max(ceiling, self._ceiling)
        await self._write_ceiling(lease, ceiling)
        self._ceiling = max(ceiling, self._ceiling)

    async def change_members(self, lease: Lease, change: MemberChange) -> Receipt:
        async with self._changing_members:
            position = await self._write_members(lease, change)
        return Receipt(position, self._is_degraded())

    def _add(self, lease: Lease, txn: Transaction, size: int) -> asyncio.Future[Position]:
        return self._writable(lease).add(txn, size)

    def _members_are(self, members: MemberList) -> None:
        self._written_members = members

    def _members_now(self) -> MemberList:
        """Return the members as written last: the view may lag."""
        if self._writer is not None and self._written_members is not None:
            return self._written_members
        return self._view.members

    def _writable(self, lease: Lease) -> Writer:
        self._roles.check_lease(lease)
        if self._writer is None:
            raise NotMaster("this node is not the master")
        return self._writer

    def _lose(self, why: str) -> None:
        self._roles.change(Lost(why))

    # Reading

    async def load(self) -> AsyncGenerator[Position | Row, None]:
        if self._roles.is_closed:
            raise StoreError("the store is closed")
        keys = self._keys
        try:
            heads = await self._gateway.range(keys.head)
            revision = heads.header.revision
            yield Head.decode(heads.kvs[0].value if heads.kvs else None).position
            begin, limit = keys.rows, PAGE_ROWS // 8
            while True:
                page = await self._gateway.range(
                    begin, keys.end_of_rows, revision=revision, limit=limit, timeout_s=10.0
                )
                for found in page.kvs:
                    yield keys.decode_row(found.key, found.value)
                if not page.more:
                    return
                begin = page.kvs[-1].key + b"\0"
                limit = _next_limit(page, limit)
        except ProtocolError as err:
            raise StoreError(err.message) from err

    async def log_after(self, position: Position) -> list[LogEntry]:
        if self._writer is None:
            raise NotMaster("this node is not the master")
        if position == self._writer.head.position:
            return []
        try:
            return await self._history.after(position)
        except ProtocolError as err:
            raise StoreError(err.message) from err

    async def members(self) -> Membership:
        if self._roles.is_closed:
            raise StoreError("the store is closed")
        role, view = self._roles.role, self._view
        members, leader = self._members_now(), view.leader
        master = self._identity.node_uuid if isinstance(role, Master) else None
        epoch = role.lease.epoch if isinstance(role, Master) else view.epoch
        if master is None and leader is not None and leader.node != self._identity.node_uuid:
            master = leader.node
        holders = self._upkeep.holders
        if self._options.is_managed and master is not None:
            holders |= {master}
        return Membership(
            master=master,
            epoch=epoch,
            voters=members.voters,
            candidates=members.candidates,
            holders=holders,
            degraded=self._is_degraded(),
            job_id_ceiling=max(self._ceiling, view.job_id_ceiling),
            is_any_next=True,
        )

    def _is_degraded(self) -> bool:
        """Return whether only one server has the written data, although several could."""
        if not self._options.is_managed:
            return False
        return len(self._upkeep.holders) <= 1 and len(self._members_now().candidates) > 1

    @property
    def is_degraded(self) -> bool:
        return self._writer is not None and self._is_degraded()

    def statistics(self) -> StoreStatistics:
        writer, totals = self._writer, self._totals
        head = self._known_head()
        waiting = writer.waiting if writer is not None else WaitingTransactions("etcd")
        return StoreStatistics(
            role=self._roles.role,
            position=head.position,
            digest=head.digest,
            transactions=totals.transactions + waiting.transactions,
            syncs=totals.syncs + (writer.requests if writer else 0),
            largest_batch=max(totals.largest_batch, waiting.largest_batch),
            waiting=len(waiting),
            waiting_bytes=waiting.bytes,
            refused=totals.refused + waiting.refused,
            is_full=bool(waiting.full),
            degraded=self.is_degraded,
        )

    def _known_head(self) -> Head:
        if self._writer is not None:
            return self._writer.head
        try:
            return self._view.head
        except StoreError:  # the role names the damage
            return Head()

    def _add_totals(self, writer: Writer) -> None:
        totals = self._totals
        self._totals = StoreStatistics(
            role=totals.role,
            position=totals.position,
            transactions=totals.transactions + writer.waiting.transactions,
            syncs=totals.syncs + writer.requests,
            largest_batch=max(totals.largest_batch, writer.waiting.largest_batch),
            refused=totals.refused + writer.waiting.refused,
        )


def _next_limit(page: RangeAnswer, limit: int) -> int:
    """Return the number of rows for the next page, from the size of the last one."""
    size = sum(len(found.value) + len(found.key) for found in page.kvs) or 1
    return max(1, min(PAGE_ROWS, limit * 2, limit * PAGE_BYTES // size))
