"""One change of the role after the other: a node is served as the master's exactly while it is the master."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from ganeti.api.luxi_server import Caller, Dispatcher
from ganeti.base.errors import NotMaster
from ganeti.daemons.roles import RoleCallbacks, Roles
from ganeti.model.objects import NodeUuid
from ganeti.protocols.luxi import Answer, Request
from ganeti.store.interface import (
    ZERO,
    Campaign,
    CampaignKind,
    Follower,
    Lease,
    Lost,
    Master,
    Role,
    StoreStatistics,
)
from ganeti.store.mastership import ServicesUp
from ganeti.store.notices import RoleFeed

pytestmark = pytest.mark.virtual_time

ME, OTHER = NodeUuid("me"), NodeUuid("other")
TURNS = 12


class Store:
    """Grants every campaign, unless it is told why not."""

    def __init__(self) -> None:
        self.feed = RoleFeed()
        self.epoch = 0
        self.refusal = ""
        self.kinds: list[CampaignKind] = []
        self.is_fenced = True
        self.renewals = 0

    def role_changes(self) -> AsyncGenerator[Role, None]:
        return self.feed.changes()

    async def campaign(self, how: Campaign) -> None:
        await asyncio.sleep(0)
        if self.refusal:
            raise NotMaster(self.refusal)
        self.kinds.append(how.kind)
        self.elect()

    def elect(self) -> Lease:
        """As a back end does that elects by itself."""
        self.epoch += 1
        lease = Lease(self.epoch)
        self.feed.change(Master(lease))
        return lease

    async def step_down(self, why: str) -> None:
        self.lose(why)

    def lose(self, why: str, master: NodeUuid = ME) -> None:
        if isinstance(self.feed.role, Master):
            self.feed.change(Follower(why, master))

    async def promise(self, epoch: int) -> None:
        await asyncio.sleep(0)
        if not self.is_fenced:
            raise NotMaster(f"epoch {epoch} is not promised")

    async def renew(self, epoch: int) -> None:
        await self.promise(epoch)
        self.renewals += 1

    def holds(self, epoch: int) -> bool:
        return epoch == self.epoch

    def majority_at(self, epoch: int) -> float | None:
        return 0.0 if epoch == self.epoch else None

    def statistics(self) -> StoreStatistics:
        return StoreStatistics(self.feed.role, ZERO)


class Services:
    """Opens and closes in a few turns of the loop."""

    def __init__(self, lease: Lease, lost: Callable[[str], None]) -> None:
        self.lease, self.lost = lease, lost
        self.is_open = False
        self.failure: Exception | None = None

    async def start(self) -> Dispatcher:
        for _ in range(TURNS // 2):
            await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        self.is_open = True
        return self

    async def close(self) -> None:
        for _ in range(TURNS // 4):
            await asyncio.sleep(0)
        self.is_open = False

    def answer_at_once(self, request: Request, caller: Caller) -> Answer | None:
        raise NotImplementedError

    async def answer(self, request: Request, caller: Caller) -> Answer:
        raise NotImplementedError

    def is_abandonable(self, method: str) -> bool:
        raise NotImplementedError


class Daemon:
    """What the role means, recorded."""

    def __init__(self, last_master: NodeUuid | None = None) -> None:
        self.store = Store()
        self.store.feed.change(Follower("", last_master))
        self.opened: list[Services] = []
        self.failure: Exception | None = None
        self.serving: object = None
        self.served = list[bool]()
        """For each time that clients were to be answered: whether the lease was still the store's."""
        self.lost = ""
        callbacks = RoleCallbacks(
            self.prepare, self.start_master, self.serve_master, self.serve_follower, self.ended
        )
        self.roles = Roles(ME, self.store, self.store, callbacks)

    async def prepare(self) -> None:
        await asyncio.sleep(0)

    def start_master(self, lease: Lease, lost: Callable[[str], None]) -> Services:
        one = Services(lease, lost)
        one.failure = self.failure
        self.opened.append(one)
        return one

    def serve_master(self, dispatcher: Dispatcher) -> None:
        assert isinstance(dispatcher, Services)
        self.served.append(self.store.feed.role == Master(dispatcher.lease))
        self.serving = dispatcher

    async def serve_follower(self) -> None:
        await asyncio.sleep(0)
        self.serving = None

    def ended(self, why: str) -> None:
        self.lost = why

    def check(self) -> None:
        """At rest: there is an open one if, and only if, the store is the master's, and it is served."""
        role = self.store.feed.role
        held = [one for one in self.opened if one.is_open]
        assert [Master(one.lease) for one in held] == [role] * isinstance(role, Master)
        assert self.roles.is_master == isinstance(role, Master)
        assert self.serving is (held[0] if held else None)
        assert all(self.served), "clients were answered under a lease that had ended"


@asynccontextmanager
async def a_daemon(last_master: NodeUuid | None = None) -> AsyncIterator[Daemon]:
    daemon = Daemon(last_master)
    daemon.roles.watch()
    try:
        yield daemon
    finally:
        await daemon.roles.close()
        daemon.store.feed.close()


@pytest.mark.requirement("G2", "G4")
@pytest.mark.parametrize("turns", range(2 * TURNS))
async def test_master_replaced_during_its_start_answers_no_client(turns: int) -> None:
    """Found by a real history: the store handed over while the one was still being opened."""
    async with a_daemon() as daemon:
        task = asyncio.create_task(daemon.roles.force())
        for _ in range(turns):
            await asyncio.sleep(0)
        daemon.store.lose("the mastership was handed over")
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(1)
        daemon.check()


@pytest.mark.requirement("G4")
async def test_no_service_opens_before_the_nodes_have_promised_the_epoch() -> None:
    async with a_daemon() as daemon:
        daemon.store.is_fenced = False
        with pytest.raises(NotMaster, match="epoch 1 is not promised"):
            await daemon.roles.force()
        assert not daemon.opened
        daemon.check()


@pytest.mark.requirement("G4", "G17")
async def test_a_master_whose_epoch_is_promised_no_more_steps_down() -> None:
    async with a_daemon() as daemon:
        await daemon.roles.force()
        await asyncio.sleep(10)
        assert 5 <= daemon.store.renewals <= 6
        daemon.store.is_fenced = False
        await asyncio.sleep(3)
        assert daemon.store.feed.role == Follower("epoch 1 is not promised", ME)
        daemon.check()


@pytest.mark.requirement("G2", "G4")
@pytest.mark.sampled(2 * TURNS)
@pytest.mark.parametrize("turns", range(2 * TURNS))
async def test_a_back_end_that_elects_by_itself_opens_and_closes_the_services(turns: int) -> None:
    async with a_daemon(OTHER) as daemon:
        await daemon.roles.resume()
        for _ in range(3):
            daemon.store.elect()
            for _ in range(turns):
                await asyncio.sleep(0)
            daemon.store.lose("another one was elected", OTHER)
        await asyncio.sleep(1)
        daemon.check()
        daemon.store.elect()
        daemon.store.elect()
        await asyncio.sleep(1)
        daemon.check()
        assert daemon.roles.is_master
        assert not daemon.store.kinds, "nobody had to ask"


@pytest.mark.parametrize("turns", range(2 * TURNS))
async def test_a_daemon_that_is_closed_while_it_begins_leaves_nothing_open(turns: int) -> None:
    async with a_daemon() as daemon:
        daemon.store.elect()
        for _ in range(turns):
            await asyncio.sleep(0)
        await daemon.roles.close()
        assert not any(one.is_open for one in daemon.opened)


async def test_a_master_that_lost_its_epoch_asks_again_while_no_other_is_known() -> None:
    async with a_daemon(ME) as daemon:
        await daemon.roles.resume()
        daemon.check()
        daemon.store.lose("no majority")
        await asyncio.sleep(1)
        daemon.check()
        await asyncio.sleep(10)
        daemon.check()
        assert len(daemon.opened) == 2
        daemon.store.lose("another one", OTHER)
        await asyncio.sleep(30)
        daemon.check()
        assert len(daemon.opened) == 2


async def test_a_master_that_waits_for_a_vote_can_say_why_until_it_has_it() -> None:
    async with a_daemon(ME) as daemon:
        daemon.store.refusal = "no majority"
        await daemon.roles.resume()
        assert daemon.roles.waiting_reason == "no majority"
        daemon.store.refusal = "a node is away"
        await asyncio.sleep(3)
        assert daemon.roles.waiting_reason == "a node is away"
        daemon.store.refusal = ""
        await asyncio.sleep(3)
        assert daemon.roles.is_master
        assert not daemon.roles.waiting_reason


async def test_a_master_that_has_a_successor_waits_for_nothing() -> None:
    async with a_daemon(ME) as daemon:
        daemon.store.refusal = "no majority"
        await daemon.roles.resume()
        daemon.store.feed.change(Follower("", OTHER))
        await asyncio.sleep(3)
        assert not daemon.roles.waiting_reason


async def test_failed_services_end_the_epoch_and_the_next_one_begins() -> None:
    async with a_daemon(ME) as daemon:
        await daemon.roles.resume()
        daemon.opened[0].lost("a commit of unknown outcome")
        await asyncio.sleep(10)
        daemon.check()
        assert [one.lease.epoch for one in daemon.opened if one.is_open] == [2]


async def test_a_master_that_cannot_begin_gives_its_epoch_back() -> None:
    async with a_daemon() as daemon:
        daemon.failure = NotMaster("the archive is damaged")
        with pytest.raises(NotMaster, match="damaged"):
            await daemon.roles.force()
        daemon.check()


async def test_node_that_was_not_the_master_stays_a_follower() -> None:
    async with a_daemon(OTHER) as daemon:
        await daemon.roles.resume()
        await asyncio.sleep(60)
        assert not daemon.opened


@pytest.mark.requirement("G19")
async def test_a_take_over_asks_the_master_first() -> None:
    async with a_daemon(OTHER) as daemon:
        await daemon.roles.take_over()
        daemon.check()
        assert daemon.store.kinds == [CampaignKind.HAND_OVER]


@pytest.mark.requirement("G19")
async def test_refused_take_over_is_reported_in_time() -> None:
    async with a_daemon(OTHER) as daemon:
        daemon.store.refusal = "no majority"
        loop = asyncio.get_running_loop()
        begun = loop.time()
        with pytest.raises(NotMaster, match="no majority"):
            await daemon.roles.take_over()
        assert loop.time() - begun < 90
        daemon.check()


@pytest.mark.requirement("G19")
async def test_a_take_over_is_refused_when_the_daemon_stops_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_daemon(OTHER) as daemon:

        async def never(_how: Campaign) -> None:
            await asyncio.sleep(3600)

        monkeypatch.setattr(daemon.store, "campaign", never)
        asking = asyncio.create_task(daemon.roles.take_over())
        await asyncio.sleep(1)
        await daemon.roles.close()
        with pytest.raises(NotMaster, match="this daemon is stopping"):
            await asking


async def test_take_over_continues_after_a_disconnect() -> None:
    async with a_daemon(OTHER) as daemon:
        asking = asyncio.create_task(daemon.roles.take_over())
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.sleep(1)
        daemon.check()
        assert daemon.roles.is_master


async def test_an_event_that_cannot_happen_ends_the_daemon() -> None:
    async with a_daemon() as daemon:
        daemon.roles._report(ServicesUp(Lease(9)))
        assert "cannot happen in phase closed" in daemon.lost


async def test_a_lost_store_ends_the_daemon() -> None:
    async with a_daemon() as daemon:
        daemon.store.feed.change(Lost("the disk is broken"))
        await asyncio.sleep(0.1)
        assert daemon.lost == "the disk is broken"


@pytest.mark.requirement("G4")
@pytest.mark.sampled(2 * TURNS)
@pytest.mark.parametrize("turns", range(2 * TURNS))
async def test_a_new_lease_closes_the_services_of_the_old_one_and_opens_its_own(turns: int) -> None:
    async with a_daemon(OTHER) as daemon:
        daemon.store.elect()
        for _ in range(turns):
            await asyncio.sleep(0)
        lease = daemon.store.elect()
        await asyncio.sleep(1)
        daemon.check()
        assert [one.lease for one in daemon.opened if one.is_open] == [lease]
