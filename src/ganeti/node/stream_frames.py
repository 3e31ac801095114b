"""How the data of a disk travels: a greeting, frames, a seal at the end, and an answer.

    sender -> receiver   one line of JSON: the magic word, the token of this transfer, how the data is made, a new key
    sender -> receiver   frames: kind and length; data follows, or the length of zeros is meant
    sender -> receiver   a last frame with the seal of all frames: their Poly1305 by that key
    receiver -> sender   one line of JSON: the seal, once everything is synced; or an error; lines that
                         say "wait" may come before

Below lies TLS, which checks who the other end is and that nobody changes anything; so the seal is for what may go
wrong on either side of it, and a stream that is cut off, and one that is not what it should be, are told apart
here from one that is whole.

Pieces of data lie in memory that is used again (`buffers`).
"""

import fcntl
import hashlib
import hmac
import itertools
import json
import os
import queue
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.poly1305 import Poly1305

from ganeti.base.errors import HostError

MAGIC = "ganeti-stream-2"
FRAME = struct.Struct(">BI")
DATA, ZEROS, END = 1, 2, 3
KEY_BYTES, SEAL_BYTES = 32, 16
DUMP = "dump"
CHUNK = 256 * 1024
"""At most so much is in a frame. All pieces that are on their way in a program fit into a processor's own cache."""
PIECE = 64 * 1024
"""Zeros are found in pieces of this size."""
AHEAD = 4
"""Pieces that wait for their digest at most."""

_ZEROS = bytes(CHUNK)

Piece = bytes | memoryview
Fill = Callable[[memoryview], None]
"""Fills all of it; HostError if the data ends before."""
Write = Callable[..., None]
"""Writes all of the pieces it is given."""


def buffers() -> Iterator[memoryview]:
    """Room for a piece each, again and again; one is used anew when no digest can need it any more."""
    return itertools.cycle([memoryview(bytearray(CHUNK)) for _ in range(AHEAD + 3)])


class Digest:
    """SHA-256 and the length of a stream; counted beside the thread that moves the data."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._waiting: queue.Queue[Piece | None] = queue.Queue(AHEAD)
        self._thread = threading.Thread(target=self._work, name="digest", daemon=True)
        self._thread.start()

    def add(self, data: Piece) -> None:
        """Data that nobody changes before AHEAD + 1 more were added."""
        self._waiting.put(data)

    def add_zeros(self, count: int) -> None:
        while count > 0:
            part = min(count, CHUNK)
            self.add(_ZEROS if part == CHUNK else memoryview(_ZEROS)[:part])
            count -= part

    def finish(self) -> str:
        """The digest of everything; nothing can be added any more."""
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()
        return self._hash.hexdigest()

    def _work(self) -> None:
        while (data := self._waiting.get()) is not None:
            self._hash.update(data)


class Greeting(NamedTuple):
    """What the sender says first; `form` is raw, script or dump, `pack` the compression on the way."""

    form: str
    pack: str
    key: bytes
    """For the seal; used for one stream only. Empty: there is none, the receiver has the digest of the data."""


def greeting(token: str, said: Greeting) -> bytes:
    """The sender's first line."""
    line = {
        "magic": MAGIC,
        "token": token,
        "form": said.form,
        "pack": said.pack,
        "key": said.key.hex(),
    }
    return json.dumps(line).encode() + b"\n"


def check_greeting(line: bytes, token: str, *, has_digest: bool) -> Greeting:
    """What who means this transfer says; HostError if it does not, or has no seal where nothing else tells what is whole."""
    try:
        found = json.loads(line)
    except ValueError as err:
        raise HostError("something else than a stream of Ganeti was sent") from err
    if not isinstance(found, dict) or found.get("magic") != MAGIC:
        raise HostError("something else than a stream of Ganeti was sent")
    if not hmac.compare_digest(str(found.get("token", "")).encode(), token.encode()):
        raise HostError("the sender does not know the token of this disk")
    try:
        key = bytes.fromhex(str(found.get("key")))
    except ValueError:
        key = b"none"
    if len(key) != KEY_BYTES and (key or not has_digest):
        raise HostError("the sender names no key for its seal")
    return Greeting(str(found.get("form")), str(found.get("pack")), key)


def check_form(theirs: Greeting, form: str, unpack: str) -> None:
    """HostError unless both ends read the data alike.

    What a dump has, only the master knows, who looked at both ends.
    """
    if DUMP not in (form, theirs.form) and (theirs.form, theirs.pack) != (form, unpack):
        raise HostError(
            f"the sender's data is of another form ({theirs.form:.20}, compression {theirs.pack:.20}) than what is"
            f" read here ({form}, {unpack}): both need the same scripts of the OS and the same compression"
        )


def split_zeros(data: Piece) -> Iterator[tuple[int, Piece]]:
    """`(count of zeros, b"")` and `(0, data)` in order; only whole pieces of zeros count as such."""
    view, begin, zeros = memoryview(data), 0, 0
    for at in range(0, len(view), PIECE):
        if _is_zeros(view, at):
            if at > begin:
                yield 0, view[begin:at]
            zeros += PIECE
            begin = at + PIECE
        elif zeros:
            yield zeros, b""
            zeros = 0
    if zeros:
        yield zeros, b""
    if begin < len(view):
        yield 0, view[begin:]


def _is_zeros(view: memoryview, at: int) -> bool:
    """Whether a whole piece of zeros begins there; most that are none are told by one byte."""
    last = at + PIECE - 1
    if last >= len(view) or view[at] or view[last]:
        return False
    return bytes(view[at : last + 1]) == _ZEROS[:PIECE]


class _Seal:
    """Poly1305 of all frames; what it is asked for costs a fraction of a digest. Without a key it is nothing."""

    def __init__(self, key: bytes) -> None:
        self._made = Poly1305(key) if key else None

    def add(self, *parts: Piece) -> None:
        if self._made is not None:
            for part in parts:
                self._made.update(part)

    def finish(self) -> bytes:
        return bytes(SEAL_BYTES) if self._made is None else self._made.finalize()


class FrameWriter:
    """Sends frames, and keeps their seal; `length` is what they have said so far, in bytes."""

    def __init__(self, write: Write, key: bytes) -> None:
        self._write = write
        self._seal = _Seal(key)
        self.length = 0

    def data(self, data: Piece) -> None:
        header = FRAME.pack(DATA, len(data))
        self._seal.add(header, data)
        self._write(header, data)
        self.length += len(data)

    def zeros(self, count: int) -> None:
        while count > 0:
            part = min(count, 1 << 30)
            header = FRAME.pack(ZEROS, part)
            self._seal.add(header)
            self._write(header)
            self.length += part
            count -= part

    def end(self) -> str:
        """The seal, which is sent as well."""
        seal = self._seal.finish()
        self._write(FRAME.pack(END, len(seal)) + seal)
        return seal.hex()


class FrameReader:
    """Reads frames; `length` is what they have said so far, in bytes, `seal` is there once all is read."""

    def __init__(self, fill: Fill, key: bytes, limit: int) -> None:
        self._fill, self._limit = fill, limit
        self._seal = _Seal(key)
        self.length = 0
        self.seal = ""

    def pieces(self) -> Iterator[tuple[int, Piece]]:
        """As `split_zeros`, until the end frame, whose seal is compared; HostError for anything else."""
        rooms = buffers()
        header = memoryview(bytearray(FRAME.size))
        while True:
            self._fill(header)
            kind, length = FRAME.unpack(header)
            if kind == END and length == SEAL_BYTES:
                self._finish()
                return
            if kind not in (DATA, ZEROS) or not length or (kind == DATA and length > CHUNK):
                raise HostError(f"a frame of kind {kind} with {length} bytes was sent")
            self.length += length
            if self.length > self._limit:
                raise HostError(f"more than the {self._limit} bytes that are possible were sent")
            self._seal.add(header)
            if kind == ZEROS:
                yield length, b""
            else:
                data = next(rooms)[:length]
                self._fill(data)
                self._seal.add(data)
                yield 0, data

    def _finish(self) -> None:
        claimed = memoryview(bytearray(SEAL_BYTES))
        self._fill(claimed)
        seal = self._seal.finish()
        if not hmac.compare_digest(claimed, seal):
            raise HostError("the data arrived damaged: its seal is another one")
        self.seal = seal.hex()


def answer_of(line: bytes) -> dict[str, Any]:
    """What the receiver says at the end."""
    try:
        found = json.loads(line)
    except ValueError as err:
        raise HostError("the receiver's answer cannot be read") from err
    return found if isinstance(found, dict) else {}


def fill(descriptor: int, view: memoryview, wait: Callable[[], bool]) -> int:
    """Read as much as fits, or all there is before the end: how many bytes.

    `wait` returns when there is more to read, or False if nothing will come.
    """
    filled = 0
    while filled < len(view) and wait():
        count = os.readv(descriptor, [view[filled:]])
        if not count:
            break
        filled += count
    return filled


def writer(descriptor: int) -> Write:
    """Writes to a descriptor."""

    def write(*parts: Piece) -> None:
        views = [memoryview(part) for part in parts]
        while views:
            written = os.writev(descriptor, views)
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if written:
                views[0] = views[0][written:]

    return write


def widen(descriptor: int) -> None:
    """Let a pipe hold a whole piece."""
    with suppress(OSError):  # a user may have no more pages for pipes
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, CHUNK)
