"""The decisions of a campaign, one by one (R3, R7, R8, R9, R10)."""

from dataclasses import replace

import pytest

from ganeti.model.objects import NodeUuid
from ganeti.store import election
from ganeti.store.election import (
    Electing,
    LastContact,
    NoVote,
    QuorumLease,
    Refusal,
    Tail,
    Vote,
    Voter,
)
from ganeti.store.epochs import BOUND, LEAP
from ganeti.store.interface import MAX_EPOCH, CampaignKind, Position
from ganeti.store.register import Accepted, Promise, PromiseRequest, Register

A, B, C, D = (NodeUuid(name) for name in "abcd")
ALL = frozenset((A, B, C))
VOTE, HAND_OVER, FORCE = CampaignKind.VOTE, CampaignKind.HAND_OVER, CampaignKind.FORCE


def register(epoch: int, accepted: Accepted | None = None) -> Register:
    return Register("cluster", Promise(epoch, A), accepted)


def accepted(epoch: int, *members: NodeUuid, version: int = 0, ceiling: int = 0) -> Accepted:
    return Accepted(epoch, version, members[0], frozenset(members), ceiling, ALL)


def tail(epoch: int, serial: int) -> Tail:
    return Tail(Position(epoch, serial), f"{epoch}.{serial}".encode())


def by_vote(candidate: NodeUuid = B, kind: CampaignKind = VOTE) -> Electing:
    return Electing(candidate, kind, ALL)


def upgraded(kind: CampaignKind = VOTE, software: str = "4.1.0") -> Electing:
    return Electing(B, kind, ALL, software)


NEWER = Accepted(3, 0, A, frozenset((A, B)), 0, ALL, "4.2.1")


@pytest.mark.requirement("F6")
@pytest.mark.parametrize(
    ("electing", "is_refused"),
    [
        (upgraded(), True),
        (upgraded(HAND_OVER), True),
        (upgraded(FORCE), False),
        (upgraded(software="4.2.0"), False),  # the same release
        (upgraded(software="4.10.0"), False),  # numbers, not letters
        (upgraded(software="5.0"), False),
        (upgraded(software="nonsense"), True),
    ],
)
def test_older_software_needs_force_after_a_newer_master(
    electing: Electing, is_refused: bool
) -> None:
    ballot = {node: Vote(True, register(3, NEWER)) for node in ALL}
    found = election.judge_survey(electing, ballot, 0), election.judge_promises(electing, ballot)
    assert [isinstance(one, Refusal) for one in found] == [is_refused] * 2
    if is_refused:
        assert isinstance(found[0], Refusal)
        assert "4.2.1" in found[0].reason
        assert found[0].missing == {A}


def test_a_new_master_registers_its_software() -> None:
    first = election.first_registration(upgraded(), 4, NEWER, {B: tail(3, 1)}, 0)
    assert first.software == "4.1.0"


def test_a_node_that_is_no_candidate_asks_in_vain() -> None:
    ballot = {node: Vote(True, register(3)) for node in ALL}
    ballot[B] = Vote(True, register(3), voter=Voter(role="regular", master_capable=False))
    refusal = election.judge_survey(by_vote(), ballot, 0)
    assert isinstance(refusal, Refusal)
    assert "regular" in refusal.reason
    assert isinstance(election.judge_survey(by_vote(kind=FORCE), ballot, 0), int)


@pytest.mark.requirement("G8")
def test_job_ids_begin_above_every_job_that_a_voter_has() -> None:
    ballot: dict[NodeUuid, Vote | NoVote] = {
        A: Vote(True, register(3, accepted(3, A, ceiling=1000))),
        B: Vote(True, register(3), voter=Voter(last_job_id=1234)),
        C: NoVote("down"),
    }
    assert election.greatest_ceiling(ballot, 3) == 1234


@pytest.mark.requirement("G8")
def test_job_ids_are_not_those_behind_the_ceiling_of_a_later_master_by_force() -> None:
    # It answers that it has promised a greater epoch, and assigns further ids meanwhile.
    ballot: dict[NodeUuid, Vote | NoVote] = {
        A: Vote(True, register(3, accepted(2, A, ceiling=1000))),
        B: Vote(True, register(3, accepted(2, A, ceiling=1000))),
        C: Vote(False, register(900, accepted(900, C, ceiling=5000)), "it has promised epoch 900"),
    }
    assert election.greatest_ceiling(ballot, 3) == 1000
    assert election.greatest_ceiling(ballot, 901) == 5000


@pytest.mark.requirement("G8", "A26")
def test_job_ids_do_not_follow_a_lone_node_to_their_end() -> None:
    ballot: dict[NodeUuid, Vote | NoVote] = {
        A: Vote(True, register(3, accepted(3, A, ceiling=1000))),
        B: Vote(True, register(3)),
        C: Vote(True, register(3), voter=Voter(last_job_id=2**62)),
    }
    assert election.greatest_ceiling(ballot, 3, 900) == 1000


@pytest.mark.requirement("A26", "G4")
@pytest.mark.parametrize("kind", [VOTE, FORCE])
@pytest.mark.parametrize("epoch", [MAX_EPOCH, MAX_EPOCH - 1, 3 + BOUND + 1])
def test_lone_register_beyond_all_others_takes_no_epoch_away(
    kind: CampaignKind, epoch: int
) -> None:
    promised = {A: 3, B: 3, C: epoch}
    ballot = {node: Vote(True, register(one)) for node, one in promised.items()}
    found = election.judge_survey(by_vote(kind=kind), ballot, 3)
    assert isinstance(found, int)
    assert 3 < found <= 3 + 1 + 2 * election.FORCED_STRIDE
    others = {D: Vote(True, register(epoch))}
    assert election.judge_survey(by_vote(kind=kind), ballot, 3, others) == found


def test_promise_within_bounds_is_exceeded_also_without_a_vote() -> None:
    ballot = {node: Vote(True, register(3)) for node in ALL}
    others = {D: Vote(True, register(3 + BOUND))}
    assert election.judge_survey(by_vote(), ballot, 3, others) == 3 + BOUND + 1


@pytest.mark.requirement("A26")
def test_refusal_names_the_register_that_is_ignored_and_the_command_that_repairs_it() -> None:
    ballot: dict[NodeUuid, Vote | NoVote] = {
        A: NoVote("down"),
        B: Vote(True, register(3)),
        C: Vote(True, register(MAX_EPOCH)),
    }
    refusal = election.judge_survey(by_vote(), ballot, 3)
    assert isinstance(refusal, Refusal)
    assert f"its register has promised epoch {MAX_EPOCH}" in refusal.reason
    assert f"gnt-node add --readd {C}" in refusal.reason


@pytest.mark.requirement("A26")
def test_candidate_with_a_register_out_of_bounds_reports_it() -> None:
    ballot = {
        A: Vote(True, register(3)),
        B: Vote(True, register(MAX_EPOCH)),
        C: Vote(True, register(3)),
    }
    for kind in (VOTE, FORCE):
        refusal = election.judge_survey(by_vote(kind=kind), ballot, 3)
        assert isinstance(refusal, Refusal)
        assert f"gnt-node add --readd {B}" in refusal.reason


@pytest.mark.requirement("A26", "G4")
def test_register_does_not_vouch_for_itself() -> None:
    """Force on a node that alone answers: an epoch out of bounds would last, and two masters would write."""
    ballot: dict[NodeUuid, Vote | NoVote] = {
        A: NoVote("down"),
        B: Vote(True, register(LEAP)),
        C: NoVote("down"),
    }
    refusal = election.judge_survey(by_vote(kind=FORCE), ballot, 3)
    assert isinstance(refusal, Refusal)
    assert f"has promised epoch {LEAP}" in refusal.reason
    ballot[B] = Vote(True, register(2000))
    assert isinstance(election.judge_survey(by_vote(kind=FORCE), ballot, 3), int)


@pytest.mark.requirement("A26")
def test_register_that_accepted_more_than_it_promised_decides_nothing() -> None:
    false = accepted(MAX_EPOCH, C, ceiling=5)
    honest = accepted(3, A)
    ballot = {node: Vote(True, register(4, honest)) for node in ALL}
    ballot[C] = Vote(True, register(4, false))
    assert election.judge_survey(by_vote(), ballot, 3) == 5
    assert election.judge_promises(by_vote(), ballot) == honest


def test_what_earlier_masters_left_running_is_known_by_node() -> None:
    ballot: dict[NodeUuid, Vote | NoVote] = {
        A: Vote(True, register(3), voter=Voter(older_calls=("task 7/0/1",))),
        B: Vote(True, register(3)),
        C: NoVote("down"),
    }
    assert election.older_calls(ballot) == {A: ("task 7/0/1",)}


@pytest.mark.parametrize(
    ("kind", "heard", "granted"),
    [
        (VOTE, None, True),
        (VOTE, LastContact(A, 9.9), False),
        (VOTE, LastContact(A, 10.0), True),
        (VOTE, LastContact(B, 0.1), True),  # the master itself, which has started again
        (HAND_OVER, LastContact(A, 0.1), True),
        (FORCE, LastContact(A, 0.1), True),
    ],
)
def test_node_does_not_vote_against_a_master_with_recent_contact(
    kind: CampaignKind, heard: LastContact | None, granted: bool
) -> None:
    answer = election.vote(register(3), PromiseRequest("cluster", 4, B), kind, heard)
    assert answer.granted == granted


def test_a_new_epoch_is_greater_than_all_that_are_seen() -> None:
    ballot: dict[NodeUuid, Vote | NoVote] = {
        A: Vote(True, register(7)),
        B: Vote(True, register(3)),
        C: NoVote("down"),
    }
    assert election.judge_survey(by_vote(), ballot, 5) == 8
    assert election.judge_survey(by_vote(), ballot, 9) == 10


def test_there_is_an_end_of_epochs() -> None:
    ballot = {A: Vote(True, register(MAX_EPOCH)), B: Vote(True, register(1))}
    assert isinstance(election.judge_survey(by_vote(), ballot, 0), Refusal)


def test_force_leaves_epochs_for_skipped_nodes() -> None:
    epochs = set()
    for node in ALL:
        ballot = {node: Vote(True, register(3))}
        found = election.judge_survey(by_vote(node, FORCE), ballot, 0)
        assert isinstance(found, int)
        assert found > 1000
        epochs.add(found)
    assert len(epochs) == 3


def test_survey_without_a_majority_names_missing_nodes() -> None:
    ballot: dict[NodeUuid, Vote | NoVote] = {
        A: NoVote("no route"),
        B: Vote(True, register(3)),
        C: NoVote("refused"),
    }
    refusal = election.judge_survey(by_vote(), ballot, 0)
    assert isinstance(refusal, Refusal)
    assert refusal.missing == frozenset((A, C))
    assert "no route" in refusal.reason
    assert "if certainly none of them is still the master, use --no-voting" in refusal.reason
    assert refusal.passes_in_s is None


def test_survey_refused_by_a_live_master_may_be_repeated() -> None:
    seconds = {A: 1.0, B: 0.5, C: 2.0}
    ballot = {
        node: Vote(True, register(3), heard=LastContact(A, seconds[node], 3.0)) for node in ALL
    }
    refusal = election.judge_survey(by_vote(), ballot, 0)
    assert isinstance(refusal, Refusal)
    assert refusal.passes_in_s == 2.5


def test_master_whose_daemon_is_gone_is_not_waited_for() -> None:
    """Its node says that; another node cannot know it."""
    heard, gone = LastContact(A, 1.0, 3.0), Voter(has_master_daemon=False)
    ballot = {node: Vote(True, register(3), heard=heard) for node in ALL}
    unknown = {**ballot, C: replace(ballot[C], voter=gone)}
    assert isinstance(election.judge_survey(by_vote(), unknown, 0), Refusal)
    assert not election.has_gone_master(unknown)
    known = {**ballot, A: replace(ballot[A], voter=gone)}
    assert election.judge_survey(by_vote(), known, 0) == 4
    assert election.has_gone_master(known)
    other = {**known, B: replace(ballot[B], heard=LastContact(C, 0.1, 3.0))}
    assert isinstance(election.judge_survey(by_vote(), other, 0), Refusal)


def test_refusal_with_two_nodes_mentions_force_and_a_third_voter() -> None:
    two = Electing(B, VOTE, frozenset((A, B)))
    refusal = election.judge_survey(two, {A: NoVote("off"), B: Vote(True, register(3))}, 0)
    assert isinstance(refusal, Refusal)
    assert "--no-voting" in refusal.reason
    assert "third" in refusal.reason


def test_the_registered_voters_count_and_not_what_a_stale_candidate_believes() -> None:
    newer = Accepted(4, 2, A, frozenset((A,)), 0, frozenset((A, B, C, D, NodeUuid("e"))))
    ballot: dict[NodeUuid, Vote | NoVote] = {
        B: Vote(True, register(5, newer)),
        C: Vote(True, register(5)),
        A: NoVote("down"),
    }
    assert isinstance(election.judge_promises(by_vote(), ballot), Refusal)
    ballot[D] = Vote(True, register(5))
    assert election.judge_promises(by_vote(), ballot) == newer


def test_a_node_that_was_taken_out_is_refused_before_it_asks() -> None:
    last = accepted(4, A)
    ballot = {node: Vote(True, register(4, last)) for node in ALL}
    assert isinstance(election.judge_survey(by_vote(D), ballot, 0), Refusal)


def test_the_greatest_accepted_master_counts() -> None:
    older, newer = accepted(4, A, B, version=1), accepted(4, A, C, version=2)
    ballot = {B: Vote(True, register(5, older)), C: Vote(True, register(5, newer))}
    assert election.judge_promises(by_vote(), ballot) == newer


@pytest.mark.requirement("F2")
def test_the_state_is_copied_from_the_member_that_has_most() -> None:
    last = accepted(4, A, C)
    tails = {A: tail(4, 3), C: tail(4, 5), B: tail(4, 2)}
    assert election.choose_source(by_vote(), last, tails) == C
    assert election.choose_source(by_vote(C), last, tails) == C


def test_without_a_member_of_the_last_set_the_missing_ones_are_named() -> None:
    refusal = election.choose_source(by_vote(), accepted(4, A, C), {B: tail(4, 9)})
    assert isinstance(refusal, Refusal)
    assert refusal.missing == frozenset((A, C))
    assert election.choose_source(by_vote(kind=FORCE), accepted(4, A, C), {B: tail(4, 9)}) == B


@pytest.mark.requirement("G1", "F2")
def test_a_member_whose_database_is_gone_does_not_count_as_one() -> None:
    last, empty = accepted(4, A, C, ceiling=1000), tail(0, 0)
    refusal = election.choose_source(by_vote(), last, {A: empty, B: tail(4, 9)})
    assert isinstance(refusal, Refusal)
    assert f"({A}, {C}); the database of {A} is gone" in refusal.reason
    assert election.choose_source(by_vote(), last, {A: empty, C: tail(4, 5), B: tail(4, 9)}) == B
    assert election.choose_source(by_vote(A), last, {A: empty, C: tail(4, 5)}) == C
    assert election.choose_source(by_vote(A), accepted(4, A), {A: empty}) == A


def test_a_candidate_never_replaces_more_by_less() -> None:
    last = accepted(4, A)
    assert election.choose_source(by_vote(), last, {A: tail(4, 3), B: tail(4, 5)}) == B
    odd = election.choose_source(by_vote(), last, {A: tail(4, 3), B: tail(5, 1)})
    assert isinstance(odd, Refusal)


def test_a_new_master_registers_those_that_have_it_all() -> None:
    last = accepted(4, A, B, C, ceiling=2000)
    tails = {A: tail(4, 5), B: tail(4, 5), C: tail(4, 4)}
    first = election.first_registration(by_vote(), 5, last, tails, 2000)
    assert (first.sync_set, first.version, first.master) == (frozenset((A, B)), 0, B)
    assert first.job_id_ceiling == 2000
    forced = election.first_registration(by_vote(kind=FORCE), 5, last, tails, 2000)
    assert forced.job_id_ceiling >= 102_000


def test_lease_and_term_last_from_the_time_at_which_a_majority_was_asked() -> None:
    lease = QuorumLease(A, ALL, forced=False, now=0.0)
    lease.agreed(B, 5.0)
    assert lease.holds(5.0 + election.LEASE_S - 0.1)
    assert not lease.holds(5.0 + election.LEASE_S)
    assert not lease.is_over(5.0 + election.ENDS_AFTER_S - 0.1)
    assert lease.is_over(5.0 + election.ENDS_AFTER_S)
    five = QuorumLease(A, ALL | {NodeUuid("d"), NodeUuid("e")}, forced=False, now=0.0)
    five.agreed(B, 5.0)
    assert not five.holds(election.LEASE_S)  # two of five are no majority
    five.agreed(C, 4.0)
    assert five.holds(4.0 + election.LEASE_S - 0.1)
    assert not five.holds(4.0 + election.LEASE_S)
    five.voters_are(ALL, 6.0)
    assert five.holds(5.0 + election.LEASE_S - 0.1)


def test_lease_is_over_before_a_node_votes_for_another_master() -> None:
    """The difference is what the clocks of two nodes may differ by in that time."""
    assert election.LEASE_S * 1.05 < election.SILENCE_S < election.ENDS_AFTER_S


def test_master_by_force_and_one_of_two_need_no_lease() -> None:
    assert not QuorumLease(A, ALL, forced=True, now=0.0).is_over(100.0)
    assert not QuorumLease(A, frozenset((A, B)), forced=False, now=0.0).is_over(100.0)


@pytest.mark.requirement("D7")
def test_majority_is_as_old_as_the_question_and_never_forced() -> None:
    lease = QuorumLease(A, ALL, forced=False, now=1.0)
    lease.agreed(B, 5.0)
    assert lease.majority_at() == 5.0
    assert QuorumLease(A, ALL, forced=True, now=1.0).majority_at() == float("-inf")
    assert QuorumLease(A, frozenset((A, B)), forced=False, now=1.0).majority_at() is None
