"""A client of QEMU's NBD server at a local socket: what has changed, and the data."""

import socket
import struct
from collections.abc import Iterator

from ganeti.base.errors import HostError
from ganeti.node.backups.throttle import Throttle, server_of, written_by
from ganeti.protocols import nbd
from ganeti.protocols.nbd import ChunkKind, Command, Export, Option, Reply
from ganeti.protocols.qcow2 import CLUSTER

ANSWER_S = 120.0
"""The longest time for an answer: the storage of the disk may be slow."""
STATUS_BYTES = 1 << 30
FORGET_BYTES = 4 << 20
"""Data that is read before QEMU may forget it: each time costs an answer."""
_LIMIT = 1 << 20
_DIRTY = 1
_ZERO = 2
ALLOCATION = "base:allocation"


def dirty_context(bitmap: str) -> str:
    """Return the context of a dirty bitmap."""
    return f"qemu:dirty-bitmap:{bitmap}"


class NbdReader:
    """One export, and the parts of it that `context` reports as changed, or as not zero."""

    def __init__(
        self, path: str, export: str, context: str, size: int, *, forgets: bool = False
    ) -> None:
        """With `forgets`, the export is a moment of a running guest.

        Each part is read once: QEMU drops it afterwards. Reading slows down while the guest writes.
        """
        self._throttle: Throttle | None = None
        self._context, self._size = context, size
        self._socket = socket.socket(socket.AF_UNIX)
        self._handle = 0
        self._forgotten = self._read_to = 0
        self._can_forget = forgets
        try:
            self._socket.settimeout(ANSWER_S)
            self._socket.connect(path)
            self._negotiate(export)
            if forgets:
                guest = server_of(self._socket)
                self._throttle = Throttle(lambda: written_by(guest))
        except (OSError, struct.error) as err:
            self.close()
            raise HostError(f"QEMU does not show the disk of this moment: {err}") from err
        except HostError:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()

    def _negotiate(self, export: str) -> None:
        magic, options, _flags = nbd.GREETING.unpack(self._exactly(nbd.GREETING.size))
        if (magic, options) != (nbd.GREETING_MAGIC, nbd.OPTION_MAGIC):
            raise HostError("QEMU's NBD server did not greet")
        self._send(struct.pack(">I", nbd.FIXED_NEWSTYLE | nbd.NO_ZEROES))
        self._option(Option.STRUCTURED, b"")
        name = export.encode()
        context = self._context.encode()
        words = struct.pack(">I", len(name)) + name + struct.pack(">II", 1, len(context)) + context
        if not any(kind == Reply.CONTEXT for kind, _ in self._option(Option.SET_CONTEXT, words)):
            raise HostError(f"QEMU does not report {self._context}")
        found = self._option(Option.GO, struct.pack(">I", len(name)) + name + struct.pack(">H", 0))
        exports = [
            struct.unpack_from(">QH", data, 2)
            for kind, data in found
            if kind == Reply.INFO and data[:2] == b"\0\0"
        ]
        if len(exports) != 1 or exports[0][0] < self._size:
            sizes = [size for size, _ in exports]
            raise HostError(f"QEMU shows a disk of {sizes} bytes instead of {self._size}")
        self._can_forget = self._can_forget and bool(exports[0][1] & Export.CAN_TRIM)

    def _option(self, option: int, data: bytes) -> list[tuple[int, bytes]]:
        self._send(nbd.OPTION.pack(nbd.OPTION_MAGIC, option, len(data)) + data)
        replies = list[tuple[int, bytes]]()
        while True:
            magic, asked, kind, length = nbd.OPTION_REPLY.unpack(
                self._exactly(nbd.OPTION_REPLY.size)
            )
            if magic != nbd.OPTION_REPLY_MAGIC or asked != option or length > _LIMIT:
                raise HostError("QEMU's NBD server gave no valid answer")
            reply = self._exactly(length)
            if kind & Reply.ERROR:
                raise HostError(
                    f"QEMU's NBD server refused: {reply.decode(errors='replace')[:200]}"
                )
            if kind == Reply.ACK:
                return replies
            replies.append((kind, reply))

    # --- what has changed ---

    def spans(self) -> Iterator[tuple[int, int, bool]]:
        """Yield the changed blocks, or all of the disk; whether blocks certainly read as zeros."""
        is_bitmap = self._context != ALLOCATION
        begin = end = 0
        for offset, length, flags in self._status():
            if not flags & _DIRTY if is_bitmap else flags & _ZERO:
                continue
            if offset > end:
                yield from self._spans(begin, end, offset, is_bitmap=is_bitmap)
                begin = max(end, offset - offset % CLUSTER)
            end = min(self._size, -(-(offset + length) // CLUSTER) * CLUSTER)
        yield from self._spans(begin, end, self._size, is_bitmap=is_bitmap)

    @staticmethod
    def _spans(
        begin: int, end: int, following: int, *, is_bitmap: bool
    ) -> Iterator[tuple[int, int, bool]]:
        """Yield blocks with data, and then those without before the `following` data."""
        if end > begin:
            yield begin, end - begin, False
        zeros_end = following - following % CLUSTER
        if not is_bitmap and zeros_end > end:
            yield end, zeros_end - end, True

    def _status(self) -> Iterator[tuple[int, int, int]]:
        offset = 0
        while offset < self._size:
            self._request(Command.STATUS, offset, min(STATUS_BYTES, self._size - offset))
            begin = offset
            for kind, data in self._chunks():
                if kind == ChunkKind.STATUS:
                    for length, flags in struct.iter_unpack(">II", data[4:]):
                        part = min(length, self._size - offset)
                        if part > 0:
                            yield offset, part, flags
                            offset += part
            if offset == begin:
                raise HostError("QEMU did not report what has changed")

    # --- data ---

    def read(self, offset: int, room: memoryview) -> None:
        """Fill the buffer."""
        while room:
            part = room if self._throttle is None else room[: self._throttle.begin()]
            self._read(offset, part)
            if self._throttle is not None:
                self._throttle.end()
            room, offset = room[len(part) :], offset + len(part)

    def _read(self, offset: int, room: memoryview) -> None:
        if offset != self._read_to or offset - self._forgotten >= FORGET_BYTES:
            self._forget()
            self._forgotten = offset
        self._request(Command.READ, offset, len(room))
        filled = 0
        for kind, data in self._chunks(room, offset):
            if kind == ChunkKind.DATA:
                filled += len(data)
            elif kind == ChunkKind.HOLE:
                at, length = struct.unpack(">QI", data)
                room[at - offset : at - offset + length] = bytes(length)
                filled += length
        if filled != len(room):
            raise HostError(f"QEMU sent {filled} bytes instead of {len(room)}")
        self._read_to = offset + len(room)

    def _forget(self) -> None:
        """Let QEMU drop what was read: the guest's later writes there need no copy of the old content.

        A refusal costs only time and space.
        """
        length = self._read_to - self._forgotten
        if not self._can_forget or length <= 0:
            return
        self._request(Command.TRIM, self._forgotten, length)
        magic, error, handle = nbd.SIMPLE.unpack(self._exactly(nbd.SIMPLE.size))
        if magic == nbd.SIMPLE_MAGIC and handle == self._handle:
            self._can_forget = not error
            return
        # An error may come as a chunk of a structured answer, which is longer.
        head = nbd.SIMPLE.pack(magic, error, handle) + self._exactly(
            nbd.CHUNK.size - nbd.SIMPLE.size
        )
        magic, flags, kind, handle, length = nbd.CHUNK.unpack(head)
        if (
            (magic, handle) != (nbd.CHUNK_MAGIC, self._handle)
            or length > _LIMIT
            or not flags & nbd.CHUNK_DONE
        ):
            raise HostError("QEMU's NBD server gave no valid answer")
        self._exactly(length)
        self._can_forget = not kind & ChunkKind.ERROR

    def _request(self, kind: int, offset: int, length: int) -> None:
        self._handle += 1
        self._send(nbd.REQUEST.pack(nbd.REQUEST_MAGIC, 0, kind, self._handle, offset, length))

    def _chunks(
        self, room: memoryview | None = None, begin: int = 0
    ) -> Iterator[tuple[int, bytes | memoryview]]:
        """Yield the chunks of the answer; data is in the buffer."""
        while True:
            magic, flags, kind, handle, length = nbd.CHUNK.unpack(self._exactly(nbd.CHUNK.size))
            if magic != nbd.CHUNK_MAGIC or handle != self._handle:
                raise HostError("QEMU's NBD server gave no valid answer")
            if kind == ChunkKind.DATA and room is not None:
                (at,) = struct.unpack(">Q", self._exactly(8))
                part = room[at - begin : at - begin + length - 8]
                if at < begin or len(part) != length - 8:
                    raise HostError("QEMU sent data that was not asked for")
                self._fill(part)
                yield kind, part
            else:
                if length > _LIMIT:
                    raise HostError("QEMU's NBD server gave no valid answer")
                data = self._exactly(length)
                if kind & ChunkKind.ERROR:
                    raise HostError(
                        "QEMU has lost the disk's old content of this moment: the guest overwrote more than the node"
                        " could keep, or the disk failed"
                    )
                yield kind, data
            if flags & nbd.CHUNK_DONE:
                return

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as err:
            raise HostError(f"QEMU's NBD server: {err}") from err

    def _exactly(self, length: int) -> bytes:
        room = bytearray(length)
        self._fill(memoryview(room))
        return bytes(room)

    def _fill(self, room: memoryview) -> None:
        while room:
            try:
                count = self._socket.recv_into(room)
            except OSError as err:
                raise HostError(f"QEMU's NBD server: {err}") from err
            if not count:
                raise HostError("QEMU has ended, or no longer shows the disk of this moment")
            room = room[count:]
