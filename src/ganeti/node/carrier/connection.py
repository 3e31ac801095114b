"""The connection that carries a stream.

TLS 1.3 in this program itself, between one sender and one receiver (S204).

Each end has a key that was made for this transfer, and accepts only the peer's certificate, not
others of the same authority. On the wire it is compatible with `OPENSSL` and `OPENSSL-LISTEN` of
`socat`; a `socat` between each end and its TLS would copy all data through two more pipes.
"""

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator

from ganeti.base import tls
from ganeti.base.errors import HostError
from ganeti.node.carrier.callers import Expected, listen
from ganeti.node.carrier.frames import Piece
from ganeti.node.carrier.greeting import Greeting
from ganeti.node.carrier.order import TlsFiles

CONNECT_S = 60.0
_SMALL = 4096
SILENCE_S = 600.0
"""Time without any traffic after which the transfer is abandoned (A61)."""
LAST_WORDS_S = 2.0
"""Time to wait for the peer's reason after it disconnected, or for the peer to read ours."""


class BrokenOff(HostError):
    """The connection failed, or the peer has ended it and may have sent a reason."""


class Connection:
    """One end of a stream. Raises BrokenOff if the peer, or the way to it, fails."""

    def __init__(self, stream: ssl.SSLSocket, timeout_s: float) -> None:
        self._stream = stream
        self.limit(timeout_s)

    def limit(self, timeout_s: float) -> None:
        """Set how long the peer may be silent."""
        self._timeout_s = timeout_s
        self._stream.settimeout(timeout_s)

    def read(self, length: int) -> bytes:
        """Return up to so many bytes; b'' at the end."""
        with self._in_time():
            return self._stream.recv(length)

    def fill(self, view: memoryview) -> None:
        """Read until the room is full; BrokenOff if the data ends before."""
        with self._in_time():
            while view:
                count = self._stream.recv_into(view)
                if not count:
                    raise BrokenOff("the connection ended in the middle of the data")
                view = view[count:]

    def fill_to_end(self, view: memoryview) -> int:
        """Read as much as fits, or the rest.

        Return the number of bytes. BrokenOff if the data was truncated.
        """
        filled = 0
        with self._in_time():
            while filled < len(view):
                try:
                    count = self._stream.recv_into(view[filled:])
                except ssl.SSLEOFError as err:
                    raise BrokenOff("the connection ended in the middle of the data") from err
                if not count:
                    break
                filled += count
        return filled

    def finish(self) -> None:
        """Finish sending, and return when the peer has finished too; BrokenOff if it ended earlier."""
        try:
            with self._in_time():
                self._stream.unwrap()
        except BrokenOff as err:
            raise BrokenOff(
                f"the peer closed the connection before it had read everything: {err.message}"
            ) from err

    def write(self, *parts: Piece) -> None:
        """Send everything.

        BrokenOff if the peer has sent something, which can only be the reason of a failure.
        """
        if self._stream.pending() or select.select([self._stream], [], [], 0)[0]:
            raise BrokenOff("the peer closed the connection")
        self.tell(*parts)

    def tell(self, *parts: Piece) -> None:
        """Send all of it; small parts together, since each write is a record of TLS and a packet."""
        with self._in_time():
            if sum(map(len, parts)) <= _SMALL:
                parts = (b"".join(parts),)
            for part in parts:
                self._stream.sendall(part)

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as err:
            raise BrokenOff(f"the peer has sent nothing for {self._timeout_s:g} s") from err
        except OSError as err:  # includes ssl.SSLError
            raise BrokenOff(str(err)) from err

    def close(self) -> None:
        """Close so that the peer can still read the last message."""
        with contextlib.suppress(OSError), self._stream:
            self._stream.settimeout(LAST_WORDS_S)
            plain = self._stream.detach()
            with socket.socket(fileno=plain) as rest:
                rest.shutdown(socket.SHUT_WR)
                end = time.monotonic() + LAST_WORDS_S
                while (left := end - time.monotonic()) > 0:
                    rest.settimeout(left)
                    if not rest.recv(65536):
                        break


def connect(
    address: str, port: int, files: TlsFiles, *, silence_s: float = SILENCE_S
) -> Connection:
    """Connect to the receiver; HostError if it does not answer or has an unexpected certificate."""
    context = tls.client_context(files.certificate, files.key, files.peer)
    try:
        plain = socket.create_connection((address, port), timeout=CONNECT_S)
    except OSError as err:
        raise HostError(f"cannot connect to {address} port {port}: {err}") from err
    try:
        stream = context.wrap_socket(plain)
    except ssl.SSLError as err:
        raise HostError(
            f"the receiver at {address} port {port} is not the expected one: {err}"
        ) from err
    except OSError as err:
        raise HostError(f"the receiver at {address} port {port} has ended: {err}") from err
    try:
        check_peer(stream, files.expected)
    except HostError:
        stream.close()
        raise
    return Connection(stream, silence_s)


def accept(
    listener: socket.socket,
    files: TlsFiles,
    *,
    wait_s: float,
    greet: Callable[[bytes], Greeting],
    length: int = 0,
    silence_s: float = SILENCE_S,
) -> tuple[Connection, Greeting]:
    """Return the one caller with the expected certificate and greeting; disconnect all others.

    A greeting has `length` bytes; 0: it is a line. No caller is accepted afterwards. HostError if
    none arrives in time.
    """
    context = tls.server_context(files.certificate, files.key, files.peer)
    expected = Expected(context, lambda stream: check_peer(stream, files.expected), greet, length)
    found = listen(listener, expected, wait_s=wait_s)
    if found is None:
        raise HostError(f"no sender delivered the data within {wait_s:g} s")
    return Connection(found[0], silence_s), found[1]


def check_peer(stream: ssl.SSLSocket, expected: str) -> None:
    """Raise HostError unless the peer has exactly the certificate with the `expected` fingerprint."""
    der = stream.getpeercert(binary_form=True)
    if der is None or tls.fingerprint_of_der(der) != expected:
        raise HostError("the peer has a different certificate")
