"""What a candidate knows of the other nodes."""

from ganeti.base.errors import NotMaster
from ganeti.daemons.candidates import NodeDirectory
from ganeti.store.election import Ballot, Electing, NoVote, Vote, judge_survey
from ganeti.store.interface import CampaignKind
from ganeti.store.reason import Reason, joined, naming, with_names
from ganeti.store.register import Accepted, Promise, Register
from tests.unit.config.sample import NODES, sample_node

DIRECTORY = NodeDirectory()
DIRECTORY.take([sample_node(1), sample_node(2)])
NODE1, NODE2 = "node1.example.com", "node2.example.com"


def test_administrator_sees_names_instead_of_uuids() -> None:
    behind = joined(" and ", (NODES[0], NODES[2]))
    why = NotMaster(Reason("{} do not follow {} (in {} s)", behind, NODES[1], "{3}"))
    assert str(why) == f"{NODES[0]} and {NODES[2]} do not follow {NODES[1]} (in {{3}} s)"
    said = with_names(why.message, DIRECTORY.name)
    assert said == f"{NODE1} and {NODES[2]} do not follow {NODE2} (in {{3}} s)"
    assert with_names("plain {} text", DIRECTORY.name) == "plain {} text"


def test_text_of_another_node_is_shown_with_names() -> None:
    text = f"epoch 3 is promised to {NODES[1]}, {{not}} to {NODES[2]}"
    assert naming(text, [NODES[1]]) == text
    assert with_names(naming(text, [NODES[1]]), DIRECTORY.name) == text.replace(NODES[1], NODE2)
    assert with_names(naming(text, []), DIRECTORY.name) == text


def test_a_refusal_has_the_nodes_as_data() -> None:
    accepted = Accepted(3, 0, NODES[0], frozenset(NODES[:2]), 0, frozenset(NODES[:2]))
    register = Register("cluster", Promise(3, NODES[0]), accepted)
    electing = Electing(NODES[0], CampaignKind.VOTE, frozenset(NODES[:2]))
    ballot: Ballot = {NODES[0]: Vote(True, register), NODES[1]: NoVote("no answer")}
    refusal = judge_survey(electing, ballot, 3)
    assert not isinstance(refusal, int)
    assert refusal.missing == frozenset((NODES[1],))
    assert f"({NODES[1]}: no answer)" in refusal.reason
    assert f"({NODE2}: no answer)" in with_names(refusal.reason, DIRECTORY.name)
