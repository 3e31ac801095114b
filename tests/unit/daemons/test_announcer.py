"""The announcement of a master's epoch, and what it keeps of the nodes' answers."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from ganeti.daemons.announcer import AGAIN_S, EpochAnnouncer, register_states
from ganeti.daemons.candidates import NodeDirectory, RenewalAnswer
from ganeti.model.objects import NodeUuid
from ganeti.store.election import NoVote, Vote
from ganeti.store.encoding import MemberList
from ganeti.store.fence import RENEW_S
from ganeti.store.interface import Identity, Lease
from ganeti.store.register import Promise, Register
from ganeti.units.services import RegisterState

MASTER, WITNESS, OTHER = (NodeUuid(name) for name in ("master", "witness", "other"))


def answer(epoch: int, candidate: NodeUuid) -> RenewalAnswer:
    promised = Promise(epoch, candidate)
    return RenewalAnswer(0.1, Vote(candidate == MASTER, Register("cluster", promised)))


@pytest.mark.requirement("A26")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (answer(4, MASTER), RegisterState(WITNESS, True, 0.1)),
        (answer(5, OTHER), RegisterState(WITNESS, True, 0.1, promised=5)),
        (answer(4, OTHER), RegisterState(WITNESS, True, 0.1, promised=4, promised_to=OTHER)),
        (RenewalAnswer(2.0, NoVote("late")), RegisterState(WITNESS, True, 2.0, silent="late")),
    ],
)
def test_state_of_a_register_names_the_promise_that_excludes_the_master(
    given: RenewalAnswer, expected: RegisterState
) -> None:
    assert register_states({WITNESS: given}, frozenset((WITNESS,)), 4, MASTER) == [expected]


NODES = [NodeUuid(f"node{number}") for number in range(91)]


@dataclass
class Announced:
    """The registers of many nodes without a vote; `silent` ones do not answer."""

    silent: set[NodeUuid] = field(default_factory=set)
    asked: Counter[NodeUuid] = field(default_factory=Counter)

    async def renew(self, node: NodeUuid, cluster_uuid: str, epoch: int) -> Vote | NoVote:
        self.asked[node] += 1
        if node in self.silent:
            return NoVote("silent")
        return Vote(True, Register(cluster_uuid, Promise(epoch, MASTER)))

    async def members(self) -> MemberList:
        return MemberList(frozenset({MASTER}), frozenset({MASTER}))

    def announcer(self) -> EpochAnnouncer:
        directory = NodeDirectory(
            {
                uuid: SimpleNamespace(offline=False)  # type: ignore[misc]  # all that is read
                for uuid in (MASTER, *NODES)
            }
        )
        identity, lease = Identity("cluster", MASTER), Lease(4)
        return EpochAnnouncer(self, self, directory, identity, lease)  # type: ignore[arg-type]  # nothing else is used


@pytest.mark.virtual_time
@pytest.mark.requirement("G4")
async def test_epoch_is_announced_to_confirmed_nodes_once_a_minute_and_to_silent_ones_always() -> (
    None
):
    nodes = Announced(silent={NODES[0]})
    announcer = nodes.announcer()
    await announcer.announce()
    assert nodes.asked == dict.fromkeys(NODES, 1)
    running = asyncio.create_task(announcer.run())
    try:
        await asyncio.sleep(AGAIN_S + RENEW_S / 2)
        assert nodes.asked.pop(NODES[0]) == 1 + AGAIN_S / RENEW_S
        assert nodes.asked == dict.fromkeys(NODES[1:], 2)
        nodes.silent.clear()
        await asyncio.sleep(RENEW_S)
        assert nodes.asked[NODES[0]] == 1
    finally:
        running.cancel()
