"""How the data of a disk travels: a greeting, frames, a digest at the end, and an answer.

    sender -> receiver   one line of JSON: the magic word, the token of this transfer, how the data is made
    sender -> receiver   frames: kind and length; data follows, or the length of zeros is meant
    sender -> receiver   a last frame with the digest of all that was sent, zeros included
    receiver -> sender   one line of JSON: the digest, once everything is synced; or an error; lines that
                         say "wait" may come before

Below lies TLS, which checks who the other end is; so a stream that is cut off, and one that is not
what it should be, are told apart here from one that is whole.
"""

import hashlib
import hmac
import json
import os
import queue
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ganeti.base.errors import HostError

MAGIC = "ganeti-stream-1"
FRAME = struct.Struct(">BI")
DATA, ZEROS, END = 1, 2, 3
DUMP = "dump"
CHUNK = 1024 * 1024
PIECE = 64 * 1024
"""Zeros are found in pieces of this size."""
LINE_LIMIT = 4096
AHEAD = 4
"""Pieces that wait for their digest at most."""

_ZEROS = bytes(CHUNK)

Read = Callable[[int], bytes]
"""Reads up to so many bytes; b'' at the end."""
Write = Callable[[bytes | memoryview], None]
"""Writes all of it."""


class Digest:
    """SHA-256 and the length of a stream; counted beside the thread that moves the data."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._waiting: queue.Queue[bytes | memoryview | None] = queue.Queue(AHEAD)
        self._thread = threading.Thread(target=self._work, name="digest", daemon=True)
        self._thread.start()
        self.length = 0

    def add(self, data: bytes | memoryview) -> None:
        """Data that nobody changes afterwards."""
        self.length += len(data)
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


def greeting(token: str, form: str, pack: str) -> bytes:
    """The sender's first line; `form` is raw, script or dump, `pack` the compression on the way."""
    said = {"magic": MAGIC, "token": token, "form": form, "pack": pack}
    return json.dumps(said).encode() + b"\n"


def check_greeting(line: bytes, token: str) -> tuple[str, str]:
    """The form and compression of who means this transfer; HostError if it does not."""
    try:
        found = json.loads(line)
    except ValueError as err:
        raise HostError("something else than a stream of Ganeti was sent") from err
    if not isinstance(found, dict) or found.get("magic") != MAGIC:
        raise HostError("something else than a stream of Ganeti was sent")
    if not hmac.compare_digest(str(found.get("token", "")).encode(), token.encode()):
        raise HostError("the sender does not know the token of this disk")
    return str(found.get("form")), str(found.get("pack"))


def check_form(theirs: tuple[str, str], form: str, unpack: str) -> None:
    """HostError unless both ends read the data alike.

    What a dump has, only the master knows, who looked at both ends.
    """
    if DUMP not in (form, theirs[0]) and theirs != (form, unpack):
        raise HostError(
            f"the sender's data is of another form ({theirs[0]:.20}, compression {theirs[1]:.20}) than what is"
            f" read here ({form}, {unpack}): both need the same scripts of the OS and the same compression"
        )


def split_zeros(data: bytes) -> Iterator[tuple[int, bytes]]:
    """`(count of zeros, b"")` and `(0, data)` in order; only whole pieces of zeros count as such."""
    view, begin, zeros = memoryview(data), 0, 0
    for at in range(0, len(data), PIECE):
        piece = view[at : at + PIECE]
        if len(piece) == PIECE and piece == memoryview(_ZEROS)[:PIECE]:
            if at > begin:
                yield 0, data[begin:at]
            zeros += PIECE
            begin = at + PIECE
        elif zeros:
            yield zeros, b""
            zeros = 0
    if zeros:
        yield zeros, b""
    if begin < len(data):
        yield 0, data if begin == 0 else data[begin:]


class FrameWriter:
    """Sends frames, and keeps the digest of what they say."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self.digest = Digest()

    def data(self, data: bytes) -> None:
        self._write(FRAME.pack(DATA, len(data)))
        self._write(data)
        self.digest.add(data)

    def zeros(self, count: int) -> None:
        while count > 0:
            part = min(count, 1 << 30)
            self._write(FRAME.pack(ZEROS, part))
            self.digest.add_zeros(part)
            count -= part

    def end(self) -> str:
        """The digest, which is sent as well."""
        digest = self.digest.finish()
        self._write(FRAME.pack(END, len(digest)) + digest.encode())
        return digest


def read_frames(read: Read, digest: Digest, limit: int) -> Iterator[tuple[int, bytes]]:
    """As `split_zeros`, until the end frame, whose digest is compared; HostError for anything else."""
    exactly = _Exactly(read)
    while True:
        kind, length = FRAME.unpack(exactly(FRAME.size))
        if kind == END:
            claimed = exactly(min(length, 64))
            if not hmac.compare_digest(claimed, digest.finish().encode()):
                raise HostError("the data arrived damaged: its digest is another one")
            return
        if kind not in (DATA, ZEROS) or (kind == DATA and not 0 < length <= CHUNK):
            raise HostError(f"a frame of kind {kind} with {length} bytes was sent")
        if digest.length + length > limit:
            raise HostError(f"more than the {limit} bytes that are possible were sent")
        if kind == ZEROS:
            digest.add_zeros(length)
            yield length, b""
        else:
            data = exactly(length)
            digest.add(data)
            yield 0, data


class _Exactly:
    """Reads as many bytes as are asked for."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def __call__(self, length: int) -> bytes:
        first = self._read(length)
        if len(first) == length:
            return first
        parts = [first]
        length -= len(first)
        while length > 0:
            part = self._read(length) if parts[-1] else b""
            if not part:
                raise HostError("the connection ended in the middle of the data")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


def read_line(read: Read) -> bytes:
    """One line of the other end."""
    line = b""
    while not line.endswith(b"\n"):
        byte = read(1)
        if not byte or len(line) >= LINE_LIMIT:
            raise HostError("the connection ended before the other end had said anything whole")
        line += byte
    return line


def answer_of(line: bytes) -> dict[str, Any]:
    """What the receiver says at the end."""
    try:
        found = json.loads(line)
    except ValueError as err:
        raise HostError("the receiver's answer cannot be read") from err
    return found if isinstance(found, dict) else {}


def reader(descriptor: int) -> Read:
    """Reads from a descriptor."""
    return lambda length: os.read(descriptor, length)


def writer(descriptor: int) -> Write:
    """Writes to a descriptor."""

    def write(data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]

    return write
