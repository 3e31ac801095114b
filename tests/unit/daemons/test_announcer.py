"""What a master keeps of the nodes' answers to its epoch."""

import pytest

from ganeti.daemons.announcer import register_states
from ganeti.daemons.candidates import RenewalAnswer
from ganeti.model.objects import NodeUuid
from ganeti.store.election import NoVote, Vote
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
