"""The product's decisions as one object, and copies of it with one rule left out each."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from ganeti.model.objects import NodeUuid
from ganeti.store import election
from ganeti.store.election import Electing, LastContact, QuorumLease, Refusal, Tail
from ganeti.store.interface import CampaignKind, Position
from ganeti.store.register import (
    Accepted,
    AcceptRequest,
    Answer,
    Promise,
    PromiseRequest,
    Register,
    accept,
    check_epoch,
)
from ganeti.store.sync_set import SyncSet


class Rules:
    """What the product decides; the flags are what the simulated daemons do besides."""

    register_is_durable = True  # R2
    fences_followers = True  # R2: a greater epoch ends older replication
    registers_before_writing = True  # R7
    one_member_at_a_time = True  # R3
    is_heard_before_it_changes_the_set = True  # R5
    says_degraded = True  # R6
    steps_down_when_fenced = True  # R9
    moves_aside = True  # R9
    forced_is_degraded = True  # R10
    repairs_voters = True  # R3
    force_takes_an_epoch = True  # R10
    registers_ceilings = True  # R12
    stops_at_unknown_commits = True  # R13

    vote = staticmethod(election.vote)
    judge_survey = staticmethod(election.judge_survey)
    judge_promises = staticmethod(election.judge_promises)
    choose_source = staticmethod(election.choose_source)
    is_demoted = staticmethod(election.is_demoted)
    first_registration = staticmethod(election.first_registration)
    judge_accepts = staticmethod(election.judge_accepts)
    has_quorum = staticmethod(election.has_quorum)
    accept = staticmethod(accept)

    @staticmethod
    def check_epoch(register: Register | None, epoch: int, master: NodeUuid) -> Answer:
        return check_epoch(register, epoch, master)

    sync_set: type[SyncSet] = SyncSet
    quorum: type[QuorumLease] = QuorumLease

    def voters_agree(
        self,
        agreed: Collection[NodeUuid],
        old: frozenset[NodeUuid],
        new: frozenset[NodeUuid],
        *,
        forced: bool,
    ) -> bool:
        """A registration counts with a majority of the old voters and of the new (R3)."""
        return self.has_quorum(agreed, old, forced=forced) and self.has_quorum(
            agreed, new, forced=forced
        )


class GrantsAnything(Rules):
    """R2 left out: a node grants epochs that are not greater than what it has promised."""

    @staticmethod
    def vote(
        register: Register | None,
        request: PromiseRequest,
        kind: CampaignKind,
        heard: LastContact | None,
    ) -> Answer:
        answer = election.vote(register, request, kind, heard)
        if answer.granted or register is None or "heard" in answer.reason:
            return answer
        promised = Promise(request.epoch, request.candidate)
        kept = register.accepted
        if kept and kept.epoch > request.epoch:
            kept = replace(kept, epoch=request.epoch)
        return Answer(granted=True, register=Register(register.cluster_uuid, promised, kept))


class ForgetsPromises(Rules):
    """R2 left out: the register is answered with before it is synced."""

    register_is_durable = False


class NeverFences(Rules):
    """R2 left out: followers go on taking writes of older epochs."""

    fences_followers = False

    @staticmethod
    def check_epoch(register: Register | None, epoch: int, master: NodeUuid) -> Answer:
        answer = check_epoch(register, epoch, master)
        return answer if answer.granted else Answer(granted=True, register=register)


class AllMembersAtOnce(Rules):
    """R3 left out: voters change all at once, and that counts as soon as the new ones have it."""

    one_member_at_a_time = False

    def voters_agree(
        self,
        agreed: Collection[NodeUuid],
        old: frozenset[NodeUuid],
        new: frozenset[NodeUuid],
        *,
        forced: bool,
    ) -> bool:
        return self.has_quorum(agreed, new, forced=forced)


class AcknowledgesEarly(Rules):
    """R4 left out: a write is acknowledged when any other member has it."""

    class sync_set(SyncSet):  # noqa: N801 - stands for the attribute
        def _advance(self) -> Position:
            others = [self._followers[node].acked for node in self._members - {self._master}]
            held = min(self._synced, max(others, default=self._synced))
            self._acknowledged = max(self._acknowledged, held)
            return self._acknowledged

        def validate(self) -> None:
            """The product's own check would find it before the histories do."""


class AcknowledgesAlone(AcknowledgesEarly):
    """R4 left out: a write is acknowledged when the master has it."""

    class sync_set(SyncSet):  # noqa: N801 - stands for the attribute
        def _advance(self) -> Position:
            self._acknowledged = self._synced
            return self._acknowledged

        def validate(self) -> None:
            """The product's own check would find it before the histories do."""


class AcknowledgesWithoutTheMaster(Rules):
    """R4 left out: a write is acknowledged when the others have it, whether or not the master's disk does."""

    class sync_set(SyncSet):  # noqa: N801 - stands for the attribute
        def sent(self, position: Position, now: float) -> None:
            super().sent(position, now)
            self._synced = position

        def validate(self) -> None:
            """The product's own check would find it before the histories do."""


class ChangesTheSetAtOnce(Rules):
    """R5 left out: a new set counts before it is registered."""

    class sync_set(SyncSet):  # noqa: N801 - stands for the attribute
        @property
        def must_acknowledge(self) -> frozenset[NodeUuid]:
            return self._change.members if self._change else self._members

        def validate(self) -> None:
            """The product's own check would find it before the histories do."""


class TakesMembersThatLag(Rules):
    """R5 left out: a new member need not hold what was sent so far."""

    class sync_set(SyncSet):  # noqa: N801 - stands for the attribute
        def _pursue(self, change: object, now: float) -> None:
            if self._change is not None:
                self._change.is_registering = True

        def _may_come(self, node: NodeUuid, now: float) -> bool:
            return True

        def validate(self) -> None:
            """The product's own check would find it before the histories do."""


class RegistersUnheard(Rules):
    """R5 left out: a master that hears nobody has sets registered, and does not hear that they are."""

    is_heard_before_it_changes_the_set = False


class HidesDegradation(Rules):
    """R6 left out: nobody is told that the master is alone."""

    says_degraded = False


class NeedsNoMajority(Rules):
    """R7 left out: any promise will do."""

    @staticmethod
    def judge_promises(electing: Electing, ballot: election.Ballot) -> Accepted | Refusal | None:
        return election.judge_promises(replace(electing, kind=CampaignKind.FORCE), ballot)

    @staticmethod
    def judge_survey(
        electing: Electing,
        ballot: election.Ballot,
        own_epoch: int,
        others: election.Ballot | None = None,
    ) -> int | Refusal:
        del others
        return election.judge_survey(replace(electing, kind=CampaignKind.FORCE), ballot, own_epoch)

    @staticmethod
    def judge_accepts(
        electing: Electing, ballot: election.Ballot, voters: frozenset[NodeUuid]
    ) -> Refusal | None:
        return election.judge_accepts(replace(electing, kind=CampaignKind.FORCE), ballot, voters)

    @staticmethod
    def has_quorum(
        agreed: Collection[NodeUuid], voters: frozenset[NodeUuid], *, forced: bool = False
    ) -> bool:
        return True


class NeedsNoMember(Rules):
    """R7 left out: no member of the last sync set needs to be there."""

    @staticmethod
    def choose_source(
        electing: Electing, accepted: Accepted | None, tails: Mapping[NodeUuid, Tail]
    ) -> NodeUuid | Refusal:
        return election.choose_source(replace(electing, kind=CampaignKind.FORCE), accepted, tails)


class CopiesNothing(Rules):
    """R7 left out: the candidate goes on with what it has."""

    @staticmethod
    def choose_source(
        electing: Electing, accepted: Accepted | None, tails: Mapping[NodeUuid, Tail]
    ) -> NodeUuid | Refusal:
        found = election.choose_source(electing, accepted, tails)
        return found if isinstance(found, Refusal) else electing.candidate


class ComparesSerialsFirst(Rules):
    """R1 left out: positions are compared by their serials."""

    @staticmethod
    def choose_source(
        electing: Electing, accepted: Accepted | None, tails: Mapping[NodeUuid, Tail]
    ) -> NodeUuid | Refusal:
        turned = {
            node: Tail(Position(tail.position.serial, tail.position.epoch), tail.digest)
            for node, tail in tails.items()
        }
        return election.choose_source(electing, accepted, turned)


class WritesBeforeRegistering(Rules):
    """R7 left out: a new master writes as soon as it has copied."""

    registers_before_writing = False


class DeposesLivingMasters(Rules):
    """R8 left out: nodes vote for another while they hear a master."""

    @staticmethod
    def vote(
        register: Register | None,
        request: PromiseRequest,
        kind: CampaignKind,
        heard: LastContact | None,
    ) -> Answer:
        return election.vote(register, request, kind, None)

    @staticmethod
    def judge_survey(
        electing: Electing,
        ballot: election.Ballot,
        own_epoch: int,
        others: election.Ballot | None = None,
    ) -> int | Refusal:
        del others
        return election.judge_survey(
            replace(electing, kind=CampaignKind.HAND_OVER), ballot, own_epoch
        )


class IgnoresVersions(Rules):
    """R8 left out: a node becomes the master although the last one's software was newer."""

    @staticmethod
    def judge_survey(
        electing: Electing,
        ballot: election.Ballot,
        own_epoch: int,
        others: election.Ballot | None = None,
    ) -> int | Refusal:
        del others
        return election.judge_survey(replace(electing, software="9.9"), ballot, own_epoch)

    @staticmethod
    def judge_promises(electing: Electing, ballot: election.Ballot) -> Accepted | Refusal | None:
        return election.judge_promises(replace(electing, software="9.9"), ballot)


class GoesOnWhenFenced(Rules):
    """R9 left out: an old master ignores that it was fenced."""

    steps_down_when_fenced = False


class Merges(Rules):
    """R9 left out: a tail that differs is kept, and what comes is put behind it."""

    moves_aside = False


class ServesWithoutAMajority(Rules):
    """R9 left out: a master without a majority goes on serving."""

    class quorum(QuorumLease):  # noqa: N801 - stands for the attribute
        def is_over(self, now: float) -> bool:
            return False


class ActsWithoutALease(Rules):
    """R9 left out: a master answers clients for as long as its term lasts."""

    class quorum(QuorumLease):  # noqa: N801 - stands for the attribute
        def holds(self, now: float) -> bool:
            return not self.is_over(now)


class ForcesWithoutAnEpoch(Rules):
    """R10 left out: force goes on in the epoch that it knows."""

    force_takes_an_epoch = False


class HidesForce(Rules):
    """R10 left out: a master by force says that it is like others from the beginning."""

    forced_is_degraded = False


class NeedsNobodyAfterForce(Rules):
    """R10 left out: a master by force needs no majority after one has registered it."""

    class quorum(QuorumLease):  # noqa: N801 - stands for the attribute
        def is_elected(self) -> None:
            """It stays one by force."""


class LeavesVotersUnregistered(Rules):
    """R3 left out: a master does not look for voters that an earlier one did not live to register."""

    repairs_voters = False


class ForgetsCeilings(Rules):
    """R12 left out: job ids go on behind the last one that the new master knows."""

    registers_ceilings = False


class GoesOnAfterUnknownCommits(Rules):
    """R13 left out: what may have been written is taken as not written."""

    stops_at_unknown_commits = False


class RegistersAnyVersion(Rules):
    """R5 left out: a register takes an older version of the sync set for a newer one."""

    @staticmethod
    def accept(register: Register | None, request: AcceptRequest) -> Answer:
        answer = accept(register, request)
        if answer.granted or register is None:
            return answer
        promised = register.promised
        if request.accepted.epoch != promised.epoch:
            return answer
        return Answer(granted=True, register=replace(register, accepted=request.accepted))


LEFT_OUT: dict[str, type[Rules]] = {
    "R1 comparing epochs first": ComparesSerialsFirst,
    "R2 granting only greater epochs": GrantsAnything,
    "R2 syncing a promise before the answer": ForgetsPromises,
    "R2 refusing older replication": NeverFences,
    "R3 registering an earlier master's voters": LeavesVotersUnregistered,
    "R4 every member": AcknowledgesEarly,
    "R4 more than the master": AcknowledgesAlone,
    "R4 the master, too": AcknowledgesWithoutTheMaster,
    "R5 both sets acknowledge": ChangesTheSetAtOnce,
    "R5 a new member has everything": TakesMembersThatLag,
    "R6 saying it": HidesDegradation,
    "R7 a majority": NeedsNoMajority,
    "R7 a member of the last set": NeedsNoMember,
    "R7 copying": CopiesNothing,
    "R8 a master that is heard": DeposesLivingMasters,
    "R8 no older software than the last master's": IgnoresVersions,
    "R9 stopping when fenced": GoesOnWhenFenced,
    "R9 moving a different tail aside": Merges,
    "R9 ending without a majority": ServesWithoutAMajority,
    "R9 acting only under a lease": ActsWithoutALease,
    "R10 an epoch even by force": ForcesWithoutAnEpoch,
    "R12 registered ceilings": ForgetsCeilings,
    "R13 stopping at unknown commits": GoesOnAfterUnknownCommits,
}
