"""Reads the pieces of images before they are needed: in threads, past the page cache, compared with their digests.

A backup is read once, so the page cache would only cost: of the processor for each GiB, ext4 took 1.3 s through it and
0.1 s past it. Buffers are used again, because the kernel takes 0.9 s to clear new ones.
"""

import mmap
import os
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from ganeti.node.backups.images import Extent, ImageReader
from ganeti.node.carrier.frames import AHEAD
from ganeti.node.carrier.pieces import reopened_direct
from ganeti.protocols.backup_manifest import PIECE

_THREADS, _PIECES_AHEAD = 3, 3
SMALL = 16 * PIECE
"""Length of an image that is read through the page cache: waiting for the disk would take longer."""
_WAITING = 1024
"""Maximum number of parts that wait for their pieces; more would only be small ones."""
_BEHIND = AHEAD + 3
"""Pieces whose content must not change after they were yielded: digests are computed later."""

Part = TypeVar("Part")
Result = TypeVar("Result")
_Key = tuple[int, int]
_Act = Callable[[Part, memoryview], Result]


@dataclass(frozen=True)
class Wanted(Generic[Part]):
    """A part of an image, or one of none."""

    part: Part
    layer: ImageReader | None = None
    piece: int = 0


def wanted(extents: Iterable[Extent]) -> Iterator[Wanted[Extent]]:
    """Yield extents with the pieces of their data."""
    for one in extents:
        yield Wanted(one, one.layer, one.at // PIECE)


def content(one: Extent, piece: memoryview) -> memoryview:
    """Return the data of an extent."""
    begin = one.at % PIECE
    return piece[begin : begin + one.length]


def read_ahead(
    parts: Iterable[Wanted[Part]], layers: Sequence[ImageReader], act: _Act[Part, Result]
) -> Iterator[tuple[Part, "Future[Result] | None"]]:
    """Yield the parts in order, and what `act`, called in a thread, returns for the content of their pieces.

    That is an error of the future if the piece is damaged. A piece stays unchanged until _BEHIND more were yielded.
    """
    waiting = deque[tuple[Part, Future[Result] | None, _Key | None]]()
    keys = Counter[_Key]()
    with _Pieces(layers) as pieces:
        for one in parts:
            key, found = None, None
            if one.layer is not None:
                key = (pieces.number(one.layer), one.piece)
                found = pieces.submit(key, one.part, act)
                keys[key] += 1
            waiting.append((one.part, found, key))
            while len(keys) > _PIECES_AHEAD or len(waiting) > _WAITING:
                part, found, key = waiting.popleft()
                if key is not None:
                    keys[key] -= 1
                    if not keys[key]:
                        del keys[key]
                yield part, found
        for part, found, _ in waiting:
            yield part, found


def all_pieces(layer: ImageReader) -> "Iterator[tuple[int, Future[memoryview]]]":
    """Yield the numbers of an image's pieces; a future has the content, or the error of a damaged one."""
    parts = (Wanted(number, layer, number) for number in range(len(layer.image.pieces)))
    for number, found in read_ahead(parts, [layer], lambda _number, piece: piece):
        assert found is not None  # noqa: S101 - each part has a layer
        yield number, found


class _Pieces:
    """The pieces that were requested last, in buffers that are used again."""

    def __init__(self, layers: Sequence[ImageReader]) -> None:
        self._layers = layers
        self._numbers = {id(layer): number for number, layer in enumerate(layers)}
        self._direct = [
            reopened_direct(layer.descriptor, os.O_RDONLY) if layer.image.length > SMALL else None
            for layer in layers
        ]
        self._kept: OrderedDict[_Key, tuple[Future[memoryview], mmap.mmap]] = OrderedDict()
        self._limit = _BEHIND + _PIECES_AHEAD + 1
        self._pool = ThreadPoolExecutor(_THREADS, "pieces")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for descriptor in self._direct:
            if descriptor is not None:
                os.close(descriptor)

    def number(self, layer: ImageReader) -> int:
        return self._numbers[id(layer)]

    def submit(self, key: _Key, part: Part, act: _Act[Part, Result]) -> "Future[Result]":
        piece = self._piece(key)
        # A thread may wait for a piece: another one, which was submitted before, is reading it.
        return self._pool.submit(lambda: act(part, piece.result()))

    def _piece(self, key: _Key) -> "Future[memoryview]":
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][0]
        if len(self._kept) < self._limit:
            room = mmap.mmap(-1, PIECE)
        else:
            _, (former, room) = self._kept.popitem(last=False)
            former.exception()  # it was yielded, so it is complete
        number, piece = key
        found = self._pool.submit(self._layers[number].load, piece, room, self._direct[number])
        self._kept[key] = found, room
        return found
