"""The role of a candidate, master or follower, and each change of it (R7-R9).

    follower --Master(lease) in the role stream: fence, start the services--> master
    master   --anything else in the stream: close them--> follower
    any      --Lost: broken disk--> the end

What asks for the role: the start of a daemon that was the master, an epoch that was lost while no other
master is known, `gnt-cluster master-failover`, or the back end by itself.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from ganeti.api.luxi_server import Dispatcher
from ganeti.base.errors import GanetiError, NotMaster
from ganeti.model.objects import NodeUuid
from ganeti.store.backend import Fence
from ganeti.store.fence import keep_promised
from ganeti.store.interface import (
    Campaign,
    CampaignKind,
    Follower,
    Lease,
    Lost,
    Master,
    NotYet,
    Role,
    StoreStatistics,
)

FIRST_TRIES_S = 5.0
"""How long a starting daemon waits for a vote before it becomes a follower."""
AGAIN_S = 1.0
AFTER_LOSS_S = 5.0
TAKE_OVER_S = 45.0
"""How long a take-over tries while a vote may come yet (G19: done in 60 s, refused in 90)."""
OVERTAKEN_S = 10.0
"""How long it tries after a refusal that only another campaign, or nobody, will change."""

_log = logging.getLogger(__name__)


class ElectableStore(Protocol):
    """What of a `StateBackend` decides who is the master."""

    def role_changes(self) -> AsyncGenerator[Role, None]: ...
    async def campaign(self, how: Campaign) -> None: ...
    async def step_down(self, why: str) -> None: ...
    def statistics(self) -> StoreStatistics: ...


class MasterServices(Protocol):
    """What runs on a node while it is the master; `start` closes it where that fails or is cancelled."""

    async def start(self) -> Dispatcher: ...
    async def close(self) -> None: ...


@dataclass(frozen=True)
class RoleCallbacks:
    """What a change of the role means for the daemon."""

    prepare: Callable[[], Awaitable[None]]
    """Called before each campaign of its own, and before the nodes are fenced."""
    start_master: Callable[[Lease, Callable[[str], None]], MasterServices]
    """What the master runs under a lease; it says by the callable why it cannot go on in this epoch."""
    serve: Callable[[Dispatcher | None], Awaitable[None]]
    """Answer clients as the master, or (None) as a follower."""
    ended: Callable[[str], None]
    """The store is lost, and so is the daemon."""


@dataclass
class _Term:
    """The services that run under one lease."""

    lease: Lease
    services: MasterServices
    dispatcher: Dispatcher
    renewing: asyncio.Task[None]


class Roles:
    """Opens and closes the master's services after the role stream, one change after the other."""

    def __init__(
        self, node: NodeUuid, store: ElectableStore, fence: Fence, callbacks: RoleCallbacks
    ) -> None:
        self._node, self._store, self._fence, self._callbacks = node, store, fence, callbacks
        self._term: _Term | None = None
        self._opening: tuple[Lease, asyncio.Task[_Term]] | None = None
        self._failed: tuple[Lease, Exception] | None = None
        """The last lease whose services could not be opened."""
        self._news = asyncio.Event()
        self._settled = asyncio.Event()
        self._campaigning = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self.refused = ""
        """Why this node, which was the master, is not that again yet; '' if it does not ask for that."""

    @property
    def is_master(self) -> bool:
        """Whether clients are answered as by the master."""
        return self._term is not None

    def watch(self) -> None:
        """Follow what the store says of the role from now on."""
        for work in (self._watch, self._follow_role):
            self._spawn(self._or_end(work), "role")

    async def _or_end(self, work: Callable[[], Awaitable[None]]) -> None:
        """A daemon that, by a fault of our own, does not follow its role must not go on."""
        try:
            await work()
        except Exception as err:  # noqa: BLE001 - whatever it is
            _log.exception("the role cannot be followed any more")
            self._callbacks.ended(f"the role cannot be followed any more: {err!r}")

    async def close(self) -> None:
        """Stop as if we died, but with all files closed."""
        self._is_closing = True
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        await self._close_services()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # At the start, and after a loss

    async def resume(self) -> None:
        """The master that this node was, if a vote confirms it soon; else a follower."""
        if not self._was_master():
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + FIRST_TRIES_S
        while loop.time() < end and self._was_master():
            try:
                await self._become(Campaign(CampaignKind.RESUME))
            except NotMaster as err:
                self._note(err)
                await asyncio.sleep(AGAIN_S / 4)
            else:
                return
        self._spawn(self._confirm(0.0), "confirm")

    def _was_master(self) -> bool:
        """Whether this node was the last master, as far as it knows, and is not that now."""
        role = self._store.statistics().role
        return isinstance(role, Follower) and role.master == self._node

    async def _confirm(self, delay_s: float) -> None:
        """Ask to go on as the master until that is granted, or another one is known."""
        await asyncio.sleep(delay_s)
        while self._was_master():
            try:
                await self._become(Campaign(CampaignKind.RESUME))
            except GanetiError as err:
                self._note(err)
            await asyncio.sleep(AGAIN_S)
        self.refused = ""

    def _note(self, err: GanetiError) -> None:
        """Why a campaign failed, said once."""
        if err.message != self.refused:
            _log.info("not the master: %s", err)
        self.refused = err.message

    # Taking over

    async def force(self) -> None:
        """Become the master without a vote; NotMaster."""
        await self._begin_now(Campaign(CampaignKind.FORCE))

    async def take_over(self) -> None:
        """With the old master's agreement where it answers, else once it was silent for long enough.

        NotMaster says why that was not possible.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            try:
                await self._begin_now(Campaign(CampaignKind.HAND_OVER))
            except NotMaster as err:
                # A refusal may be of the moment when another node, or the old master, campaigned too.
                limit_s = TAKE_OVER_S if isinstance(err, NotYet) else OVERTAKEN_S
                if loop.time() > begun + limit_s:
                    # Once this node is registered, no other candidate starts by itself: keep trying.
                    self._spawn(self._confirm(AFTER_LOSS_S), "confirm")
                    raise
                _log.info("waiting: %s", err)
                await asyncio.sleep(AGAIN_S)
            else:
                return

    async def _begin_now(self, how: Campaign) -> None:
        """On a task of its own: it must not end with the connection that asked for it."""
        await asyncio.shield(asyncio.create_task(self._become(how), name="take over"))

    async def _become(self, how: Campaign) -> None:
        """Campaign, and return when the services are open; NotMaster, and whatever they fail with."""
        async with self._campaigning:
            if self._term is not None or self._is_closing:
                return
            await self._callbacks.prepare()
            await self._store.campaign(how)
            role = self._store.statistics().role
            if not isinstance(role, Master):
                raise NotMaster("another node has taken over already")
            await self._opened(role)

    async def _opened(self, role: Master) -> None:
        """Wait until the services are open under this lease, or raise why they are not."""
        while self._term is None or self._term.lease != role.lease:
            if self._failed is not None and self._failed[0] == role.lease:
                raise self._failed[1]
            if self._store.statistics().role != role:
                raise NotMaster("another node has taken over already")
            await self._settled.wait()
        self.refused = ""

    # The changes

    def _step_down(self, why: str) -> None:
        """The services, or the fence, say that this epoch cannot go on (R13)."""
        if not self._is_closing:
            self._spawn(self._store.step_down(why), "step down")

    async def _watch(self) -> None:
        """Note each role at once, so that nothing more is opened under a lease that is over."""
        async with aclosing(self._store.role_changes()) as roles:
            async for role in roles:
                if self._opening is not None and role != Master(self._opening[0]):
                    self._opening[1].cancel()
                self._news.set()
                self._tell()

    async def _follow_role(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            role = self._store.statistics().role
            if self._term is not None and role != Master(self._term.lease):
                await self._end_term(role)
            if isinstance(role, Lost):
                self._callbacks.ended(role.reason)
            elif isinstance(role, Master) and self._term is None:
                await self._open(role.lease)
            self._tell()

    def _tell(self) -> None:
        """Let those look again who wait for the services."""
        settled, self._settled = self._settled, asyncio.Event()
        settled.set()

    async def _end_term(self, role: Role) -> None:
        if isinstance(role, Follower | Lost):
            _log.warning("not the master any more: %s", role.reason)
        await self._close_services()
        if isinstance(role, Follower):
            self._spawn(self._confirm(AFTER_LOSS_S), "confirm")

    async def _open(self, lease: Lease) -> None:
        """Fence the nodes, start the services, and answer clients."""
        opening = asyncio.create_task(self._start(lease), name="start master")
        self._opening = lease, opening
        try:
            await asyncio.wait((opening,))
        except asyncio.CancelledError:
            opening.cancel()
            await asyncio.wait((opening,))
            if not opening.cancelled() and opening.exception() is None:
                self._term = opening.result()  # `close` comes next
            raise
        finally:
            self._opening = None
        if opening.cancelled():
            return
        if (err := opening.exception()) is not None:
            _log.warning("this node could not begin as the master: %s", err)
            self._failed = lease, err if isinstance(err, Exception) else NotMaster(str(err))
            await self._store.step_down("this node could not begin as the master")
            return
        self._term = opening.result()
        if self._store.statistics().role == Master(lease):
            # Open connections stay and now reach the master; the caller of a take-over has one.
            await self._callbacks.serve(self._term.dispatcher)
        else:
            await self._close_services()

    async def _start(self, lease: Lease) -> _Term:
        await self._callbacks.prepare()
        await self._fence.promise(lease.epoch)
        renewing = asyncio.create_task(self._renew(lease.epoch), name="fence")
        try:
            services = self._callbacks.start_master(lease, self._step_down)
            return _Term(lease, services, await services.start(), renewing)
        except BaseException:
            renewing.cancel()
            raise

    async def _renew(self, epoch: int) -> None:
        self._step_down(await keep_promised(self._fence, epoch))

    async def _close_services(self) -> None:
        term, self._term = self._term, None
        if term is None:
            return
        term.renewing.cancel()
        await term.services.close()
        del term
        if not self._is_closing:
            await self._callbacks.serve(None)
