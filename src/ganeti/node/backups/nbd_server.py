"""Serves the disks of a backup by NBD at a local socket, read-only; each piece is checked before a byte of it is sent.

A connection has a thread, and one at a time reads from the images. A client that sends nonsense loses its connection.
"""

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Callable, Mapping

from ganeti.base.errors import GanetiError
from ganeti.node.backups.images import Chain
from ganeti.protocols import nbd
from ganeti.protocols.nbd import Command, Export, Info, Option, Reply

CONNECTIONS_LIMIT = 16
OPTION_BYTES = 4096
"""The longest data of an option: the name of an export, and a list of numbers."""
READ_BYTES = 32 << 20
"""The longest read, and the longest write that is refused by an answer."""
FLAGS = Export.HAS_FLAGS | Export.READ_ONLY | Export.MANY_CONNECTIONS
_PREFERRED = 64 << 10
_ZEROES = 124

log = logging.getLogger(__name__)


class NonsenseError(Exception):
    """The client does not speak NBD."""


class NbdServer:
    """Exports by name; `report` gets what is wrong with an image."""

    def __init__(self, exports: Mapping[str, Chain], report: Callable[[str], None]) -> None:
        self._exports, self._report = exports, report
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
                _Client(connection, self._exports, self._read).serve()
        except (NonsenseError, OSError) as err:
            log.info("a client has lost its connection: %s", err)
        finally:
            self._free.release()

    def _read(self, chain: Chain, offset: int, length: int) -> bytes | None:
        """Return bytes of a disk; None if an image is damaged there."""
        with self._reading:
            try:
                return chain.read(offset, length)
            except GanetiError as err:
                self._report(str(err))
                return None


Read = Callable[[Chain, int, int], bytes | None]


class _Client:
    """One connection."""

    def __init__(self, connection: socket.socket, exports: Mapping[str, Chain], read: Read) -> None:
        self._connection, self._exports, self._read = connection, exports, read

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
            if option == Option.LIST:
                for name in self._exports:
                    text = name.encode()
                    self._reply(option, Reply.SERVER, struct.pack(">I", len(text)) + text)
                self._reply(option, Reply.ACK)
            elif option in (Option.INFO, Option.GO):
                chain = self._told(option, data)
                if chain is not None and option == Option.GO:
                    return chain
            else:
                self._reply(option, Reply.UNSUPPORTED)

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
        magic, _flags, command, handle, offset, length = nbd.REQUEST.unpack(
            self._exactly(nbd.REQUEST.size)
        )
        if magic != nbd.REQUEST_MAGIC:
            raise NonsenseError("a request is invalid")
        if command == Command.DISCONNECT:
            return False
        data, error = b"", nbd.EPERM
        if command == Command.WRITE:
            self._discard(length)
        elif command == Command.READ:
            found = None
            error = nbd.EINVAL
            if 0 < length <= READ_BYTES and offset + length <= chain.size:
                found, error = self._read(chain, offset, length), nbd.EIO
            if found is not None:
                data, error = found, 0
        self._send(nbd.SIMPLE.pack(nbd.SIMPLE_MAGIC, error, handle) + data)
        return True

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
