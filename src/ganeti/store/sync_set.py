"""The nodes that must hold a write before it is acknowledged, and how they change (R4-R6). Pure.

    steady --(a member is silent, or another one is needed)--> joint: old and new set acknowledge
    joint: gathering --(the new set has everything written before its start)--> registering
           gathering --(a new member falls silent)--> steady, as before
           registering --(a majority of the voters has the new set)--> steady, with the new set

A follower *proves* that it keeps up when it has acknowledged what was sent when it was last asked. A
follower is silent when a question has been open for a second. One that was dropped returns after 30 s
without silence. All times are monotonic seconds given by the caller.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ganeti.base.errors import StoreError
from ganeti.model.objects import NodeUuid
from ganeti.store.election import TARGET_SIZE
from ganeti.store.interface import ZERO, Position

SILENT_AFTER_S = 1.0
RETURNS_AFTER_S = 30.0
NEVER_PROVED, NOTHING_ASKED = float("-inf"), float("inf")


@dataclass(slots=True)
class _Follower:
    acked: Position = ZERO
    mark: Position = ZERO  # the acknowledgement of this position answers the open question
    asked_at: float = NEVER_PROVED
    """Time of the open question; `NOTHING_ASKED` after its answer."""
    steady_since: float = float("inf")
    was_dropped: bool = False

    def is_silent(self, now: float) -> bool:
        return now - self.asked_at > SILENT_AFTER_S

    def forget_proof(self) -> None:
        """Count as silent until the next proof."""
        self.asked_at = NEVER_PROVED


@dataclass(slots=True)
class _Change:
    members: frozenset[NodeUuid]
    floor: Position
    is_registering: bool = False


@dataclass(frozen=True, slots=True)
class SyncSetStatistics:
    """Figures for `gnt-debug` and tests."""

    members: frozenset[NodeUuid]
    acknowledged: Position
    acked: dict[NodeUuid, Position] = field(default_factory=dict)


class SyncSet:
    """The sync set of one master in one epoch."""

    def __init__(
        self, master: NodeUuid, members: frozenset[NodeUuid], position: Position, now: float
    ) -> None:
        """`members` is registered, and each member has everything up to `position`."""
        self._master = master
        self._members = members
        self._change: _Change | None = None
        self._sent = position
        self._synced = position
        self._acknowledged = position
        self._candidates = members
        self._followers: dict[NodeUuid, _Follower] = {}
        for node in members - {master}:
            self._followers[node] = _Follower(position, position, NOTHING_ASKED, now)

    @property
    def members(self) -> frozenset[NodeUuid]:
        """Return the effective set: the last one registered."""
        return self._members

    @property
    def acknowledged(self) -> Position:
        """Return the position up to which every member has synced everything."""
        return self._acknowledged

    @property
    def must_acknowledge(self) -> frozenset[NodeUuid]:
        """Return the nodes that a write waits for.

        The old set, and the new one while it is being registered (R5).
        """
        return self._members | self._change.members if self._change else self._members

    def statistics(self) -> SyncSetStatistics:
        acked = {node: follower.acked for node, follower in self._followers.items()}
        return SyncSetStatistics(self._members, self._acknowledged, acked)

    def candidates_are(self, candidates: Iterable[NodeUuid]) -> None:
        """Replace the possible members; the next `tick` drops members that are no longer allowed."""
        self._candidates = frozenset(candidates) | {self._master}
        for node in self._candidates - self._followers.keys() - {self._master}:
            self._followers[node] = _Follower()
        for node in self._followers.keys() - self._candidates - self.must_acknowledge:
            del self._followers[node]

    def sent(self, position: Position, now: float) -> None:
        """Record that the master has written up to here, and asks every follower for it."""
        self._sent = max(self._sent, position)
        self.ask(now)

    def synced(self, position: Position) -> Position:
        """Record that the master itself has synced up to here; return the acknowledged position."""
        self._sent = max(self._sent, position)
        self._synced = max(self._synced, position)
        return self._advance()

    def acked(self, node: NodeUuid, position: Position, now: float) -> Position:
        """Record a follower's synced position, which may be outdated; return the acknowledged position."""
        follower = self._followers.get(node)
        if follower is None:
            return self._acknowledged
        follower.acked = max(follower.acked, position)
        if follower.acked >= follower.mark:
            if follower.is_silent(now):
                follower.steady_since = now
            follower.asked_at = now if follower.acked < self._sent else NOTHING_ASKED
            follower.mark = self._sent
        return self._advance()

    def ask(self, now: float) -> None:
        """Record that every follower is asked now for all that was sent."""
        for follower in self._followers.values():
            if follower.asked_at == NOTHING_ASKED:
                follower.asked_at, follower.mark = now, self._sent

    def silent_at(self) -> float:
        """Return when the next follower falls silent unless it answers; infinity if no question is open."""
        asked = [follower.asked_at for follower in self._followers.values()]
        return (
            min((at for at in asked if at != NEVER_PROVED), default=NOTHING_ASKED) + SILENT_AFTER_S
        )

    @property
    def is_changing(self) -> bool:
        """Return whether an acknowledgement may begin or continue a change."""
        is_small = len(self._members) < min(TARGET_SIZE, len(self._candidates))
        return self._change is not None or is_small

    def has_only(self, node: NodeUuid, position: Position) -> None:
        """Record the position of a follower that connects: any greater position no longer counts.

        Its disk was replaced, or has an older copy.
        """
        follower = self._followers.get(node)
        if follower and follower.acked > position:
            follower.acked = follower.mark = min(follower.acked, position)
            follower.forget_proof()
            follower.was_dropped = True

    def tick(self, now: float) -> frozenset[NodeUuid] | None:
        """Begin or continue a change; return a set to register now, to be confirmed by `registered`.

        More may be `acknowledged` afterwards: an abandoned change leaves fewer nodes to wait for.
        The same set is returned until it is registered: registering may be repeated.
        """
        if self._change is None:
            wanted = self._wanted(now)
            if wanted != self._members:
                self._change = _Change(wanted, self._sent)
        if self._change is not None and not self._change.is_registering:
            self._pursue(self._change, now)
        if self._change is not None and self._change.is_registering:
            return self._change.members
        return None

    def registered(self, members: frozenset[NodeUuid]) -> Position:
        """Record that a majority of the voters has this set; return the acknowledged position."""
        if self._change is None or self._change.members != members:
            return self._acknowledged
        for node in self._members - members:
            if follower := self._followers.get(node):
                follower.was_dropped, follower.steady_since = True, float("inf")
                follower.forget_proof()
        for node in members - {self._master}:
            self._followers[node].was_dropped = False
        self._members, self._change = members, None
        self.candidates_are(self._candidates)
        return self._advance()

    def validate(self) -> None:
        """Raise StoreError where the parts contradict each other; run after every step in tests."""
        problems = []
        if self._master not in self._members:
            problems.append("the sync set lacks the master")
        if self._change and self._master not in self._change.members:
            problems.append("the new set lacks the master")
        if self._acknowledged > self._synced:
            problems.append("more is acknowledged than the master has synced")
        if self._acknowledged < self._held():
            problems.append("what all have is not acknowledged")
        if missing := self.must_acknowledge - self._followers.keys() - {self._master}:
            problems.append(f"members that are not followers: {sorted(missing)}")
        behind = [
            node
            for node in self._members - {self._master}
            if (follower := self._followers.get(node)) is not None
            and follower.acked < self._acknowledged
            and not follower.was_dropped
        ]
        if behind:
            problems.append(f"acknowledged without {sorted(behind)}")
        if problems:
            raise StoreError("; ".join(problems))

    def _pursue(self, change: _Change, now: float) -> None:
        new = change.members - self._members
        if any(
            self._followers[node].is_silent(now) or node not in self._candidates for node in new
        ):
            self._change = None
            self._advance()
        elif all(self._followers[node].acked >= change.floor for node in new):
            change.is_registering = True

    def _wanted(self, now: float) -> frozenset[NodeUuid]:
        """Return the desired members: present ones that keep up, and others up to the target size."""
        others = self._members & self._candidates - {self._master}
        kept = sorted(node for node in others if not self._followers[node].is_silent(now))
        ready = sorted(
            node for node in self._candidates - self._members if self._may_come(node, now)
        )
        return frozenset((self._master, *[*kept, *ready][: TARGET_SIZE - 1]))

    def _may_come(self, node: NodeUuid, now: float) -> bool:
        if self._followers[node].is_silent(now):
            return False
        follower = self._followers[node]
        return not follower.was_dropped or now - follower.steady_since >= RETURNS_AFTER_S

    def _advance(self) -> Position:
        self._acknowledged = max(self._acknowledged, self._held())
        return self._acknowledged

    def _held(self) -> Position:
        """Return the position that all required nodes have."""
        needed = self.must_acknowledge & self._followers.keys()
        return min([self._synced, *(self._followers[node].acked for node in needed)])
