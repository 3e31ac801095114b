"""Questions to nodes without a vote: they delay neither the voters' answers nor an election."""

import asyncio

import pytest

from ganeti.model.objects import NodeUuid
from ganeti.store.election import NoVote, Vote
from ganeti.store.encoding import MemberList
from ganeti.store.fence import OTHERS_S, RegisterFence
from ganeti.store.interface import Identity
from ganeti.store.register import Promise, Register
from ganeti.store.survey import answers_within

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("R2")]

VOTERS = frozenset(NodeUuid(name) for name in "abc")
OTHERS = frozenset(NodeUuid(f"n{number}") for number in range(1000))


class Registers:
    """Registers of many nodes: `silent` ones never answer; `asked` are the questions, in their order."""

    def __init__(self, silent: frozenset[NodeUuid] = frozenset()) -> None:
        self.silent = silent
        self.asked: list[NodeUuid] = []
        self.running = 0

    async def read(self, node: NodeUuid) -> Vote | NoVote:
        self.asked.append(node)
        self.running += 1
        try:
            await asyncio.sleep(3600 if node in self.silent else 0.01)
        finally:
            self.running -= 1
        return Vote(True, Register("cluster", Promise(7 if node in OTHERS else 5, NodeUuid("a"))))


async def test_answers_in_time_are_returned_and_late_questions_end() -> None:
    registers = Registers(silent=frozenset({NodeUuid("n1")}))
    answers = await answers_within(0.5, OTHERS, registers.read)
    assert {node for node, found in answers.items() if isinstance(found, NoVote)} == {"n1"}
    assert answers.keys() == OTHERS
    assert registers.running == 0


async def test_no_node_is_asked_without_nodes() -> None:
    assert await answers_within(0.5, (), Registers().read) == {}


async def test_nodes_without_a_vote_are_asked_after_all_voters_answered() -> None:
    registers = Registers(silent=OTHERS)
    identity = Identity("cluster", NodeUuid("a"))

    async def counted() -> MemberList:
        return MemberList(VOTERS, VOTERS)

    fence = RegisterFence(identity, registers, counted, lambda: OTHERS | VOTERS, holds=bool)  # type: ignore[arg-type]  # it only reads
    begun = asyncio.get_running_loop().time()
    assert await fence.greatest_promised(0) == 5
    assert asyncio.get_running_loop().time() - begun == pytest.approx(0.01 + OTHERS_S)
    assert set(registers.asked[: len(VOTERS)]) == VOTERS
    registers.silent = frozenset()
    assert await fence.greatest_promised(0) == 7
