"""Which candidate takes part in the election in etcd, and which lease must end."""

from dataclasses import dataclass, replace

import pytest

from ganeti.model.objects import NodeUuid
from ganeti.store.encoding import MemberList
from ganeti.store.etcd.election import obstacle, superseded
from ganeti.store.etcd.keys import LeaderKey

ME, OTHER = NodeUuid("me"), NodeUuid("other")
BOTH = MemberList(frozenset({ME, OTHER}), frozenset({ME, OTHER}))


@dataclass
class Facts:
    """What a node knows of etcd; the default is a free place."""

    unreachable: str = ""
    damage: str = ""
    leader: LeaderKey | None = None
    token: int = 0
    hand_over: NodeUuid | None = None
    is_incomplete: bool = False
    moved_to: str = ""
    members: MemberList = BOTH


FREE = Facts()


@pytest.mark.parametrize(
    ("facts", "stand_back", "expected"),
    [
        (FREE, "", ""),
        (FREE, "its lease has ended", "its lease has ended"),
        (replace(FREE, hand_over=ME), "its lease has ended", ""),
        (replace(FREE, hand_over=OTHER), "", "handed over to other"),
        (replace(FREE, unreachable="no quorum", hand_over=ME), "", "no quorum"),
        (replace(FREE, leader=LeaderKey(OTHER, 3)), "", "the master is other"),
        (replace(FREE, is_incomplete=True), "", "restore of the state"),
        (replace(FREE, moved_to="n2"), "", "moved from etcd to the embedded store, by node n2"),
        (
            replace(FREE, members=MemberList(frozenset({ME}), frozenset({OTHER}))),
            "",
            "not a master",
        ),
    ],
)
def test_a_candidate_takes_part_unless_an_obstacle_is_named(
    facts: Facts, stand_back: str, expected: str
) -> None:
    assert expected in obstacle(facts, ME, stand_back)
    assert bool(obstacle(facts, ME, stand_back)) == bool(expected)


@pytest.mark.requirement("G2")
@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (Facts(token=7), ""),
        (Facts(token=7, hand_over=ME), ""),
        (Facts(token=7, hand_over=OTHER), "handed over to other"),
        (Facts(token=8), "another candidate has become the master"),
        (Facts(token=0), "another candidate has become the master"),
        # What is not known does not end a lease: its own time does.
        (Facts(token=8, unreachable="no quorum"), ""),
        (Facts(token=7, damage="members: not a list"), "members: not a list"),
    ],
)
def test_a_lease_ends_when_another_node_has_or_requests_the_mastership(
    facts: Facts, expected: str
) -> None:
    assert expected in superseded(facts, ME, token=7)
    assert bool(superseded(facts, ME, token=7)) == bool(expected)
