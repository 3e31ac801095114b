"""Bytes of transactions, member lists, ceilings and positions: there and back, or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import Refused, StoreError
from ganeti.model.objects import NodeUuid
from ganeti.store.encoding import (
    NO_DIGEST,
    MemberList,
    chain_digest,
    decode_ceiling,
    decode_transaction,
    encode_ceiling,
    encode_transaction,
    row_checksum,
)
from ganeti.store.interface import (
    MAX_EPOCH,
    MAX_SERIAL,
    Delete,
    MemberChange,
    Position,
    Put,
    Transaction,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
OPERATIONS = st.one_of(
    st.builds(Put, NAMES, NAMES, st.binary(max_size=50)), st.builds(Delete, NAMES, NAMES)
)
TRANSACTIONS = st.lists(OPERATIONS, max_size=8).map(lambda found: Transaction(tuple(found)))
POSITIONS = st.builds(Position, st.integers(0, MAX_EPOCH), st.integers(0, MAX_SERIAL))
ME, OTHER = NodeUuid("me"), NodeUuid("other")


@given(TRANSACTIONS)
def test_a_transaction_is_read_back_as_it_was(txn: Transaction) -> None:
    assert decode_transaction(encode_transaction(txn)) == txn


@pytest.mark.requirement("G3")
@given(TRANSACTIONS, st.data())
def test_a_transaction_cut_short_is_never_taken_for_the_whole(
    txn: Transaction, data: st.DataObject
) -> None:
    encoded = encode_transaction(txn)
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    try:
        found = decode_transaction(cut)
    except StoreError:
        return
    assert found.operations == txn.operations[: len(found.operations)] != txn.operations


@pytest.mark.parametrize("data", [b"", b"\x07", b"\x01\x09\0\0\0\0\0\0", b"\x01\x01\0"])
def test_unknown_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(StoreError):
        decode_transaction(data)


@pytest.mark.requirement("G2")
@given(POSITIONS, POSITIONS)
def test_positions_as_numbers_keep_their_order(one: Position, two: Position) -> None:
    assert (one < two) == (one.as_int() < two.as_int())
    assert Position.from_int(one.as_int()) == one
    assert 0 <= one.as_int() < 2**63


def test_the_digest_covers_history_position_and_content() -> None:
    base = chain_digest(NO_DIGEST, Position(1, 1), b"x")
    others = (
        chain_digest(base, Position(1, 1), b"x"),
        chain_digest(NO_DIGEST, Position(1, 2), b"x"),
        chain_digest(NO_DIGEST, Position(1, 1), b"y"),
    )
    assert base not in others
    assert chain_digest(NO_DIGEST, Position(1, 1), b"x") == base


def test_the_checksum_of_a_row_covers_its_name() -> None:
    sums = {
        row_checksum("a", "bc", b"v"),
        row_checksum("ab", "c", b"v"),
        row_checksum("a", "b", b""),
    }
    assert len(sums) == 3


def test_without_a_row_this_node_is_the_only_member() -> None:
    members = MemberList.decode(None, ME)
    assert members.voters == members.candidates == frozenset((ME,))


def test_members_change_one_node_at_a_time() -> None:
    members = MemberList.decode(None, ME)
    members = members.changed(MemberChange(OTHER, is_voter=True, is_candidate=False), ME)
    again = MemberList.decode(members.encode(), ME)
    assert (again.voters, again.candidates) == (frozenset((ME, OTHER)), frozenset((ME,)))
    gone = again.changed(MemberChange(OTHER, is_voter=False, is_candidate=False), ME)
    assert gone.voters == frozenset((ME,))
    with pytest.raises(Refused):
        members.changed(MemberChange(ME, is_voter=False, is_candidate=True), ME)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"voters": 1, "candidates": []}'])
def test_a_damaged_member_list_is_refused(data: bytes) -> None:
    with pytest.raises(StoreError, match="members"):
        MemberList.decode(data, ME)


def test_ceilings_are_read_back() -> None:
    assert decode_ceiling(None) == 0
    assert decode_ceiling(encode_ceiling(7000)) == 7000
    for damaged in (b"", b"-1", b"x"):
        with pytest.raises(StoreError):
            decode_ceiling(damaged)
