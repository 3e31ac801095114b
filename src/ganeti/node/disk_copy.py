"""The program that copies one disk to another node: `python -m ganeti.node.disk_copy ROLE ORDER`.

It runs as a task of the node (`tasks.py`), so it outlives the node daemon. The receiver's standard input is the
port where it is called. The order is a file for root's eyes only. Both ends show their node's certificate and accept exactly the other's; a token
binds the connection to this one disk.

    sender -> receiver   token and size, one line of JSON
    sender -> receiver   frames: offset, length, kind; raw or compressed data; zeros are left out
    sender -> receiver   a last frame with the digest of all data and where it belongs
    receiver -> sender   one line of JSON: the digest, once everything is synced; or an error
"""

import hashlib
import hmac
import json
import os
import socket
import ssl
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ganeti.base import tls
from ganeti.base.errors import GanetiError, HostError
from ganeti.base.files import write_atomically
from ganeti.base.terminal import say
from ganeti.model import wire
from ganeti.node.first_words import Expected, listen, read_line, standard_input
from ganeti.node.progress_file import ProgressFile

SEND, RECEIVE = "send", "receive"
CHUNK = 1024 * 1024
PIECE = 64 * 1024
"""Zeros are found in pieces of this size."""
FRAME = struct.Struct(">QIB")
END, RAW, DEFLATED = 0, 1, 2
SILENCE_S = 30.0
"""A peer that says nothing for so long is gone."""
WAIT_S = 60.0
"""How long the receiver waits for its sender."""
COMPRESSION = {"none": 0, "gzip-fast": 1, "gzip": 6, "gzip-slow": 9}
"""Names as Ganeti has them; the numbers are zlib's levels."""


class CopyOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What one end has to do; results are written to files beside the order."""

    path: str
    size: int
    """Bytes"""
    address: str
    port: int = 0
    peer: str
    token: str
    compress: str = "none"
    leaves_out_zeros: bool = True
    """The receiver's disk reads as zeros where nothing is written."""
    certificate: str
    key: str
    authority: str


def main(argv: list[str]) -> int:
    """Carry one order out; the exit status says whether it succeeded, standard error why not."""
    role, file = argv[0], Path(argv[1])
    try:
        order = wire.decode(file.read_bytes(), CopyOrder, what=str(file))
        result = send(order, file) if role == SEND else receive(order)
        write_atomically(file.with_suffix(".result"), json.dumps(result).encode())
    except (GanetiError, OSError, ValueError, zlib.error) as err:
        say(err, file=sys.stderr)
        return 1
    return 0


# --- the sender ------------------------------------------------------------------------------


def send(order: CopyOrder, file: Path) -> dict[str, Any]:
    """Send the disk; returns once the receiver has all of it on its disk."""
    begun = time.monotonic()
    context = tls.client_context(Path(order.certificate), Path(order.key), Path(order.authority))
    with (
        socket.create_connection((order.address, order.port), timeout=SILENCE_S) as plain,
        context.wrap_socket(plain) as stream,
        Path(order.path).open("rb", buffering=0) as disk,
    ):
        _check_peer(stream, order.peer)
        stream.sendall(wire.encode({"token": order.token, "size": order.size}) + b"\n")
        try:
            final, sent = _send_all(order, file, stream, disk)
        except OSError as err:
            why = _reason(stream) or str(err)
            raise HostError(f"the receiver broke off: {why}") from err
        answer = _answer(stream)
    if answer.get("sha256") != final:
        raise HostError(f"the receiver refused the data: {answer.get('error', 'another digest')}")
    return {"data_bytes": sent, "seconds": time.monotonic() - begun, "sha256": final}


def _send_all(
    order: CopyOrder, file: Path, stream: ssl.SSLSocket, disk: BinaryIO
) -> tuple[str, int]:
    """Send all frames; their digest and how many bytes of data they held."""
    digest, sent, sparse = hashlib.sha256(), 0, order.leaves_out_zeros
    come = ProgressFile(file, order.size)
    for offset, data in pieces(disk, order.size, leaves_out_zeros=sparse, at=come.at):
        digest.update(_place(offset, data))
        stream.sendall(frame(offset, data, COMPRESSION[order.compress]))
        sent += len(data)
    final = digest.hexdigest()
    stream.sendall(FRAME.pack(0, len(final), END) + final.encode())
    return final, sent


def _reason(stream: ssl.SSLSocket) -> str:
    """Why the receiver hung up, if it said so."""
    try:
        return str(_answer(stream).get("error", ""))
    except (GanetiError, OSError, ValueError):
        return ""


def pieces(
    disk: BinaryIO, size: int, *, leaves_out_zeros: bool, at: Callable[[int], None]
) -> Iterator[tuple[int, bytes]]:
    """Offset and data of everything on the disk, in order; holes and zeros only if they are wanted.

    `at` gets each position, also where nothing is sent.
    """
    offset = 0
    while offset < size:
        at(offset)
        if leaves_out_zeros:
            try:
                offset = os.lseek(disk.fileno(), offset, os.SEEK_DATA)
            except OSError:  # nothing but holes from here on
                at(size)
                return
            offset -= offset % PIECE
        length = min(CHUNK, size - offset)
        data = _read_exactly(disk, offset, length)
        if leaves_out_zeros:
            yield from _without_zeros(offset, data)
        else:
            yield offset, data
        offset += length


def _without_zeros(offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    zeros = bytes(PIECE)
    begin: int | None = None
    for at in range(0, len(data), PIECE):
        piece = data[at : at + PIECE]
        is_zero = piece == zeros[: len(piece)]
        if is_zero and begin is not None:
            yield offset + begin, data[begin:at]
            begin = None
        elif not is_zero and begin is None:
            begin = at
    if begin is not None:
        yield offset + begin, data[begin:]


def _read_exactly(disk: BinaryIO, offset: int, length: int) -> bytes:
    parts: list[bytes] = []
    while length > 0:
        part = os.pread(disk.fileno(), length, offset)
        if not part:
            raise HostError(f"the disk ends at {offset}: it is smaller than it should be")
        parts.append(part)
        offset, length = offset + len(part), length - len(part)
    return b"".join(parts)


def frame(offset: int, data: bytes, level: int) -> bytes:
    """One frame of data, compressed if that makes it smaller."""
    packed = zlib.compress(data, level) if level else data
    if len(packed) < len(data):
        return FRAME.pack(offset, len(packed), DEFLATED) + packed
    return FRAME.pack(offset, len(data), RAW) + data


def _answer(stream: ssl.SSLSocket) -> dict[str, Any]:
    """What the receiver says at the end; it may have much to sync."""
    stream.settimeout(SILENCE_S * 10)
    return _object(read_line(stream.recv))


# --- the receiver ----------------------------------------------------------------------------


def receive(order: CopyOrder) -> dict[str, Any]:
    """Wait for the sender, write what it sends, and sync it; then tell the sender."""
    with _expected(order) as stream:
        try:
            digest = _write_all(order, stream)
        except (GanetiError, OSError, ValueError, zlib.error) as err:
            # The sender may be busy sending: it hears the reason when it asks for the answer.
            _tell(stream, {"error": str(err)})
            raise
        _tell(stream, {"sha256": digest})
    return {"sha256": digest}


def _expected(order: CopyOrder) -> ssl.SSLSocket:
    """The connection of the one sender that is meant; others are hung up on."""
    expected = Expected(
        tls.server_context(Path(order.certificate), Path(order.key), Path(order.authority)),
        lambda stream: _check_peer(stream, order.peer),
        lambda line: _check_greeting(_object(line), order),
    )
    found = listen(standard_input(), expected, wait_s=WAIT_S)
    if found is None:
        raise HostError(f"nobody sent the disk within {WAIT_S:g} s")
    found[0].settimeout(SILENCE_S)
    return found[0]


def _check_greeting(greeting: dict[str, Any], order: CopyOrder) -> None:
    token = str(greeting.get("token", ""))
    if not hmac.compare_digest(token.encode(), order.token.encode()):
        raise HostError("it does not know the token of this disk")
    if greeting.get("size") != order.size:
        raise HostError(f"its disk has {greeting.get('size')!r:.40} bytes, this one {order.size}")


def _write_all(order: CopyOrder, stream: ssl.SSLSocket) -> str:
    digest = hashlib.sha256()
    with Path(order.path).open("r+b", buffering=0) as disk:
        while True:
            offset, length, kind = FRAME.unpack(_exactly(stream, FRAME.size))
            if kind == END:
                claimed = _exactly(stream, min(length, digest.digest_size * 2)).decode("ascii")
                break
            data = unpacked(kind, length, _exactly(stream, _bounded(length)))
            if offset + len(data) > order.size:
                raise HostError("data beyond the end of the disk was sent")
            digest.update(_place(offset, data))
            _write_exactly(disk, offset, data)
        os.fsync(disk.fileno())
    if not hmac.compare_digest(claimed.encode(), digest.hexdigest().encode()):
        raise HostError("the data arrived damaged: its digest is another one")
    return digest.hexdigest()


def unpacked(kind: int, length: int, payload: bytes) -> bytes:
    """The data of one frame; HostError if it is none or too much."""
    if kind == RAW:
        return payload
    if kind != DEFLATED:
        raise HostError(f"a frame of unknown kind {kind} with {length} bytes was sent")
    reader = zlib.decompressobj()
    data = reader.decompress(payload, CHUNK)
    if not reader.eof:
        raise HostError(f"a frame holds more than {CHUNK} bytes, or not all of them")
    return data


def _bounded(length: int) -> int:
    if not 0 < length <= CHUNK:
        raise HostError(f"a frame of {length} bytes was sent; {CHUNK} are allowed")
    return length


def _write_exactly(disk: BinaryIO, offset: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(disk.fileno(), view, offset)
        view, offset = view[written:], offset + written


def _tell(stream: ssl.SSLSocket, answer: dict[str, Any]) -> None:
    stream.sendall(wire.encode(answer) + b"\n")


# --- both ------------------------------------------------------------------------------------


def _check_peer(stream: ssl.SSLSocket, fingerprint: str) -> None:
    der = stream.getpeercert(binary_form=True)
    if der is None or tls.fingerprint_of_der(der) != fingerprint:
        raise HostError("the other end's certificate is not that of the expected node")


def _place(offset: int, data: bytes) -> bytes:
    return struct.pack(">QI", offset, len(data)) + data


def _exactly(stream: ssl.SSLSocket, length: int) -> bytes:
    parts: list[bytes] = []
    while length > 0:
        part = stream.recv(min(length, PIECE))
        if not part:
            raise HostError("the connection ended in the middle of the disk")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _object(line: bytes) -> dict[str, Any]:
    found = json.loads(line)
    if not isinstance(found, dict):
        raise HostError("something else than an object was sent")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
