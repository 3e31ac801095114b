"""The form of a history file: a header, then rings of slots of fixed size. Pure.

A slot has the number of its step (seconds since the epoch, divided by the ring's step), a checksum and the values. The
number determines the slot's position. So a slot is valid only if it has the expected number and the right checksum:
torn, damaged and overwritten slots, and those of a clock that was wrong, count as missing.
"""

import itertools
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ganeti.model.figures import FIGURES, NAMES, RINGS, UNKNOWN, Ring, Values

HEADER_BYTES = 128
_HEADER = struct.Struct("<8sI64s")
_MAGIC = b"GNTHIST1"
_SUM = struct.Struct("<I")
_NUMBER = struct.Struct("<I")
_VALUES = struct.Struct(f"<{len(FIGURES)}f")
SLOT_BYTES = _NUMBER.size + _SUM.size + _VALUES.size
_LAYOUT = zlib.crc32(repr((NAMES, tuple(RINGS))).encode())
"""Another version's figures or rings have another value."""
LARGEST = 2.0**127
"""The largest value of a slot."""
_NUMBERS = 2**32
END_S = _NUMBERS * RINGS[0].step
"""The time from which on a history records nothing."""

FILE_BYTES = HEADER_BYTES + sum(ring.slots for ring in RINGS) * SLOT_BYTES


class Row(NamedTuple):
    """The values of one step, which begins at `time` (seconds since the epoch)."""

    time: int
    values: Values


class Piece(NamedTuple):
    """Adjacent slots of a file: an offset in bytes, and the numbers of their steps."""

    offset: int
    first: int
    slots: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.slots * SLOT_BYTES


def header(name: str) -> bytes:
    """Return the header of the file of an object."""
    start = _HEADER.pack(_MAGIC, _LAYOUT, name.encode("ascii"))
    return (start + _SUM.pack(zlib.crc32(start))).ljust(HEADER_BYTES, b"\0")


def slot(number: int, values: Values) -> bytes:
    """Return a slot."""
    packed = _VALUES.pack(*(_stored(one) for one in values))
    start = _NUMBER.pack(number)
    return start + _SUM.pack(zlib.crc32(packed, zlib.crc32(start))) + packed


def _stored(value: float | None) -> float:
    return math.nan if value is None or not 0 <= value <= LARGEST else value


def offset(ring: Ring, number: int) -> int:
    """Return the position of a step in the file."""
    return _begin(ring) + number % ring.slots * SLOT_BYTES


def _begin(ring: Ring) -> int:
    before = RINGS[: RINGS.index(ring)]
    return HEADER_BYTES + sum(one.slots for one in before) * SLOT_BYTES


def pieces(ring: Ring, first: int, last: int) -> Iterator[Piece]:
    """Return the parts of the file with the steps `first` to `last`, of which a ring has at most `slots`."""
    number = max(first, last - ring.slots + 1, 0)
    while number <= min(last, _NUMBERS - 1):
        count = min(last - number + 1, ring.slots - number % ring.slots)
        yield Piece(offset(ring, number), number, count)
        number += count


def rows(ring: Ring, piece: Piece, content: bytes) -> Iterator[Row]:
    """Return the valid slots of a piece; `content` may be shorter than the piece."""
    for index in range(len(content) // SLOT_BYTES):
        part = content[index * SLOT_BYTES : (index + 1) * SLOT_BYTES]
        found = _read_slot(part, piece.first + index)
        if found is not None:
            yield Row((piece.first + index) * ring.step, found)


def _read_slot(part: bytes, number: int) -> Values | None:
    if _NUMBER.unpack_from(part)[0] != number:
        return None
    packed = part[_NUMBER.size + _SUM.size :]
    if _SUM.unpack_from(part, _NUMBER.size)[0] != zlib.crc32(
        packed, zlib.crc32(part[: _NUMBER.size])
    ):
        return None
    return tuple(one if 0 <= one <= LARGEST else None for one in _VALUES.unpack(packed))


def newest(content: bytes, now: float) -> int | None:
    """Return the time of the last valid slot of the finest ring that is not later than `now`; None without one.

    `content` is the whole ring.
    """
    ring = RINGS[0]
    latest = None
    for index in range(len(content) // SLOT_BYTES):
        part = content[index * SLOT_BYTES : (index + 1) * SLOT_BYTES]
        number = _NUMBER.unpack_from(part)[0]
        at = number * ring.step
        if number % ring.slots == index and at <= now and (latest is None or at > latest):
            latest = at if _read_slot(part, number) is not None else latest
    return latest


class Due(NamedTuple):
    """A step of a coarse ring that has ended: it becomes the mean of the steps `first` to `last` of the finer ring."""

    ring: Ring
    number: int
    finer: Ring
    first: int
    last: int


def due(before: float, now: float) -> Iterator[Due]:
    """Return the steps that have ended between two times of recording, the finest first.

    After a clock step backward, these are the steps of `before`, too.
    """
    for finer, ring in itertools.pairwise(RINGS):
        number = int(before // ring.step)
        if number != int(now // ring.step):
            ratio = ring.step // finer.step
            yield Due(ring, number, finer, number * ratio, (number + 1) * ratio - 1)


def mean(of: Sequence[Values]) -> Values:
    """Return the mean of each figure over the values that are known."""
    if not of:
        return UNKNOWN
    return tuple(
        _mean([one for one in column if one is not None]) for column in zip(*of, strict=True)
    )


def _mean(known: Sequence[float]) -> float | None:
    return math.fsum(known) / len(known) if known else None
