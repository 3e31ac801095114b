"""Serves the disks of a backup by NBD, read-only; each piece is checked before a byte of it is sent.

A connection has a thread, and one at a time reads from the images. A client that sends nonsense loses its connection.
Clients that ask for structured replies are told which parts of a disk read as zeros (`base:allocation`).
"""

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from ganeti.base.errors import GanetiError
from ganeti.node.backups.images import Chain
from ganeti.protocols import nbd
from ganeti.protocols.nbd import ChunkKind, Command, Export, Info, Option, Reply

CONNECTIONS_LIMIT = 16
KEPT_PIECES = 16
"""Pieces of each image in memory: file systems read the same ones again and again."""
OPTION_BYTES = 4096
"""The longest data of an option: the name of an export, and a list of numbers."""
READ_BYTES = 32 << 20
"""The longest read, and the longest write that is refused by an answer."""
STATUS_EXTENTS = 64
"""The most parts of a disk in one answer about zeros; clients ask again for the rest."""
ALLOCATION = b"base:allocation"
FLAGS = Export.HAS_FLAGS | Export.READ_ONLY | Export.MANY_CONNECTIONS
_PREFERRED = 64 << 10
_ZEROES = 124
_CONTEXT_ID = 1
_HOLE_OF_ZEROS = 3
_GREETING_S = 30.0
"""The time for a client to secure its connection."""

log = logging.getLogger(__name__)


class NonsenseError(Exception):
    """The client does not speak NBD."""


Result = TypeVar("Result")
Secure = Callable[[socket.socket], socket.socket]


class NbdServer:
    """Exports by name; `report` gets what is wrong with an image.

    `secure` returns the encrypted connection of a new one; HostError or OSError if the client is not the expected one.
    """

    def __init__(
        self,
        exports: Mapping[str, Chain],
        report: Callable[[str], None],
        secure: Secure | None = None,
    ) -> None:
        self._exports, self._report, self._secure = exports, report, secure
        self._reading = threading.Lock()
        self._free = threading.Semaphore(CONNECTIONS_LIMIT)

    def run(self, listener: socket.socket) -> None:
        """Serve clients until the socket is shut down."""
        with contextlib.suppress(OSError):
            while True:
                self._free.acquire()
                connection, _ = listener.accept()
                threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                if self._secure is None:
                    self._serve_client(connection)
                else:
                    connection.settimeout(_GREETING_S)
                    with self._secure(connection) as secured:
                        secured.settimeout(None)
                        self._serve_client(secured)
        except (NonsenseError, GanetiError, OSError) as err:
            log.info("a client has lost its connection: %s", err)
        finally:
            self._free.release()

    def _serve_client(self, connection: socket.socket) -> None:
        _Client(connection, self._exports, self._use).serve()

    def _use(self, work: Callable[[], Result]) -> Result | None:
        """Return the result of reading images; None if one is damaged there."""
        with self._reading:
            try:
                return work()
            except GanetiError as err:
                self._report(str(err))
                return None


class Use(Protocol):
    """Reads images by a function."""

    def __call__(self, work: Callable[[], Result], /) -> Result | None: ...


class _Client:
    """One connection."""

    def __init__(
        self,
        connection: socket.socket,
        exports: Mapping[str, Chain],
        use: Use,
    ) -> None:
        self._connection, self._exports, self._use = connection, exports, use
        self._is_structured = False

    def serve(self) -> None:
        flags = nbd.FIXED_NEWSTYLE | nbd.NO_ZEROES
        self._send(nbd.GREETING.pack(nbd.GREETING_MAGIC, nbd.OPTION_MAGIC, flags))
        (of_client,) = struct.unpack(">I", self._exactly(4))
        if of_client & ~flags:
            raise NonsenseError(f"flags {of_client:#x} are unknown")
        chain = self._negotiated(with_zeroes=not of_client & nbd.NO_ZEROES)
        while chain is not None and self._answered(chain):
            pass

    # --- options ---

    def _negotiated(self, *, with_zeroes: bool) -> Chain | None:
        """Return the export that the client has chosen; None if it chooses none."""
        while True:
            magic, option, length = nbd.OPTION.unpack(self._exactly(nbd.OPTION.size))
            if magic != nbd.OPTION_MAGIC or length > OPTION_BYTES:
                raise NonsenseError("an option is invalid or too long")
            data = self._exactly(length)
            if option == Option.EXPORT_NAME:
                chain = self._export(data)
                if chain is not None:
                    self._send(struct.pack(">QH", chain.size, FLAGS) + bytes(with_zeroes * _ZEROES))
                return chain
            if option == Option.ABORT:
                self._reply(option, Reply.ACK)
                return None
            chain = self._handled(option, data)
            if chain is not None and option == Option.GO:
                return chain

    def _handled(self, option: int, data: bytes) -> Chain | None:
        """Answer an option; return the export that it names."""
        if option in (Option.INFO, Option.GO):
            return self._told(option, data)
        if option == Option.LIST:
            for name in self._exports:
                text = name.encode()
                self._reply(option, Reply.SERVER, struct.pack(">I", len(text)) + text)
            self._reply(option, Reply.ACK)
        elif option == Option.STRUCTURED:
            self._is_structured = True
            self._reply(option, Reply.ACK)
        elif option == Option.SET_CONTEXT:
            self._set_context(option, data)
        else:
            self._reply(option, Reply.UNSUPPORTED)
        return None

    def _set_context(self, option: int, data: bytes) -> None:
        """Accept the only known context; other ones are ignored, as the protocol says."""
        length = int.from_bytes(data[:4], "big")
        if not self._is_structured or len(data) < length + 8:
            self._reply(option, Reply.INVALID)
            return
        if self._export(data[4 : 4 + length]) is None:
            self._reply(option, Reply.UNKNOWN)
            return
        at = 4 + length
        (count,) = struct.unpack_from(">I", data, at)
        at += 4
        for _ in range(count):
            size = int.from_bytes(data[at : at + 4], "big")
            if data[at + 4 : at + 4 + size] == ALLOCATION:
                self._reply(option, Reply.CONTEXT, struct.pack(">I", _CONTEXT_ID) + ALLOCATION)
                break
            at += 4 + size
            if at > len(data):
                break
        self._reply(option, Reply.ACK)

    def _told(self, option: int, data: bytes) -> Chain | None:
        """Tell what an export is; return it if it exists."""
        length = int.from_bytes(data[:4], "big")
        if len(data) < length + 6:
            self._reply(option, Reply.INVALID)
            return None
        chain = self._export(data[4 : 4 + length])
        if chain is None:
            names = ", ".join(self._exports)
            self._reply(option, Reply.UNKNOWN, f"the exports are {names}".encode())
            return None
        self._reply(option, Reply.INFO, struct.pack(">HQH", Info.EXPORT, chain.size, FLAGS))
        sizes = struct.pack(">HIII", Info.BLOCK_SIZE, 1, _PREFERRED, READ_BYTES)
        self._reply(option, Reply.INFO, sizes)
        self._reply(option, Reply.ACK)
        return chain

    def _export(self, name: bytes) -> Chain | None:
        """Return an export; the empty name is the first one."""
        first = next(iter(self._exports.values()))
        return self._exports.get(name.decode(errors="replace")) if name else first

    def _reply(self, option: int, kind: int, data: bytes = b"") -> None:
        self._send(nbd.OPTION_REPLY.pack(nbd.OPTION_REPLY_MAGIC, option, kind, len(data)) + data)

    # --- data ---

    def _answered(self, chain: Chain) -> bool:
        """Answer one request; False at the end."""
        magic, flags, command, handle, offset, length = nbd.REQUEST.unpack(
            self._exactly(nbd.REQUEST.size)
        )
        if magic != nbd.REQUEST_MAGIC:
            raise NonsenseError("a request is invalid")
        if command == Command.DISCONNECT:
            return False
        if command == Command.WRITE:
            self._discard(length)
        error = self._error(chain, command, offset, length)
        if not error and command == Command.READ:
            error = self._read(chain, handle, offset, length)
        elif not error:
            limit = 1 if flags & nbd.ONE_EXTENT else STATUS_EXTENTS
            error = self._tell_status(chain, handle, (offset, length, limit))
        if error and self._is_structured:
            self._chunk(ChunkKind.FAILED, handle, struct.pack(">IH", error, 0))
        elif error:
            self._send(nbd.SIMPLE.pack(nbd.SIMPLE_MAGIC, error, handle))
        return True

    def _error(self, chain: Chain, command: int, offset: int, length: int) -> int:
        """Return why a request is refused, or 0."""
        limits = {Command.READ: READ_BYTES}
        if self._is_structured:
            limits[Command.STATUS] = chain.size
        if command not in limits:
            return nbd.EPERM
        is_inside = 0 < length <= limits[Command(command)] and offset + length <= chain.size
        return 0 if is_inside else nbd.EINVAL

    def _read(self, chain: Chain, handle: int, offset: int, length: int) -> int:
        data = self._use(lambda: chain.read(offset, length))
        if data is None:
            return nbd.EIO
        if self._is_structured:
            self._chunk(ChunkKind.DATA, handle, struct.pack(">Q", offset) + data)
        else:
            self._send(nbd.SIMPLE.pack(nbd.SIMPLE_MAGIC, 0, handle) + data)
        return 0

    def _tell_status(self, chain: Chain, handle: int, where: tuple[int, int, int]) -> int:
        status = self._use(lambda: chain.status(*where))
        if status is None:
            return nbd.EIO
        self._chunk(ChunkKind.STATUS, handle, _status_words(status))
        return 0

    def _chunk(self, kind: ChunkKind, handle: int, data: bytes) -> None:
        """Send the only chunk of an answer."""
        head = nbd.CHUNK.pack(nbd.CHUNK_MAGIC, nbd.CHUNK_DONE, kind, handle, len(data))
        self._send(head + data)

    def _discard(self, length: int) -> None:
        if length > READ_BYTES:
            raise NonsenseError("a write is too long")
        while length:
            length -= len(self._exactly(min(length, _PREFERRED)))

    def _send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def _exactly(self, length: int) -> bytes:
        found = b""
        while len(found) < length:
            part = self._connection.recv(length - len(found))
            if not part:
                raise NonsenseError("the client has hung up")
            found += part
        return found


def _status_words(status: list[tuple[int, bool]]) -> bytes:
    found = struct.pack(">I", _CONTEXT_ID)
    for length, is_zero in status:
        found += struct.pack(">II", length, _HOLE_OF_ZEROS if is_zero else 0)
    return found
