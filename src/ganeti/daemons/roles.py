"""The role of a candidate, master or follower, and each change of it (R7-R9).

`store/mastership.py` decides; `Roles` reports to it what happens and carries its instructions out.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from ganeti.api.luxi_server import Dispatcher
from ganeti.model.objects import NodeUuid
from ganeti.store.backend import Fence
from ganeti.store.fence import keep_promised
from ganeti.store.interface import Campaign, CampaignKind, Lease, Role, StoreStatistics
from ganeti.store.mastership import (
    Campaigned,
    CloseServices,
    EndDaemon,
    Event,
    FenceNodes,
    FencePromised,
    Instruction,
    LeaseUnusable,
    MastershipCore,
    Notify,
    OpenServices,
    Phase,
    Reply,
    RequestKind,
    RoleRequested,
    RoleSeen,
    ServeAsMaster,
    ServicesClosed,
    ServicesUp,
    StartCampaign,
    StartFailed,
    StepDown,
    Stopping,
    TimePassed,
)

_log = logging.getLogger(__name__)


class ElectableStore(Protocol):
    """The part of a `StateBackend` that decides which node is the master."""

    def role_changes(self) -> AsyncGenerator[Role, None]: ...
    async def campaign(self, how: Campaign) -> None: ...
    async def step_down(self, why: str) -> None: ...
    def statistics(self) -> StoreStatistics: ...


class LeaseServices(Protocol):
    """The services of a node under one lease; `start` closes them if it fails or is cancelled."""

    async def start(self) -> Dispatcher: ...
    async def close(self) -> None: ...


@dataclass(frozen=True)
class RoleCallbacks:
    """The daemon's reactions to a change of its role."""

    prepare: Callable[[], Awaitable[None]]
    """Called before each campaign of this node, and before it fences the nodes."""
    start_master: Callable[[Lease, Callable[[str], None]], LeaseServices]
    """Return the master's services under a lease.

    They call the argument with the reason when they cannot continue in this epoch.
    """
    serve_master: Callable[[Dispatcher], None]
    """Answer clients as the master."""
    serve_follower: Callable[[], Awaitable[None]]
    """Answer clients as a follower, after the master's services have closed."""
    ended: Callable[[str], None]
    """Called when the store, and with it the daemon, is lost."""


class Roles:
    """Carries out what `MastershipCore` decides, and reports the outcomes to it."""

    def __init__(
        self, node: NodeUuid, store: ElectableStore, fence: Fence, callbacks: RoleCallbacks
    ) -> None:
        self._store, self._fence, self._callbacks = store, fence, callbacks
        self._core = MastershipCore(node)
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._step: asyncio.Task[None] | None = None
        """The present change of the services; changes run one after the other."""
        self._renewing: asyncio.Task[None] | None = None
        self._running: tuple[LeaseServices, Dispatcher] | None = None

    @property
    def is_master(self) -> bool:
        """Return whether clients are answered as by the master."""
        return self._core.is_master

    @property
    def waiting_reason(self) -> str:
        """Return why this former master is not the master again yet; '' if it does not try to become it."""
        return self._core.waiting_reason

    def watch(self) -> None:
        """Follow the role that the store reports from now on."""
        self._spawn(self._watch(), "role")

    async def close(self) -> None:
        """Stop as after a crash, but with all files closed."""
        self._report(Stopping())
        closing = self._step if self._core.phase is Phase.CLOSING else None
        for task in self._tasks - {closing}:
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def resume(self) -> None:
        """Try for a short time to become the master again, which this node was.

        A vote must confirm it, else it stays a follower.
        """
        await self._ask(RequestKind.START)

    async def force(self) -> None:
        """Become the master without a vote; NotMaster."""
        await self._ask(RequestKind.FORCE)

    async def take_over(self) -> None:
        """Become the master with the old master's agreement, or by a vote after its silence.

        NotMaster gives the reason of a failure.
        """
        await self._ask(RequestKind.TAKE_OVER)

    async def _ask(self, kind: RequestKind) -> None:
        """Return when the services are open. The request outlives the caller, whose connection may end."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._report(RoleRequested(number, kind))
        await answer

    # Events

    async def _watch(self) -> None:
        async with aclosing(self._store.role_changes()) as roles:
            async for _ in roles:
                self._report()

    def _report(self, *events: Event, now: float = 0.0) -> None:
        """Report the present role, so that each decision uses it, and then the event."""
        now = max(now, asyncio.get_running_loop().time())
        try:
            for event in (RoleSeen(self._store.statistics().role), *events):
                for instruction in self._core.handle(event, now):
                    self._carry_out(instruction)
        except Exception as err:  # noqa: BLE001 - a daemon that does not follow its role must end
            self._fail(err)
        self._set_timer()

    def _fail(self, err: Exception) -> None:
        _log.error("the role can no longer be followed", exc_info=err)
        self._callbacks.ended(f"the role can no longer be followed: {err!r}")

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (due := self._core.next_due) is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(due, partial(self._report, TimePassed(), now=due))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        _ = self._task(work, name)

    def _task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(err := task.exception(), Exception):
            self._fail(err)

    # Instructions

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case StartCampaign(kind):
                self._spawn(self._campaign(kind), "campaign")
            case FenceNodes(lease):
                self._step = self._task(self._fence_nodes(lease), "fence")
            case OpenServices(lease):
                self._step = self._task(self._open(lease), "start master")
            case ServeAsMaster():
                self._serve()
            case CloseServices():
                self._step = self._task(self._close(instruction, self._step), "close master")
            case StepDown(_, why):
                self._spawn(self._store.step_down(why), "step down")
            case Reply(number, error):
                self._reply(number, error)
            case Notify(text, is_warning):
                _log.log(logging.WARNING if is_warning else logging.INFO, "%s", text)
            case EndDaemon(why):
                self._callbacks.ended(why)

    def _serve(self) -> None:
        if self._running is not None:
            self._callbacks.serve_master(self._running[1])

    def _reply(self, number: int, error: Exception | None) -> None:
        answer = self._answers.pop(number)
        if answer.done():
            return  # the caller was cancelled
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(None)

    async def _campaign(self, kind: CampaignKind) -> None:
        try:
            await self._callbacks.prepare()
            await self._store.campaign(Campaign(kind))
        except Exception as err:  # noqa: BLE001 - the caller that asked gets it
            self._report(Campaigned(err))
        else:
            self._report(Campaigned())

    async def _fence_nodes(self, lease: Lease) -> None:
        try:
            await self._callbacks.prepare()
            await self._fence.promise(lease.epoch)
        except Exception as err:  # noqa: BLE001 - the caller that asked gets it
            self._report(StartFailed(lease, err))
        else:
            self._renewing = self._task(self._renew(lease), "fence")
            self._report(FencePromised(lease))

    async def _renew(self, lease: Lease) -> None:
        self._report(LeaseUnusable(lease, await keep_promised(self._fence, lease.epoch)))

    async def _open(self, lease: Lease) -> None:
        unusable = partial(self._unusable, lease)
        try:
            services = self._callbacks.start_master(lease, unusable)
            self._running = services, await services.start()
        except Exception as err:  # noqa: BLE001 - the caller that asked gets it
            self._end_renewing()
            self._report(StartFailed(lease, err))
        else:
            self._report(ServicesUp(lease))

    def _unusable(self, lease: Lease, why: str) -> None:
        self._report(LeaseUnusable(lease, why))

    def _end_renewing(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None

    async def _close(self, close: CloseServices, before: asyncio.Task[None] | None) -> None:
        """Close what is open, or end what is still opening."""
        if before is not None:
            before.cancel()
            await asyncio.wait((before,))
        self._end_renewing()
        running, self._running = self._running, None
        if running is not None:
            await running[0].close()
        del running, before  # a queue that has ended is garbage once nothing refers to it
        if close.is_serving:
            await self._callbacks.serve_follower()
        self._report(ServicesClosed(close.lease))
