from dataclasses import replace

import msgspec
import pytest

from ganeti import __version__
from ganeti.daemons.candidates import vote_of
from ganeti.model import wire
from ganeti.model.objects import NodeUuid
from ganeti.node.register import NodeRegister
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.mastership import (
    REGISTER_ACCEPT,
    REGISTER_PROMISE,
    REGISTER_READ,
    REGISTER_RENEW,
    AcceptArgs,
    PromiseArgs,
    RegisterAnswer,
    RenewArgs,
)
from ganeti.store.election import (
    FORMER_SILENCE_S,
    SILENCE_S,
    LastContact,
    NoVote,
    Tail,
    Vote,
    Voter,
)
from ganeti.store.interface import Position
from ganeti.store.register import (
    Accepted,
    AcceptRequest,
    MemoryRegister,
    Promise,
    PromiseRequest,
    Register,
)

CLUSTER, MASTER, OTHER = "cluster-uuid", "master-uuid", "other-uuid"


def accepting(version: int = 0, ceiling: int = 0) -> Accepted:
    master = NodeUuid(MASTER)
    return Accepted(3, version, master, frozenset((master,)), ceiling)


class Node:
    def __init__(self, register: Register | None) -> None:
        self.keeper = MemoryRegister(register)
        self.asked: list[str] = []
        self.register = NodeRegister(
            self.keeper, lambda epoch: [f"older than {epoch}"], voter=self.voter
        )

    def voter(self, recent_master: str) -> Voter:
        self.asked.append(recent_master)
        return Voter("candidate", True, Tail(Position(3, 9), b"\x12"), 77)

    async def call(self, name: str, args: object) -> RegisterAnswer:
        answer = await self.register.handlers()[name](args, Call())
        assert isinstance(answer, RegisterAnswer)
        return answer

    async def promise(self, epoch: int, who: str) -> RegisterAnswer:
        args = PromiseArgs(request=PromiseRequest(CLUSTER, epoch, NodeUuid(who)))
        return await self.call(REGISTER_PROMISE.name, args)


class StoppedClock:
    """Time that passes where a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def joined(epoch: int = 3) -> Node:
    return Node(Register(CLUSTER, Promise(epoch, NodeUuid(MASTER))))


@pytest.mark.requirement("A26", "G4")
@pytest.mark.parametrize(
    ("epoch", "master", "why"),
    [
        (3, MASTER, None),
        (4, OTHER, None),
        (2, MASTER, "is over"),
        (3, OTHER, "belongs to"),
        (0, MASTER, "needs the epoch"),
        (3, "", "needs the epoch"),
        (-1, MASTER, "needs the epoch"),
        (2**31, MASTER, "out of range"),
    ],
)
async def test_a_changing_call_needs_the_epoch_of_its_master(
    epoch: int, master: str, why: str | None
) -> None:
    node = joined()
    refused = await node.register.check_epoch(epoch, master)
    await node.register.close()
    assert (refused is None) == (why is None)
    assert (why or "") in (refused or "")


@pytest.mark.requirement("A26")
async def test_a_greater_epoch_is_kept_so_that_the_old_one_is_refused_from_then_on() -> None:
    node = joined(3)
    assert await node.register.check_epoch(5, OTHER) is None
    assert await node.register.check_epoch(3, MASTER) is not None
    await node.register.close()
    register = node.keeper.read()
    assert register is not None
    assert register.promised == Promise(5, NodeUuid(OTHER))


async def test_a_node_that_never_joined_refuses_every_changing_call() -> None:
    node = Node(None)
    assert "accepts only a join" in str(await node.register.check_epoch(1, MASTER))
    state = await node.call(REGISTER_READ.name, Nothing())
    await node.register.close()
    assert state.vote is None
    assert "joined no cluster" in state.why or not state.why


async def test_an_epoch_is_promised_once() -> None:
    node = joined(3)
    granted = await node.promise(4, OTHER)
    refused = await node.promise(4, MASTER)
    await node.register.close()
    assert granted.vote is not None
    assert granted.vote.granted
    assert granted.vote.register.promised == Promise(4, NodeUuid(OTHER))
    assert refused.vote is not None
    assert not refused.vote.granted
    assert refused.vote.register == granted.vote.register
    assert "not greater" in refused.vote.reason


@pytest.mark.requirement("G8")
async def test_vote_has_all_facts_for_a_candidate() -> None:
    node = joined(3)
    state = await node.promise(4, OTHER)
    assert wire.decode(wire.encode(state), RegisterAnswer) == state
    vote = vote_of(state)
    assert isinstance(vote, Vote)
    assert vote.voter == Voter(
        "candidate", True, Tail(Position(3, 9), b"\x12"), 77, __version__, ("older than 4",)
    )
    args = RenewArgs(cluster_uuid=CLUSTER, epoch=4, master_uuid=OTHER)
    renewed = await node.call(REGISTER_RENEW.name, args)
    assert renewed.vote is not None
    assert renewed.vote.voter.role == ""  # asked every other second: without a look at the files
    await node.call(REGISTER_READ.name, Nothing())
    await node.register.close()
    assert node.asked == ["", OTHER]


async def test_the_software_of_a_master_is_registered() -> None:
    node = joined(3)
    accepted = replace(accepting(), software="4.2.0")
    args = AcceptArgs(request=AcceptRequest(CLUSTER, accepted))
    state = await node.call(REGISTER_ACCEPT.name, args)
    await node.register.close()
    vote = vote_of(state)
    assert isinstance(vote, Vote)
    assert vote.register.accepted is not None
    assert vote.register.accepted.software == "4.2.0"


@pytest.mark.parametrize("protocol", [0, 2])
async def test_a_node_that_speaks_another_protocol_has_no_vote(protocol: int) -> None:
    node = joined(3)
    state = await node.promise(4, OTHER)
    await node.register.close()
    vote = vote_of(msgspec.structs.replace(state, protocol=protocol))
    assert isinstance(vote, NoVote)
    assert f"node RPC {protocol}" in vote.reason


async def test_a_master_registers_itself_and_an_answer_names_older_calls() -> None:
    node = joined(3)
    accepted = accepting(version=1, ceiling=100)
    args = AcceptArgs(request=AcceptRequest(CLUSTER, accepted))
    assert wire.decode(wire.encode(args), AcceptArgs) == args
    state = await node.call(REGISTER_ACCEPT.name, args)
    await node.register.close()
    assert state.vote is not None
    assert state.vote.granted
    assert state.vote.register.accepted == accepted
    assert state.vote.voter.older_calls == ("older than 3",)


async def test_a_master_of_another_cluster_is_refused() -> None:
    node = joined(3)
    args = PromiseArgs(request=PromiseRequest("elsewhere", 9, NodeUuid(OTHER)))
    state = await node.call(REGISTER_PROMISE.name, args)
    await node.register.close()
    assert state.vote is not None
    assert not state.vote.granted
    assert CLUSTER in state.vote.reason


@pytest.mark.requirement("G4", "F6")
@pytest.mark.parametrize("how", ["renewed", "registered", "restarted"])
async def test_node_votes_for_another_master_after_the_silence_of_the_last(how: str) -> None:
    """Also where it may have confirmed a lease just before its daemon was restarted."""
    clock = StoppedClock()
    register = Register(CLUSTER, Promise(3, NodeUuid(MASTER)), accepting())
    node = NodeRegister(MemoryRegister(register), lambda _epoch: [], clock)
    handlers = node.handlers()
    clock.now += 100 if how != "restarted" else 0
    if how == "renewed":
        renewal = RenewArgs(cluster_uuid=CLUSTER, epoch=3, master_uuid=MASTER, silence_s=SILENCE_S)
        await handlers[REGISTER_RENEW.name](renewal, Call())
    elif how == "registered":
        again = AcceptArgs(request=AcceptRequest(CLUSTER, accepting(version=1)))
        await handlers[REGISTER_ACCEPT.name](again, Call())
    args = PromiseArgs(request=PromiseRequest(CLUSTER, 4, NodeUuid(OTHER)))
    granted = []
    for passed_s in (SILENCE_S - 0.1, 0.2):
        clock.now += passed_s
        answer = await handlers[REGISTER_PROMISE.name](args, Call())
        assert isinstance(answer, RegisterAnswer)
        assert answer.vote is not None
        granted.append(answer.vote.granted)
    await node.close()
    assert granted == [False, True]


@pytest.mark.requirement("G4", "F6")
async def test_master_of_an_earlier_release_has_the_longer_lease_of_that_release() -> None:
    clock = StoppedClock()
    node = NodeRegister(
        MemoryRegister(Register(CLUSTER, Promise(3, NodeUuid(MASTER)))), lambda _: [], clock
    )
    renewal = RenewArgs(cluster_uuid=CLUSTER, epoch=3, master_uuid=MASTER)
    answer = await node.handlers()[REGISTER_RENEW.name](renewal, Call())
    await node.close()
    assert isinstance(answer, RegisterAnswer)
    assert answer.vote is not None
    assert answer.vote.heard == LastContact(NodeUuid(MASTER), 0.0, FORMER_SILENCE_S)
