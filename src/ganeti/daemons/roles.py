"""The role of a candidate, master or follower, and each change of it (R7-R9).

start: follower --this node was the master: vote, again and again--> master
follower --gnt-cluster master-failover: hand-over or vote, or force--> master
master --a greater epoch, no majority, an unknown commit--> follower
any --broken disk--> the end
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
"""How long the start of the daemon waits for a vote before it goes on as a follower."""
AGAIN_S = 1.0
AFTER_LOSS_S = 5.0
TAKE_OVER_S = 45.0
"""How long a take-over tries while a vote may come yet (G19: done in 60 s, refused in 90)."""
OVERTAKEN_S = 10.0
"""How long it tries after a refusal that only another campaign, or nobody, will change."""

_log = logging.getLogger(__name__)


class Contested(Protocol):
    """What of the store decides who is the master."""

    @property
    def followed_master(self) -> NodeUuid | None: ...
    def role_changes(self) -> AsyncGenerator[Role, None]: ...
    async def campaign(self, how: Campaign) -> Lease: ...
    async def step_down(self, why: str) -> None: ...
    async def ask_for_hand_over(self, master: NodeUuid) -> None: ...
    def statistics(self) -> StoreStatistics: ...


class Office(Protocol):
    """What runs on a node while it is the master; `start` closes it where that fails."""

    async def start(self) -> Dispatcher: ...
    async def close(self) -> None: ...


@dataclass(frozen=True)
class Duties:
    """What a change of the role means for the daemon."""

    last_master: Callable[[], Awaitable[NodeUuid | None]]
    """The master that was registered last, as far as this node knows."""
    prepare: Callable[[], Awaitable[None]]
    """Called before each campaign."""
    take_office: Callable[[Lease, Callable[[str], None]], Office]
    """What the master runs under a lease; it says by the callable why it cannot go on in this epoch."""
    serve: Callable[[Dispatcher | None], Awaitable[None]]
    """Answer clients as the master, or (None) as a follower."""
    ended: Callable[[str], None]
    """The store is lost, and so is the daemon."""


class Roles:
    """Carries out one change of the role after the other."""

    def __init__(self, node: NodeUuid, store: Contested, duties: Duties) -> None:
        self._node, self._store, self._duties = node, store, duties
        self._office: Office | None = None
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self.refused = ""
        """Why this node, which was the master, is not that again yet; '' if it does not ask for that."""

    @property
    def is_master(self) -> bool:
        """Whether clients are answered as by the master."""
        return self._office is not None

    def watch(self) -> None:
        """Follow what the store says of the role from now on."""
        self._spawn(self._watch(), "role")

    async def close(self) -> None:
        """Stop as if we died, but with all files closed."""
        self._is_closing = True
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        await self._leave_office()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # At the start, and after a loss

    async def resume(self) -> None:
        """The master that this node was, if a vote confirms it soon; else a follower."""
        if not await self._was_master():
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + FIRST_TRIES_S
        while loop.time() < end:
            try:
                await self._become(Campaign())
            except NotMaster as err:
                self._note(err)
                await asyncio.sleep(AGAIN_S / 4)
            else:
                return
        self._spawn(self._confirm(0.0), "confirm")

    async def _was_master(self) -> bool:
        return await self._duties.last_master() == self._node

    async def _confirm(self, delay_s: float) -> None:
        """Ask to go on as the master until that is granted, or another one is known."""
        await asyncio.sleep(delay_s)
        while self._office is None and await self._was_master():
            try:
                await self._become(Campaign())
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
        kind = CampaignKind.VOTE
        await self._duties.prepare()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        end = begun + TAKE_OVER_S
        while True:
            # It may have come back, and be heard by the voters, only after it was asked first.
            if kind is CampaignKind.VOTE and await self._master_agrees():
                kind = CampaignKind.HAND_OVER
            try:
                await self._begin_now(Campaign(kind))
            except NotMaster as err:
                # A refusal may be of the moment when another node, or the old master, campaigned too.
                limit = end if isinstance(err, NotYet) else begun + OVERTAKEN_S
                if loop.time() > limit:
                    # If it was registered and could not begin, nobody else goes on by itself.
                    self._spawn(self._confirm(AFTER_LOSS_S), "confirm")
                    raise
                _log.info("waiting: %s", err)
                await asyncio.sleep(AGAIN_S)
            else:
                return

    async def _master_agrees(self) -> bool:
        """Whether there is a master, and it has ended in favour of this node."""
        master = self._store.followed_master or await self._duties.last_master()
        if master is None or master == self._node:
            return False
        try:
            await self._store.ask_for_hand_over(master)
        except NotMaster as err:
            _log.info("no hand-over: %s", err)
            return False
        return True

    async def _begin_now(self, how: Campaign) -> None:
        """On a task of its own: it must not end with the connection that asked for it."""
        await asyncio.shield(asyncio.create_task(self._become(how), name="take over"))

    # The changes

    async def _become(self, how: Campaign) -> None:
        """Campaign, and serve as the master; NotMaster, and whatever the office fails with."""
        async with self._changing:
            if self._office is not None or self._is_closing:
                return
            await self._duties.prepare()
            lease = await self._store.campaign(how)
            office = self._duties.take_office(lease, self._step_down)
            try:
                dispatcher = await office.start()
            except BaseException:
                await self._store.step_down("this node could not begin as the master")
                raise
            if self._store.statistics().role != Master(lease):
                # The end came while the office was opened: `_watch` saw none that it could close.
                await office.close()
                raise NotMaster("another node has taken over already")
            self._office, self.refused = office, ""
            # Whoever is connected goes on with the master, also the caller of a take-over.
            await self._duties.serve(dispatcher)

    def _step_down(self, why: str) -> None:
        """The office says that it cannot go on in this epoch (R13)."""
        if not self._is_closing:
            self._spawn(self._store.step_down(why), "step down")

    async def _watch(self) -> None:
        async with aclosing(self._store.role_changes()) as roles:
            async for role in roles:
                if isinstance(role, Lost):
                    self._duties.ended(role.reason)
                elif isinstance(role, Follower) and role.reason and self._office is not None:
                    _log.warning("not the master any more: %s", role.reason)
                    async with self._changing:
                        if not isinstance(self._store.statistics().role, Master):
                            await self._leave_office()
                    self._spawn(self._confirm(AFTER_LOSS_S), "confirm")

    async def _leave_office(self) -> None:
        office, self._office = self._office, None
        if office is None:
            return
        await office.close()
        del office
        if not self._is_closing:
            await self._duties.serve(None)
