"""Who must acknowledge, and how that changes (R4, R5); hypothesis looks for orders of events that break it."""

from hypothesis import given
from hypothesis import strategies as st

from ganeti.model.objects import NodeUuid
from ganeti.store.interface import ZERO, Position
from ganeti.store.sync_set import SyncSet

M, A, B, C = (NodeUuid(name) for name in "mabc")
ALL = frozenset((M, A, B, C))


def at(serial: int) -> Position:
    return Position(1, serial)


def set_of(*members: NodeUuid, now: float = 0.0) -> SyncSet:
    made = SyncSet(M, frozenset((M, *members)), at(0), now)
    made.candidates_are(ALL)
    return made


def test_a_write_waits_for_every_member() -> None:
    made = set_of(A, B)
    made.synced(at(3))
    assert made.acked(A, at(3), 0.1) == at(0)
    assert made.acked(B, at(2), 0.1) == at(2)
    assert made.acked(B, at(3), 0.2) == at(3)


def test_a_write_waits_for_the_master_itself() -> None:
    made = set_of(A)
    made.sent(at(3), 0.1)
    assert made.acked(A, at(3), 0.2) == at(0)
    made.validate()
    assert made.synced(at(2)) == at(2)
    assert made.synced(at(3)) == at(3)


def test_a_follower_that_is_faster_than_the_master_is_not_silent() -> None:
    made = set_of(A)
    made.sent(at(1), 0.1)
    made.acked(A, at(1), 0.2)
    made.synced(at(1))
    assert made.silent_at() == float("inf")  # no question is open
    assert made.tick(5.0) is None


def test_nodes_outside_of_the_sync_set_delay_no_write() -> None:
    made = set_of(A, B)
    made.acked(C, at(0), 0.1)
    made.synced(at(1))
    made.acked(A, at(1), 0.1)
    assert made.acked(B, at(1), 0.1) == at(1)


def test_a_silent_member_is_dropped_once_that_is_registered() -> None:
    made = set_of(A, B)
    made.synced(at(1))
    made.ask(0.1)
    made.acked(A, at(1), 1.0)
    assert made.tick(0.9) is None
    made.acked(A, at(1), 1.2)
    assert made.tick(1.2) == frozenset((M, A))
    assert made.acknowledged == at(0)  # the old set counts until then
    assert made.registered(frozenset((M, A))) == at(1)
    assert made.members == frozenset((M, A))


def test_silent_new_member_delays_no_write() -> None:
    """Its write is acknowledged without another one that would look again."""
    made = set_of()
    made.acked(A, at(0), 0.5)
    made.synced(at(1))
    made.ask(0.6)
    assert made.tick(0.6) is None  # gathering: A lags
    assert made.acknowledged == at(1)
    made.synced(at(2))
    assert made.acknowledged == at(1)
    assert made.tick(2.0) is None
    assert made.must_acknowledge == frozenset((M,))
    assert made.acknowledged == at(2)
    made.validate()


def test_another_candidate_takes_the_place_and_must_have_everything_first() -> None:
    made = set_of(A, B)
    made.synced(at(5))
    made.ask(0.4)
    made.acked(C, at(0), 1.0)
    made.acked(A, at(5), 1.1)
    assert made.tick(1.5) is None  # gathering: C lags
    assert made.must_acknowledge == frozenset((M, A, B, C))
    made.acked(C, at(5), 1.6)
    made.acked(A, at(5), 1.6)
    assert made.tick(1.6) == frozenset((M, A, C))
    assert made.registered(frozenset((M, A, C))) == at(5)


def test_one_that_was_dropped_returns_after_it_has_kept_up_for_30_s() -> None:
    made = SyncSet(M, frozenset((M, A)), at(0), 0.0)
    made.candidates_are((A,))
    made.ask(0.0)
    assert made.tick(1.5) == frozenset((M,))
    made.registered(frozenset((M,)))
    now = 2.0
    while now < 31.5:
        made.acked(A, at(0), now)
        assert made.tick(now) is None
        now += 0.5
    made.acked(A, at(0), 32.0)
    assert made.tick(32.0) == frozenset((M, A))


def test_a_new_candidate_comes_as_soon_as_it_has_everything() -> None:
    made = set_of()
    made.acked(A, at(0), 0.0)
    assert made.tick(0.1) == frozenset((M, A))


def test_one_that_keeps_acknowledging_late_is_silent() -> None:
    made = set_of(A)
    for step in range(20):
        made.synced(at(step + 50))
        made.ask(step / 10)
        made.acked(A, at(step), step / 10)
    assert made.tick(2.0) == frozenset((M,))


def test_member_is_silent_a_second_after_the_question_that_it_leaves_open() -> None:
    made = set_of(A)
    assert made.tick(60.0) is None  # nothing was asked
    made.ask(60.0)
    made.ask(60.5)  # the first question counts
    assert made.silent_at() == 61.0
    assert made.tick(61.0) is None
    assert made.tick(61.01) == frozenset((M,))


def test_write_is_a_question_even_right_after_an_answer() -> None:
    made = set_of(A)
    made.ask(1.0)
    made.acked(A, at(0), 1.1)
    made.sent(at(1), 1.2)
    made.acked(A, at(0), 1.3)  # an answer to an earlier question
    assert made.silent_at() == 2.2


def test_answer_behind_later_writes_opens_the_next_question() -> None:
    made = set_of(A)
    made.synced(at(1))
    made.ask(1.0)
    made.synced(at(2))
    made.acked(A, at(1), 1.5)
    assert made.silent_at() == 2.5


def test_set_changes_only_where_an_acknowledgement_may_continue_a_change() -> None:
    made = set_of(A, B)
    made.candidates_are((A, B))
    assert not made.is_changing
    made.ask(0.0)
    made.tick(1.5)
    assert made.is_changing


def test_what_a_follower_has_lost_does_not_count() -> None:
    made = set_of(A)
    made.synced(at(5))
    made.acked(A, at(5), 0.1)
    made.has_only(A, at(5))
    assert made.tick(0.2) is None
    made.has_only(A, at(3))  # an older copy was restored there
    made.acked(A, at(3), 0.2)
    assert made.synced(at(6)) == at(5)
    assert made.acked(A, at(5), 0.3) == at(5)
    made.has_only(A, ZERO)
    assert made.tick(0.4) == frozenset((M,))


_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("sent"), st.integers(0, 3)),
        st.tuples(st.just("synced"), st.integers(0, 30)),
        st.tuples(st.just("acked"), st.sampled_from((A, B, C)), st.integers(0, 30)),
        st.tuples(st.just("connects"), st.sampled_from((A, B, C)), st.integers(0, 30)),
        st.tuples(st.just("tick"), st.sampled_from((0.1, 0.6, 1.5, 31.0))),
        st.tuples(st.just("registered")),
        st.tuples(st.just("candidates"), st.sets(st.sampled_from((A, B, C)))),
    ),
    max_size=60,
)


@given(_EVENTS)
def test_in_any_order_every_member_has_what_is_acknowledged(
    events: list[tuple[object, ...]],
) -> None:
    made, now, serial = set_of(A), 0.0, 0
    wanted: frozenset[NodeUuid] | None = None
    before = made.acknowledged
    for event in events:
        match event:
            case ("sent", int(more)):
                serial += more
                made.sent(at(serial), now)
            case ("synced", int(number)):
                made.synced(at(min(number, serial)))
            case ("acked", str(node), int(number)):
                made.acked(NodeUuid(node), at(min(number, serial)), now)
            case ("connects", str(node), int(number)):
                made.has_only(NodeUuid(node), at(min(number, serial)))
            case ("tick", float(passed)):
                now += passed
                made.ask(now)
                wanted = made.tick(now) or wanted
            case ("registered",):
                if wanted is not None:
                    made.registered(wanted)
            case ("candidates", set(nodes)):
                made.candidates_are(NodeUuid(str(node)) for node in nodes)
        made.validate()
        assert made.acknowledged >= before
        before = made.acknowledged
