"""Which node may write a disk, and what a copy that comes back is worth."""

import pytest

from ganeti.model.objects import Grant, NodeUuid
from ganeti.recovery.grants import (
    SHARED,
    CopyRecord,
    GrantRefused,
    Returned,
    barred,
    closed,
    drop_peer,
    grant_writer,
    join_current,
    judge_return,
    keep_only,
    leave_current,
    opened,
    release,
)

A, B = NodeUuid("a"), NodeUuid("b")
BOTH = frozenset((A, B))


@pytest.mark.requirement("D2")
def test_a_new_writer_is_a_new_generation() -> None:
    assert grant_writer(Grant(4, BOTH), A, 7, is_fenced=False) == Grant(5, BOTH, A, 7)


@pytest.mark.requirement("D6")
def test_a_second_writer_needs_the_first_one_fenced_and_drops_its_copy() -> None:
    grant = Grant(5, BOTH, A, 7)
    with pytest.raises(GrantRefused, match="a may be writing in generation 5"):
        grant_writer(grant, B, 8, is_fenced=False)
    assert grant_writer(grant, B, 8, is_fenced=True) == Grant(6, frozenset({B}), B, 8)


@pytest.mark.requirement("D6")
def test_a_copy_that_misses_writes_is_not_promoted() -> None:
    with pytest.raises(GrantRefused, match="misses writes since generation 6"):
        grant_writer(Grant(6, frozenset({B}), B, 8), A, 9, is_fenced=True)


def test_a_shared_disk_keeps_its_only_copy() -> None:
    grant = Grant(5, frozenset({SHARED}), A, 7)
    assert grant_writer(grant, B, 8, is_fenced=True) == Grant(6, frozenset({SHARED}), B, 8)


def test_the_same_node_may_open_again() -> None:
    assert grant_writer(Grant(5, BOTH, A, 7), A, 7, is_fenced=False) == Grant(6, BOTH, A, 7)


@pytest.mark.requirement("D5")
def test_the_writer_drops_its_peer_once() -> None:
    grant = drop_peer(Grant(5, BOTH, A, 7), A, 5, 7)
    assert grant == Grant(6, frozenset({A}), A, 7)
    with pytest.raises(GrantRefused, match="asks in generation 5"):
        drop_peer(grant, A, 5, 7)


@pytest.mark.requirement("D1", "D8")
def test_a_writer_whose_disk_failed_leaves_once_and_stays_the_writer() -> None:
    grant = leave_current(Grant(5, BOTH, A, 7), A, 5, 7)
    assert grant == Grant(6, frozenset({B}), A, 7)
    with pytest.raises(GrantRefused, match="asks in generation 5"):
        leave_current(grant, A, 5, 7)
    for only in ({A}, {SHARED}):
        with pytest.raises(GrantRefused, match="no copy but the one on a has every write"):
            leave_current(Grant(5, frozenset(only), A, 7), A, 5, 7)


@pytest.mark.requirement("D5")
def test_a_writer_whose_copy_is_not_current_drops_no_peer() -> None:
    with pytest.raises(GrantRefused, match="its peer cannot be dropped"):
        drop_peer(Grant(6, frozenset({B}), A, 7), A, 6, 7)


@pytest.mark.requirement("D2", "D6")
def test_a_node_writes_through_its_peer_only_where_no_other_node_writes() -> None:
    for writer in (A, None):
        grant = Grant(6, frozenset({B}), writer, 7)
        with pytest.raises(GrantRefused, match="misses writes"):
            grant_writer(grant, A, 8, is_fenced=True)
        through = grant_writer(grant, A, 8, is_fenced=False, through_peer=True)
        assert through == Grant(7, frozenset({B}), A, 8)
    with pytest.raises(GrantRefused, match="misses writes"):
        grant_writer(Grant(6, frozenset({B}), B, 7), A, 8, is_fenced=True, through_peer=True)
    with pytest.raises(GrantRefused, match="may be writing"):
        grant_writer(Grant(6, BOTH, B, 7), A, 8, is_fenced=False, through_peer=True)


@pytest.mark.requirement("D9")
def test_an_administrator_keeps_one_copy() -> None:
    assert keep_only(Grant(6, BOTH, A, 7), B, 8) == Grant(7, frozenset({B}), A, 8)


@pytest.mark.requirement("D8")
def test_a_primary_whose_peer_was_promoted_drops_nothing() -> None:
    promoted = grant_writer(Grant(5, BOTH, A, 7), B, 8, is_fenced=True)
    with pytest.raises(GrantRefused, match="but b writes in generation 6"):
        drop_peer(promoted, A, 5, 8)


@pytest.mark.requirement("D3")
def test_a_copy_joins_only_in_the_generation_in_which_it_was_synchronised() -> None:
    grant = Grant(6, frozenset({A}), A, 7)
    assert join_current(grant, B, CopyRecord(6, grant.current), 7) == Grant(7, BOTH, A, 7)
    with pytest.raises(GrantRefused, match="in generation 5, now it is 6"):
        join_current(grant, B, CopyRecord(5, BOTH), 7)


def test_a_closed_disk_has_no_writer() -> None:
    assert release(Grant(5, BOTH, A, 7), A, 8) == Grant(6, BOTH, None, 8)
    with pytest.raises(GrantRefused, match="b is not the writer"):
        release(Grant(5, BOTH, A, 7), B, 8)


@pytest.mark.requirement("D2", "D8")
def test_a_late_grant_is_refused_by_the_record_of_the_copy() -> None:
    late = Grant(5, BOTH, A, 7)
    assert opened(CopyRecord(4, BOTH), late, A) == CopyRecord(5, BOTH, is_written=True)
    with pytest.raises(GrantRefused, match="generation 5 is over"):
        opened(CopyRecord(6, BOTH), late, A)
    with pytest.raises(GrantRefused, match="is granted to a"):
        opened(None, late, B)


@pytest.mark.requirement("D2", "D8", "D9")
def test_a_copy_that_was_closed_in_order_is_no_rival_and_refuses_late_starts() -> None:
    grant = Grant(5, BOTH, A, 7)
    record = closed(opened(None, grant, A), grant, A)
    with pytest.raises(GrantRefused, match="generation 5 is over"):
        opened(record, grant, A)
    for state in (grant, release(grant, A, 7)):  # the release may be lost with its master
        assert judge_return(state, A, record) is Returned.CURRENT
        again = grant_writer(state, A, 8, is_fenced=False)
        assert opened(record, again, A) == CopyRecord(again.generation, BOTH, is_written=True)
    promoted = grant_writer(release(grant, A, 7), B, 8, is_fenced=False)
    dropped = drop_peer(promoted, B, promoted.generation, 8)
    assert judge_return(dropped, A, record) is Returned.STALE


def test_closing_a_copy_that_another_node_writes_ends_no_generation() -> None:
    grant = Grant(5, BOTH, A, 7)
    assert closed(None, grant, B) == CopyRecord(5, BOTH)
    assert closed(CopyRecord(6, BOTH), grant, A) == CopyRecord(6, BOTH)


@pytest.mark.parametrize(
    ("record", "worth"),
    [
        (None, Returned.STALE),
        (CopyRecord(5, BOTH, is_written=True), Returned.STALE),
        (CopyRecord(6, BOTH), Returned.STALE),
        (CopyRecord(6, BOTH, is_written=True), Returned.SPLIT),
        (CopyRecord(7, BOTH), Returned.SPLIT),
    ],
)
@pytest.mark.requirement("D9")
def test_a_copy_that_returns(record: CopyRecord | None, worth: Returned) -> None:
    assert judge_return(Grant(6, frozenset({B}), B, 8), A, record) is worth


def test_a_current_copy_is_current_whatever_older_generation_it_recorded() -> None:
    assert judge_return(Grant(6, BOTH, B, 8), A, CopyRecord(5, BOTH)) is Returned.CURRENT


@pytest.mark.requirement("D8", "D9")
def test_a_copy_that_returned_refuses_what_was_granted_before() -> None:
    late = Grant(5, BOTH, A, 7)
    promoted = grant_writer(late, B, 8, is_fenced=True)
    record = barred(CopyRecord(4, BOTH), promoted)
    with pytest.raises(GrantRefused, match="generation 5 is over"):
        opened(record, late, A)
    assert judge_return(promoted, A, record) is Returned.STALE


def test_a_record_that_is_as_new_is_kept_when_its_node_returns() -> None:
    record = CopyRecord(6, BOTH, is_written=True)
    assert barred(record, Grant(6, frozenset({B}), B, 8)) == record
