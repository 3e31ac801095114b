"""The care for etcd's servers by the master, against a gateway that answers from a script."""

import asyncio
import contextlib
from typing import cast

import pytest

from ganeti.model.objects import NodeUuid
from ganeti.store.etcd.gateway import Gateway, Unanswered
from ganeti.store.etcd.keys import Keys
from ganeti.store.etcd.messages import EtcdMember, Header, MembersAnswer, StatusAnswer
from ganeti.store.etcd.upkeep import LOOK_AT_MEMBERS_S, EtcdOptions, Upkeep

pytestmark = pytest.mark.virtual_time


class ScriptedServers:
    """Servers `node-1` to `node-N`, the members 1 to N; `node-1` is the master's."""

    def __init__(self, count: int, leader: int = 1, learners: frozenset[int] = frozenset()) -> None:
        self.numbers = range(1, count + 1)
        self.leader, self.learners = leader, learners
        self.moves: list[tuple[str, int]] = []
        self.is_silent = False

    async def members(self) -> MembersAnswer:
        if self.is_silent:
            raise Unanswered("no answer")
        return MembersAnswer(
            members=tuple(
                EtcdMember(
                    ID=number,
                    name=f"node-{number}",
                    clientURLs=(f"https://{number}",),
                    isLearner=number in self.learners,
                )
                for number in self.numbers
            )
        )

    async def status(self, url: str) -> StatusAnswer:
        number = int(url.removeprefix("https://"))
        return StatusAnswer(Header(member_id=number), leader=self.leader, raftIndex=10 + number)

    async def move_leader(self, url: str, member: int) -> None:
        self.moves.append((url, member))
        self.leader = member


async def master_of(
    servers: ScriptedServers, *, seconds: float = 1, is_managed: bool = True
) -> None:
    """Let the master on `node-1` care for the servers for a while."""
    upkeep = Upkeep(
        cast("Gateway", servers), Keys("c"), NodeUuid("node-1"), EtcdOptions(is_managed)
    )
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await upkeep.lead_elsewhere()


async def test_a_master_gives_the_lead_of_etcd_to_another_server() -> None:
    servers = ScriptedServers(3)
    await master_of(servers, seconds=5 * LOOK_AT_MEMBERS_S)
    assert servers.moves == [("https://1", 3)]


async def test_a_lead_that_returns_is_given_away_again() -> None:
    servers = ScriptedServers(3, leader=2)
    task = asyncio.create_task(master_of(servers, seconds=5 * LOOK_AT_MEMBERS_S))
    await asyncio.sleep(1)
    assert servers.moves == []
    servers.is_silent = True
    await asyncio.sleep(LOOK_AT_MEMBERS_S)
    servers.is_silent, servers.leader = False, 1
    await task
    assert servers.moves == [("https://1", 3)]


@pytest.mark.parametrize(
    "servers",
    [ScriptedServers(2), ScriptedServers(3, learners=frozenset({3})), ScriptedServers(3, leader=2)],
    ids=["two", "two with a vote", "another leads"],
)
async def test_the_lead_stays_where_moving_it_helps_nobody(servers: ScriptedServers) -> None:
    await master_of(servers)
    assert servers.moves == []


async def test_the_lead_of_external_servers_is_their_administrators_matter() -> None:
    servers = ScriptedServers(3)
    await master_of(servers, is_managed=False)
    assert servers.moves == []
