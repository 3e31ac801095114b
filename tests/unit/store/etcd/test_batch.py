"""Transactions as requests of etcd: within its limits, collapsed, and in a chain."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import Refused, StoreError
from ganeti.store.encoding import chain_digest, encode_transaction
from ganeti.store.etcd.batch import MAX_BYTES, MAX_REQUESTS, Batch
from ganeti.store.etcd.keys import Head, Keys, LeaderKey, decode_epoch, opened, sealed
from ganeti.store.interface import (
    MAX_OPERATIONS,
    MAX_TRANSACTION_BYTES,
    Delete,
    Position,
    Put,
    Row,
    Transaction,
    check_transaction,
)

KEYS = Keys("11111111-2222-3333-4444-555555555555")


def test_the_largest_transaction_fits_alone() -> None:
    size = MAX_TRANSACTION_BYTES // MAX_OPERATIONS - 40
    rows = tuple(Put("instance", f"{n:030}", bytes(size)) for n in range(MAX_OPERATIONS))
    check_transaction(Transaction(rows))
    batch = Batch.begin(KEYS, Head())
    assert batch.add(1, Transaction(rows))
    assert len(batch.requests()) <= MAX_REQUESTS
    # In bytes, as etcd counts them: not as base64.
    assert sum(len(msgspec.msgpack.encode(one)) for one in batch.requests()) <= 1.5 * (1 << 20)
    assert not batch.add(1, Transaction(rows))


def test_a_batch_takes_as_many_operations_as_etcd() -> None:
    batch = Batch.begin(KEYS, Head())
    taken = 0
    while batch.add(1, Transaction((Put("job", f"{taken}", b""), Put("job", "same", b"")))):
        taken += 1
    assert len(batch.requests()) == MAX_REQUESTS
    assert taken == MAX_REQUESTS - 2
    assert batch.positions == [Position(1, serial) for serial in range(1, taken + 1)]


def test_many_bytes_end_a_batch() -> None:
    batch = Batch.begin(KEYS, Head())
    big = Transaction((Put("job", "a", bytes(MAX_BYTES // 2)),))
    assert batch.add(1, big)
    assert not batch.add(1, big)
    assert batch.positions == [Position(1, 1)]


def test_the_last_operation_of_a_key_counts() -> None:
    batch = Batch.begin(KEYS, Head())
    batch.add(3, Transaction((Put("a", "k", b"1"), Delete("a", "k"), Put("b", "k", b"2"))))
    batch.add(3, Transaction((Delete("b", "k"), Put("a", "k", b"3"))))
    done = {fields["key"]: request for request in batch.requests() for fields in request.values()}
    assert len(done) == 3
    value = done[KEYS.row("a", "k")]["request_put"]["value"]
    assert opened("a", "k", value) == b"3"
    assert "request_delete_range" in done[KEYS.row("b", "k")]


def test_the_digest_is_that_of_the_embedded_store() -> None:
    txn = Transaction((Put("a", "k", b"1"),))
    batch = Batch.begin(KEYS, Head(Position(2, 9), bytes(16)))
    batch.add(2, txn)
    batch.add(3, Transaction())
    first = chain_digest(bytes(16), Position(2, 10), encode_transaction(txn))
    second = chain_digest(first, Position(3, 1), encode_transaction(Transaction()))
    assert batch.after == Head(Position(3, 1), second)


@pytest.mark.requirement("G3")
def test_a_damaged_row_is_refused() -> None:
    data = sealed("instance", "web1", b"content")
    assert KEYS.decode_row(KEYS.row("instance", "web1"), data) == Row(
        "instance", "web1", b"content"
    )
    for place in range(len(data)):
        wrong = data[:place] + bytes((data[place] ^ 1,)) + data[place + 1 :]
        with pytest.raises(StoreError, match="damaged"):
            KEYS.decode_row(KEYS.row("instance", "web1"), wrong)
    with pytest.raises(StoreError, match="damaged"):
        KEYS.decode_row(KEYS.row("instance", "web2"), data)


@given(st.lists(st.tuples(st.text(st.characters(exclude_characters="\0")), st.text()), unique=True))
def test_rows_are_ordered_as_their_names(names: list[tuple[str, str]]) -> None:
    try:
        keys = {KEYS.row(kind, key): (kind, key) for kind, key in names}
    except UnicodeEncodeError:
        return  # refused by the size of the transaction before
    assert [keys[key] for key in sorted(keys)] == sorted(names)


def test_a_kind_with_a_zero_byte_is_refused() -> None:
    with pytest.raises(Refused, match="zero byte"):
        Batch.begin(KEYS, Head()).add(1, Transaction((Put("a\0b", "k", b""),)))


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"format":2}', b'{"format":1}'])
def test_what_is_no_head_is_refused(data: bytes) -> None:
    with pytest.raises(StoreError):
        Head.decode(data)
    with pytest.raises(StoreError):
        LeaderKey.decode(data)
    with pytest.raises(StoreError):
        decode_epoch(data + b"-")


def test_heads_and_leaders_come_back() -> None:
    head = Head(Position(7, 12), bytes(range(16)))
    assert Head.decode(head.encode()) == head
    assert Head.decode(None) == Head()
    assert decode_epoch(None) == 0
