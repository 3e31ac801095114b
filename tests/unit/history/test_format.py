"""The form of history files."""

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.history import format as form
from ganeti.model.figures import FIGURES, RINGS, UNKNOWN, Values

NOW = 1_800_000_000
FINE, MINUTES, QUARTERS = RINGS

figures = st.none() | st.floats(0, form.LARGEST, width=32)
rows_of_values = st.tuples(*[figures] * len(FIGURES))


def all_of(value: float | None) -> Values:
    return (value,) * len(FIGURES)


def whole_ring(slots: dict[int, bytes]) -> bytes:
    """Return the content of the finest ring with these slots by the numbers of their steps."""
    content = bytearray(FINE.slots * form.SLOT_BYTES)
    begin = form.offset(FINE, 0)
    for number, slot in slots.items():
        at = form.offset(FINE, number) - begin
        content[at : at + form.SLOT_BYTES] = slot
    return bytes(content)


def read(content: bytes, first: int, last: int) -> list[form.Row]:
    begin = form.offset(FINE, 0)
    return [
        row
        for piece in form.pieces(FINE, first, last)
        for row in form.rows(FINE, piece, content[piece.offset - begin :][: piece.size])
    ]


def test_a_file_has_the_size_that_the_manual_names() -> None:
    assert form.FILE_BYTES < 336 * 1024
    assert [(ring.step, ring.lasts_s) for ring in RINGS] == [
        (5, 3600), (60, 2 * 86_400), (900, 31 * 86_400),
    ]  # fmt: skip
    assert all(coarse.step % fine.step == 0 for fine, coarse in itertools.pairwise(RINGS))


@given(number=st.integers(0, 2**32 - 1), values=rows_of_values)
def test_a_slot_is_read_as_it_was_written(number: int, values: Values) -> None:
    piece = form.Piece(0, number, 1)
    [row] = form.rows(FINE, piece, form.slot(number, values))
    assert row == (number * FINE.step, values)


@given(
    values=rows_of_values,
    at=st.integers(0, form.SLOT_BYTES - 1),
    bit=st.integers(0, 7),
)
def test_a_slot_with_any_wrong_bit_is_missing(values: Values, at: int, bit: int) -> None:
    slot = bytearray(form.slot(7, values))
    slot[at] ^= 1 << bit
    assert list(form.rows(FINE, form.Piece(0, 7, 1), bytes(slot))) == []


@given(new=rows_of_values, old=rows_of_values, cut=st.integers(1, form.SLOT_BYTES - 1))
def test_a_torn_slot_is_missing_or_one_of_the_two(new: Values, old: Values, cut: int) -> None:
    """The older slot has the same position, one turn of the ring before."""
    number = NOW // FINE.step
    before, after = form.slot(number - FINE.slots, old), form.slot(number, new)
    torn = after[:cut] + before[cut:]
    found = list(form.rows(FINE, form.Piece(0, number, 1), torn))
    assert [row.values for row in found] in ([], [new])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 1e39])
def test_an_impossible_value_is_unknown(value: float) -> None:
    [row] = form.rows(FINE, form.Piece(0, 7, 1), form.slot(7, all_of(value)))
    assert row.values == UNKNOWN


@given(content=st.binary(max_size=20 * form.SLOT_BYTES), first=st.integers(0, 2**32))
def test_any_content_is_read_without_an_error(content: bytes, first: int) -> None:
    piece = form.Piece(0, first, 20)
    for row in form.rows(FINE, piece, content):
        assert len(row.values) == len(FIGURES)
    form.newest(content, NOW)


@given(
    numbers=st.sets(st.integers(0, 3 * FINE.slots), max_size=60),
    first=st.integers(0, 3 * FINE.slots),
    length=st.integers(0, 2 * FINE.slots),
)
def test_a_ring_has_the_newest_steps_of_a_range(numbers: set[int], first: int, length: int) -> None:
    """Later steps overwrite earlier ones of the same position; a reader gets none of another turn."""
    content = whole_ring({number: form.slot(number, all_of(1.0)) for number in sorted(numbers)})
    last = first + length
    overwritten = {
        one
        for one in numbers
        if any(other > one and (other - one) % FINE.slots == 0 for other in numbers)
    }
    expected = [
        one
        for one in sorted(numbers - overwritten)
        if max(first, last - FINE.slots + 1) <= one <= last
    ]
    assert [row.time // FINE.step for row in read(content, first, last)] == expected


@given(first=st.integers(0, 2**32), length=st.integers(0, 5000))
def test_the_pieces_of_a_range_stay_in_the_ring(first: int, length: int) -> None:
    for ring in RINGS:
        begin, end = form.offset(ring, 0), form.offset(ring, ring.slots - 1) + form.SLOT_BYTES
        found = list(form.pieces(ring, first, first + length))
        assert sum(piece.slots for piece in found) <= ring.slots
        assert all(begin <= one.offset and one.offset + one.size <= end for one in found)
        assert end <= form.FILE_BYTES


def test_the_newest_step_ignores_the_future_and_wrong_positions() -> None:
    number = NOW // FINE.step
    slots = {one: form.slot(one, all_of(1.0)) for one in (number - 3, number + 5)}
    slots[number - 1] = form.slot(number - 1 + FINE.slots, all_of(1.0))  # a clock that was wrong
    slots[number - 2] = form.slot(number - 2 - 1, all_of(1.0))  # at a wrong position
    content = whole_ring(slots)
    assert form.newest(content, NOW) == (number - 3) * FINE.step
    assert form.newest(b"", NOW) is None


def test_a_step_is_due_when_the_next_one_begins() -> None:
    assert list(form.due(NOW, NOW + 5)) == []
    [minute] = form.due(NOW + 55, NOW + 60)
    assert (minute.ring, minute.number) == (MINUTES, NOW // 60)
    assert (minute.finer, minute.last - minute.first) == (FINE, 11)
    both = list(form.due(NOW + 895, NOW + 900))
    assert [(one.ring, one.number, one.finer) for one in both] == [
        (MINUTES, NOW // 60 + 14, FINE),
        (QUARTERS, NOW // 900, MINUTES),
    ]


@given(before=st.floats(0, 2**33), now=st.floats(0, 2**33))
def test_only_the_steps_of_the_former_time_are_due(before: float, now: float) -> None:
    for one in form.due(before, now):
        assert one.number == before // one.ring.step != now // one.ring.step
        assert one.first * one.finer.step == one.number * one.ring.step


@given(st.lists(rows_of_values, min_size=1, max_size=20))
def test_a_mean_is_between_the_known_values(of: Sequence[Values]) -> None:
    for found, column in zip(form.mean(of), zip(*of, strict=True), strict=True):
        known = [one for one in column if one is not None]
        if known:
            assert found is not None
            assert min(known) * (1 - 1e-9) <= found <= max(known) * (1 + 1e-9)
        else:
            assert found is None
    assert form.mean([]) == UNKNOWN


@pytest.mark.parametrize("other", [("b" * 36), "node"])
def test_the_header_names_the_object(other: str) -> None:
    assert len(form.header(other)) == form.HEADER_BYTES
    assert form.header(other) != form.header("a" * 36)
