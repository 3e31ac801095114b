"""What the store's members should be after the configuration, one step at a time (R3)."""

from dataclasses import replace

from ganeti.daemons.membership import next_change, wanted_members
from ganeti.model.objects import Cluster, GroupUuid, Node, NodeUuid
from ganeti.store.interface import MemberChange, Membership

A, B, C = (NodeUuid(name) for name in "abc")


class Shown:
    """As much of a snapshot as is looked at."""

    def __init__(self, **nodes: tuple[bool, bool]) -> None:
        self.cluster = Cluster(uuid="cluster", name="c", master_node=A)
        self.nodes = {
            name: Node(
                uuid=NodeUuid(name),
                name=name,
                primary_ip="192.0.2.1",
                secondary_ip="192.0.2.1",
                group=GroupUuid("g"),
                certificate="",
                master_candidate=candidate,
                offline=offline,
            )
            for name, (candidate, offline) in nodes.items()
        }


def members(voters: set[NodeUuid], candidates: set[NodeUuid]) -> Membership:
    return Membership(A, 1, 0, frozenset(voters), frozenset(candidates), frozenset((A,)), 0)


def test_offline_nodes_neither_vote_nor_hold_the_state() -> None:
    shown = Shown(a=(True, False), b=(True, True), c=(False, False))
    wanted = wanted_members(shown)  # type: ignore[arg-type] # as much as is looked at
    assert wanted == (frozenset((A, C)), frozenset((A,)))


def test_steps_lead_to_what_is_wanted_and_end() -> None:
    shown = Shown(a=(True, False), b=(True, False))
    now = members({A, C}, {A, C})
    steps = []
    while (step := next_change(shown, now)) is not None:  # type: ignore[arg-type] # as much as is looked at
        steps.append(step)
        node = frozenset((step.node_uuid,))
        now = replace(
            now,
            voters=now.voters | node if step.is_voter else now.voters - node,
            candidates=now.candidates | node if step.is_candidate else now.candidates - node,
        )
    assert steps == [
        MemberChange(B, is_voter=True, is_candidate=True),
        MemberChange(C, is_voter=False, is_candidate=False),
    ]
