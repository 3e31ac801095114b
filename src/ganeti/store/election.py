"""The rules of an election: the next master, and what it needs first (R2, R3, R7, R8, R10). Pure.

A campaign asks in rounds; each function here judges the answers of one:

    survey     registers, nothing promised   -> the epoch to request, or a refusal
    promises   a majority has promised it    -> the last effective master and its sync set
    tails      members of that set, fenced   -> the source of the state to copy
    accepts    a majority has registered     -> write, answer, call nodes

Safety is in `promise`, `accept` and `check_epoch` of the registers and in these four; timeouts only
decide when to ask (R14).
"""

import math
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ganeti.model.objects import NodeUuid
from ganeti.store.epochs import (
    BOUND,
    CEILING_BOUND,
    EXHAUSTED,
    outliers,
    reference_epoch,
    usual_epoch,
)
from ganeti.store.interface import MAX_EPOCH, ZERO, CampaignKind, Position
from ganeti.store.reason import Reason, joined, naming
from ganeti.store.register import (
    Accepted,
    Answer,
    Promise,
    PromiseRequest,
    Register,
    promise,
)

LEASE_S = 2.75
"""Time for which a master acts on the confirmation of a majority, counted from its question (R9)."""
SILENCE_S = 3.0
"""Time after its last confirmation after which a node votes for another master (R8).

It is longer than the lease, because the clocks of two nodes differ.
"""
FORMER_SILENCE_S = 10.0
"""The same for a master of an earlier release, which does not send its own value."""
ENDS_AFTER_S = 10.0
"""Time without a majority after which a term ends (R9). Without a lease the master waits meanwhile."""
TWO = 2
FORCED_STRIDE = 1000
FORCED_IDS, FORCED_PLACES = 100_000, 997
"""Number of job ids that force skips: skipped nodes may have given out some of them (G8).

The number differs between nodes, since both sides of a partition may be forced. It is the same for 1 in 1,000 pairs.
"""


@dataclass(frozen=True, slots=True)
class LastContact:
    """Master of the last contact, and the time since then."""

    master: NodeUuid
    seconds: float
    silence_s: float = FORMER_SILENCE_S
    """After how many seconds another master may be elected."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a history; a fenced member accepts nothing older any more."""

    position: Position
    digest: bytes


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter's report about itself, besides its register (R8)."""

    role: str = ""
    master_capable: bool = True
    tail: Tail | None = None
    """The end of its copy of the state, None if it has none; not fenced, so the copy may still grow."""
    last_job_id: int = 0
    software: str = ""
    older_calls: tuple[str, ...] = ()
    """Calls of masters of older epochs that still run there (R11)."""
    has_master_daemon: bool = True
    """False if certainly no master daemon runs there."""


@dataclass(frozen=True, slots=True)
class Vote:
    """One voter's answer: its register, and whether it grants the request."""

    granted: bool
    register: Register
    reason: str = ""
    heard: LastContact | None = None
    voter: Voter = field(default_factory=Voter)


@dataclass(frozen=True, slots=True)
class NoVote:
    """A voter that did not answer."""

    reason: str


Ballot: TypeAlias = Mapping[NodeUuid, Vote | NoVote]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why there is no new master; `missing` are the voters that could change that."""

    reason: str
    missing: frozenset[NodeUuid] = frozenset()
    passes_in_s: float | None = None
    """Seconds after which the same request may succeed without intervention; None if it does not."""


_NO_VOTE = Refusal("this node no longer has a vote: it was removed, or marked offline")


@dataclass(frozen=True, slots=True)
class Electing:
    """A campaign as its candidate sees it."""

    candidate: NodeUuid
    kind: CampaignKind
    voters: frozenset[NodeUuid]
    """The voters in the candidate's own state, used until a register names them."""
    software: str = ""
    """The candidate's software version."""


def vote(
    register: Register | None,
    request: PromiseRequest,
    kind: CampaignKind,
    heard: LastContact | None,
) -> Answer:
    """Return a voter's answer: `promise`, but refuse while an active master has not agreed (R8)."""
    why = _recent_master(heard, request.candidate, kind)
    return (
        Answer(granted=False, register=register, reason=why) if why else promise(register, request)
    )


def _recent_master(heard: LastContact | None, candidate: NodeUuid, kind: CampaignKind) -> str:
    if kind is not CampaignKind.VOTE or heard is None or heard.master == candidate:
        return ""
    if heard.seconds >= heard.silence_s:
        return ""
    return Reason(
        f"the last contact with the master {{}} was {heard.seconds:.1f} s ago", heard.master
    )


def is_majority(agreed: Collection[NodeUuid], voters: frozenset[NodeUuid]) -> bool:
    """Return whether more than half of the voters agree."""
    return TWO * len(voters.intersection(agreed)) > len(voters)


def has_quorum(
    agreed: Collection[NodeUuid], voters: frozenset[NodeUuid], *, forced: bool = False
) -> bool:
    """Return whether a present master may continue with these voters.

    Of two voters the master suffices: the other cannot be promoted without it or force (R10). A
    master by force needs no other voter until it is elected.
    """
    return forced or len(voters) <= TWO or is_majority(agreed, voters)


def last_accepted(registers: Collection[Register]) -> Accepted | None:
    """Return the last effective master, as far as these registers know (R7)."""
    known = [register.accepted for register in registers if register.accepted]
    return max(known, key=lambda accepted: (accepted.epoch, accepted.version), default=None)


def registered_voters(accepted: Accepted | None, own: frozenset[NodeUuid]) -> frozenset[NodeUuid]:
    """Return the voters of the last registration, whose majority is needed, since it knows each change (R3)."""
    return accepted.voters if accepted and accepted.voters else own


def next_voters(
    registered: frozenset[NodeUuid], wanted: frozenset[NodeUuid]
) -> frozenset[NodeUuid] | None:
    """Return the next set of voters on the way to the desired set: one node more, or one less (R3).

    None where they are the same. Majorities of two sets that differ by one node have a node in
    common.
    """
    for node in sorted(wanted - registered):
        return registered | {node}
    for node in sorted(registered - wanted):
        return registered - {node}
    return None


def without_outliers(
    ballot: Ballot, own_epoch: int, voters: frozenset[NodeUuid], *, bound: int = BOUND
) -> Ballot:
    """Return the ballot with a refusal in place of each register that is out of bounds (`epochs`).

    `own_epoch` is the greatest epoch in the candidate's own state.
    """
    promised = promised_epochs(ballot)
    out = outliers(promised, reference_epoch(promised, voters, own_epoch), bound=bound)
    refused = {node: NoVote(ignored(node, epoch)) for node, epoch in out.items()}
    false = {
        node: _FALSE for node, found in _votes(ballot).items() if not _is_sound(found.register)
    }
    return {**ballot, **refused, **false}


def promised_epochs(ballot: Ballot) -> dict[NodeUuid, int]:
    """Return the epochs that the answering registers have promised."""
    return {node: found.register.promised.epoch for node, found in _votes(ballot).items()}


def ignored(node: NodeUuid, epoch: int) -> Reason:
    """Return why a register beyond all others is ignored, and the remedy."""
    return Reason(
        f"its register has promised epoch {epoch}, which no majority of the registers has, and is ignored;"
        " run 'gnt-node add --readd {}', which gives it a new register",
        node,
    )


def excluded(node: NodeUuid, promised: Promise) -> Reason:
    """Return why a term ends: the promise of a node excludes its master."""
    if not promised.candidate:  # a stream says only the epoch
        return Reason(f"node {{}} has promised epoch {promised.epoch}", node)
    return Reason(
        f"node {{}} has promised epoch {promised.epoch} to node {{}}", node, promised.candidate
    )


_FALSE = NoVote("its register names a master of an epoch that it has not promised, and is ignored")


def _is_sound(register: Register) -> bool:
    return register.accepted is None or register.accepted.epoch <= register.promised.epoch


def judge_survey(
    electing: Electing, ballot: Ballot, own_epoch: int, others: Ballot | None = None
) -> int | Refusal:
    """Return the epoch to request, greater than all promised ones within bounds; or why a request is useless.

    `others` are the registers of nodes without a vote. They refuse the calls of a master whose
    epoch is not greater than theirs; nothing else in them matters.
    """
    own = ballot.get(electing.candidate)
    # The epoch that force chooses must be within the bound for others, even if a register was just
    # within it.
    bound = BOUND // 2 if electing.kind is CampaignKind.FORCE else BOUND
    asked = {**(others or {}), **ballot}
    judged = without_outliers(asked, own_epoch, electing.voters, bound=bound)
    ballot = {node: judged[node] for node in ballot}
    if isinstance(own, Vote) and isinstance(without := ballot[electing.candidate], NoVote):
        return Refusal(Reason("this node cannot be the master: {}", without.reason))
    answered = _votes(ballot)
    accepted = last_accepted(_registers(answered))
    voters = registered_voters(accepted, electing.voters)
    if electing.candidate not in voters:
        return _NO_VOTE
    if refusal := _is_unfit(electing, answered) or is_outdated(electing, accepted):
        return refusal
    if refusal := _living_master(electing, answered):
        return refusal
    if electing.kind is not CampaignKind.FORCE and not is_majority(answered, voters):
        return _no_majority(ballot, answered, voters)
    epoch = max([own_epoch, *promised_epochs(judged).values()]) + 1
    if electing.kind is CampaignKind.FORCE:
        epoch = forced_epoch(electing.candidate, epoch)
    if epoch > MAX_EPOCH:
        return Refusal(EXHAUSTED)
    return epoch


def _living_master(electing: Electing, answered: Mapping[NodeUuid, Vote]) -> Refusal | None:
    """Return why a vote must wait: a master was heard that may live."""
    waiting = [
        (found.heard.silence_s - found.heard.seconds, node, why)
        for node, found in answered.items()
        if found.heard
        and not is_gone(found.heard.master, answered)
        and (why := _recent_master(found.heard, electing.candidate, electing.kind))
    ]
    if not waiting:
        return None
    seconds, node, why = max(waiting)
    return Refusal(Reason("node {}: {}", node, why), passes_in_s=seconds)


def is_gone(master: NodeUuid, ballot: Ballot) -> bool:
    """Return whether the node of a master says that no master daemon runs there.

    A process that has ended acts in none of its epochs again. A daemon that starts there after this answer needs
    a new epoch, which is as great as the one that a candidate asks for after this survey: one of the two fails.
    """
    own = ballot.get(master)
    return isinstance(own, Vote) and not own.voter.has_master_daemon


def has_gone_master(ballot: Ballot) -> bool:
    """Return whether a master was heard that is certainly gone: its silence need not be waited for."""
    return any(
        vote.heard and is_gone(vote.heard.master, ballot) for vote in _votes(ballot).values()
    )


def forced_epoch(candidate: NodeUuid, epoch: int) -> int:
    """Return an epoch for force.

    It jumps, because skipped nodes may have a master in the next epoch, or be forced too.
    """
    return epoch + FORCED_STRIDE + zlib.crc32(candidate.encode()) % FORCED_STRIDE


def forced_ceiling(candidate: NodeUuid, ceiling: int) -> int:
    """Return the job id ceiling of a master that cannot know which ids others have given out."""
    return ceiling + FORCED_IDS * (1 + zlib.crc32(candidate.encode()) % FORCED_PLACES)


def _is_unfit(electing: Electing, answered: Mapping[NodeUuid, Vote]) -> Refusal | None:
    own = answered.get(electing.candidate)
    if electing.kind is CampaignKind.FORCE or own is None or own.voter.master_capable:
        return None
    role = f" (it is {own.voter.role})" if own.voter.role else ""
    return Refusal(
        f"this node is not a master candidate{role}: start the master daemon of a master candidate"
    )


def is_demoted(electing: Electing, candidates: Collection[NodeUuid]) -> Refusal | None:
    """Return why this node may not continue with its present state, which does not name it as a candidate.

    A demotion that was written may not have been registered. The registers know no voter that is not a candidate
    any more, so such a master could not return after a restart. Force ignores this.
    """
    if electing.kind is CampaignKind.FORCE or electing.candidate in candidates:
        return None
    return Refusal(
        "the last state says that this node is not a master candidate any more: start the master daemon of"
        " one that is, or use --no-voting on this node"
    )


def is_outdated(electing: Electing, accepted: Accepted | None) -> Refusal | None:
    """Return why this candidate's software may not follow a newer last master (R8); None if it may.

    Nodes are upgraded before the master, so a suitable candidate exists; force skips this check.
    """
    if accepted is None or electing.kind is CampaignKind.FORCE:
        return None
    if release(electing.software) >= release(accepted.software):
        return None
    return Refusal(
        Reason(
            (
                "the last master, {}, ran version {}, and this node has {}, which may not "
                "understand the state that was written: upgrade this node, or start the master "
                "on an upgraded node"
            ),
            accepted.master,
            accepted.software,
            electing.software,
        ),
        frozenset((accepted.master,)),
    )


def has_no_state(accepted: Accepted | None, position: Position) -> bool:
    """Return whether a node whose register names this master lacks an existing state.

    Its database is new, or was lost. Job ids are registered before the first job, so a state exists
    where any id is registered.
    """
    return position == ZERO and accepted is not None and accepted.job_id_ceiling > 0


NO_STATE = (
    "this node holds no state (its database is new, or was lost): run 'gnt-cluster "
    "master-failover' on another master candidate, and this node gets the state from it; if no "
    "other node has the state, restore a backup ('gnt-cluster restore')"
)


def release(software: str) -> tuple[int, int]:
    """Return the first two numbers of a version, which decide whether the state can be understood.

    (0, 0) for a text that is not a version; it is older than every release.
    """
    numbers = software.split(".")
    try:
        return int(numbers[0]), int(numbers[1])
    except (ValueError, IndexError):
        return (0, 0)


def judge_promises(electing: Electing, ballot: Ballot) -> Accepted | Refusal | None:
    """Return the last master's registration (None in a cluster that never had one); or why not."""
    votes = _votes(ballot)
    granted = {
        node: found for node, found in votes.items() if found.granted and _is_sound(found.register)
    }
    accepted = last_accepted(_registers(granted))
    voters = registered_voters(accepted, electing.voters)
    if electing.candidate not in voters:
        return _NO_VOTE
    if electing.candidate not in granted:
        return _no_majority(ballot, granted, frozenset((electing.candidate,)))
    if electing.kind is not CampaignKind.FORCE and not is_majority(granted, voters):
        return _no_majority(ballot, granted, voters)
    return is_outdated(electing, accepted) or accepted


def choose_source(
    electing: Electing, accepted: Accepted | None, tails: Mapping[NodeUuid, Tail]
) -> NodeUuid | Refusal:
    """Return the source of the copy: the member of the last sync set that has most (R7).

    A member that has nothing at all has lost its database and is skipped. `tails` includes the
    candidate's own.
    """
    own = electing.candidate
    if accepted is None:
        return own
    mine = tails[own].position
    had = {node: tail for node, tail in tails.items() if node in accepted.sync_set}
    members = {
        node: tail for node, tail in had.items() if not has_no_state(accepted, tail.position)
    }
    if not members and electing.kind is CampaignKind.FORCE:
        members = dict(tails)
    if not members:
        return _no_holder_left(accepted.sync_set, frozenset(had))
    greatest = max(tail.position for tail in members.values())
    holders = sorted(node for node, tail in members.items() if tail.position == greatest)
    if mine > greatest and mine.epoch != greatest.epoch:
        return Refusal(
            Reason(
                (
                    f"this node has writes of epoch {mine.epoch}, which never became effective: "
                    "start the master on {}, and this node will follow it"
                ),
                joined(" or ", holders),
            ),
            frozenset(holders),
        )
    # An epoch has one master, so the longer history of an epoch contains the shorter ones.
    return own if own in holders or mine > greatest else holders[0]


def _no_holder_left(sync_set: frozenset[NodeUuid], without_state: frozenset[NodeUuid]) -> Refusal:
    gone = ""
    if without_state:
        gone = Reason("; the database of {} is gone", joined(", ", sorted(without_state)))
    return Refusal(
        Reason(
            (
                "no node that certainly has the last state answers with it ({}){}: start the "
                "master daemon of such a node, or use --no-voting, which may lose the changes "
                "that only these nodes have"
            ),
            joined(", ", sorted(sync_set)),
            gone,
        ),
        sync_set,
    )


def first_registration(
    electing: Electing,
    epoch: int,
    accepted: Accepted | None,
    tails: Mapping[NodeUuid, Tail],
    ceiling: int,
) -> Accepted:
    """Return a new master's registration: itself and the complete members of the last set, target size 3.

    `tails` includes the candidate's own as it is after copying.
    """
    if electing.kind is CampaignKind.FORCE:
        ceiling = forced_ceiling(electing.candidate, ceiling)
    own = tails[electing.candidate]
    known = accepted.sync_set if accepted else frozenset()
    same = sorted(
        node for node, tail in tails.items() if tail == own and node in known - {electing.candidate}
    )
    return Accepted(
        epoch=epoch,
        version=0,
        master=electing.candidate,
        sync_set=frozenset((electing.candidate, *same[: TARGET_SIZE - 1])),
        job_id_ceiling=ceiling,
        voters=registered_voters(accepted, electing.voters),
        software=electing.software,
    )


TARGET_SIZE = 3
"""Target size of a sync set, the master included (R4)."""


def judge_accepts(
    electing: Electing, ballot: Ballot, voters: frozenset[NodeUuid]
) -> Refusal | None:
    """Return None if the master may begin because a majority of the voters has registered it.

    Else why not.
    """
    granted = {node for node, found in _votes(ballot).items() if found.granted}
    if electing.kind is CampaignKind.FORCE and electing.candidate in granted:
        return None
    return None if is_majority(granted, voters) else _no_majority(ballot, granted, voters)


def greatest_ceiling(ballot: Ballot, epoch: int, stored: int = 0) -> int:
    """Return the ceiling above which all job ids of a new master in `epoch` lie (R12).

    It is the greatest of the registered ceilings, the stored one, and the ids of jobs. A node far
    beyond the majority is ignored, as with epochs: no master has given out such ids. So is one that has
    promised a greater epoch: a master by force there gives out the ids behind its own ceiling.
    """
    known = {
        node: max(found.register.job_id_ceiling, found.voter.last_job_id)
        for node, found in _votes(ballot).items()
        if found.register.promised.epoch <= epoch
    }
    reference = max(usual_epoch(known.values()), stored)
    out = outliers(known, reference, bound=CEILING_BOUND)
    return max([stored, *(ceiling for node, ceiling in known.items() if node not in out)])


def older_calls(ballot: Ballot) -> dict[NodeUuid, tuple[str, ...]]:
    """Return the calls of earlier masters that still run, by node (R8, R11)."""
    found = {node: vote.voter.older_calls for node, vote in _votes(ballot).items()}
    return {node: calls for node, calls in found.items() if calls}


def _votes(ballot: Ballot) -> dict[NodeUuid, Vote]:
    return {node: found for node, found in ballot.items() if isinstance(found, Vote)}


def _registers(votes: Mapping[NodeUuid, Vote]) -> list[Register]:
    return [found.register for found in votes.values()]


def _no_majority(
    ballot: Ballot, agreed: Collection[NodeUuid], voters: frozenset[NodeUuid]
) -> Refusal:
    missing = voters.difference(agreed)
    reasons = [
        Reason("{}: {}", node, _refusal_reason(ballot.get(node))) for node in sorted(missing)
    ]
    what = (
        f"{len(voters.intersection(agreed))} of {len(voters)} voters agree, which is not a majority"
    )
    advice = (
        "; start enough of the others again, or, if certainly none of them is still the master, "
        "use --no-voting: changes that only they have may be lost"
    )
    if len(voters) == TWO:
        advice = (
            "; with two nodes both are needed: if the other one is certainly off, use "
            "--no-voting; a third node that only votes avoids this"
        )
    return Refusal(Reason(f"{what} ({{}}){advice}", joined("; ", reasons)), frozenset(missing))


def _refusal_reason(found: Vote | NoVote | None) -> str:
    if found is None:
        return "was not asked"
    if isinstance(found, NoVote):
        return found.reason or "refused"
    register, heard = found.register, found.heard
    nodes = [register.promised.candidate, *([heard.master] if heard else [])]
    return naming(found.reason or "refused", nodes)


class QuorumLease:
    """Tracks until when a master may act, and when its term ends (R9).

    It uses the times at which the master asked the voters that agreed.
    """

    def __init__(
        self, master: NodeUuid, voters: frozenset[NodeUuid], *, forced: bool, now: float
    ) -> None:
        """`now` is the time at which a majority was asked that has registered this master."""
        self._master = master
        self._forced = forced
        self._agreed_at: dict[NodeUuid, float] = {}
        self._confirmed_at = now
        self.voters_are(voters, now)

    def voters_are(self, voters: frozenset[NodeUuid], now: float) -> None:
        """Replace the voters.

        A new one counts as just confirmed, since its majority was needed for the change.
        """
        self._agreed_at = {node: self._agreed_at.get(node, now) for node in voters}
        self.voters = voters
        self._confirm()

    def is_elected(self) -> None:
        """A majority has registered this master by force: from now on it needs a majority."""
        self._forced = False
        self._confirm()

    def agreed(self, node: NodeUuid, asked_at: float) -> None:
        """Record that a voter has confirmed this master when it was asked at that time."""
        if asked_at > self._agreed_at.get(node, asked_at):
            self._agreed_at[node] = asked_at
            self._confirm()

    def _confirm(self) -> None:
        """Find the time since which a majority has confirmed this master; it agrees itself at any time."""
        if self._forced or len(self.voters) <= TWO:
            self._confirmed_at = math.inf
            return
        others = sorted(
            (self._agreed_at[node] for node in self.voters - {self._master}), reverse=True
        )
        needed = len(self.voters) // TWO + 1 - (self._master in self.voters)
        self._confirmed_at = others[needed - 1]

    def holds(self, now: float) -> bool:
        """Return whether surely no other master is elected yet, without force."""
        return now - self._confirmed_at < LEASE_S

    def majority_at(self) -> float | None:
        """Return when the majority was asked that has confirmed this master last, however the term ends.

        None with two voters or fewer: no majority protects the master from a second one (R10).
        """
        if len(self.voters) <= TWO:
            return None
        return -math.inf if self._forced else self._confirmed_at

    def is_over(self, now: float) -> bool:
        """Return whether no majority has answered for so long that the term must end."""
        return now - self._confirmed_at >= ENDS_AFTER_S
