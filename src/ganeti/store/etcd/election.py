"""Decides whether this node takes part in the election, and whether its lease must end. Pure."""

from typing import Protocol

from ganeti.model.objects import NodeUuid
from ganeti.store.encoding import MemberList
from ganeti.store.etcd.keys import LeaderKey


class ElectionFacts(Protocol):
    """The facts about the state in etcd that this node knows; `View` provides them."""

    unreachable: str
    damage: str

    @property
    def leader(self) -> LeaderKey | None: ...
    @property
    def token(self) -> int: ...
    @property
    def hand_over(self) -> NodeUuid | None: ...
    @property
    def is_incomplete(self) -> bool: ...
    @property
    def moved_to(self) -> str: ...
    @property
    def members(self) -> MemberList: ...


def obstacle(facts: ElectionFacts, node: NodeUuid, stand_back_reason: str) -> str:
    """Return why `node` does not try to become the master now; '' if it tries.

    `stand_back_reason` is set shortly after the node's own lease has ended; a hand-over request
    overrides it.
    """
    if facts.unreachable:
        return facts.unreachable
    if facts.leader is not None:
        return f"the master is {facts.leader.node}"
    if facts.is_incomplete:
        return "a restore of the state in etcd has not ended; if no restore is running, repeat it"
    if facts.moved_to:
        return f"the state has been moved from etcd to the embedded store, by node {facts.moved_to}"
    if node not in facts.members.candidates:
        return "this node is not a master candidate"
    if facts.hand_over not in (None, node):
        return f"the mastership is handed over to {facts.hand_over}"
    return "" if facts.hand_over == node else stand_back_reason


def superseded(facts: ElectionFacts, node: NodeUuid, token: int) -> str:
    """Return why the lease that `token` stands for must end; '' if it may last."""
    if facts.damage:
        return facts.damage
    if not facts.unreachable and facts.token != token:
        return "another candidate has become the master"
    if facts.hand_over not in (None, node):
        return f"the mastership is handed over to {facts.hand_over}"
    return ""
