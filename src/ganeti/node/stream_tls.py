"""The connection that carries a stream: TLS 1.3 in this program itself, for one sender and one receiver (S204).

Each end has a key that was made for this transfer, and its trust is one file with the other's
certificate: no other certificate is accepted, even one of the same authority. On the wire it is what `socat` does
with `OPENSSL` and `OPENSSL-LISTEN`; a `socat` between each end and its TLS would copy all data through two
more pipes.
"""

import contextlib
import select
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ganeti.base import tls
from ganeti.base.errors import GanetiError, HostError
from ganeti.base.terminal import say
from ganeti.node.stream_frames import Greeting, Piece

CONNECT_S = 60.0
GREETING_S = 10.0
"""How long a caller may take until it has shown its certificate and said what it wants."""
SILENCE_S = 600.0
"""Who neither sends nor takes anything for so long is given up (A61)."""
LAST_WORDS_S = 2.0
"""How long to listen for why the other end broke off, or to let it hear."""
CALLERS = 16


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files: our certificate and key, and the only certificate that the other end may have."""

    certificate: Path
    key: Path
    peer: Path


class Connection:
    """One end of a stream. What fails raises OSError or HostError."""

    def __init__(self, stream: ssl.SSLSocket, timeout_s: float) -> None:
        self._stream = stream
        self.limit(timeout_s)

    def limit(self, timeout_s: float) -> None:
        """How long the other end may say nothing."""
        self._timeout_s = timeout_s
        self._stream.settimeout(timeout_s)

    def read(self, length: int) -> bytes:
        """Up to so many bytes; b'' at the end."""
        with self._in_time():
            return self._stream.recv(length)

    def fill(self, view: memoryview) -> None:
        """Read so much; HostError if it ends before."""
        with self._in_time():
            while view:
                count = self._stream.recv_into(view)
                if not count:
                    raise HostError("the connection ended in the middle of the data")
                view = view[count:]

    def write(self, *parts: Piece) -> None:
        """Send all of it; HostError if the other end has said something, which can only be why it wants no more."""
        if self._stream.pending() or select.select([self._stream], [], [], 0)[0]:
            raise HostError("the other end broke off")
        self.tell(*parts)

    def tell(self, *parts: Piece) -> None:
        """Send all of it."""
        with self._in_time():
            for part in parts:
                self._stream.sendall(part)

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as err:
            raise HostError(f"the other end has said nothing for {self._timeout_s:g} s") from err

    def close(self) -> None:
        """End it so that the other end can hear what was said last."""
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


def connect(address: str, port: int, files: TlsFiles) -> Connection:
    """Call the receiver; HostError if it is not there, or not the one that is meant."""
    context = tls.client_context(files.certificate, files.key, files.peer)
    try:
        plain = socket.create_connection((address, port), timeout=CONNECT_S)
    except OSError as err:
        raise HostError(f"cannot connect to {address} port {port}: {err}") from err
    try:
        return Connection(_secured(context.wrap_socket(plain), files), SILENCE_S)
    except OSError as err:
        raise HostError(f"the receiver at {address} port {port} is not the one: {err}") from err


def accept(
    address: str,
    files: TlsFiles,
    *,
    wait_s: float,
    listens: Callable[[int], None],
    greet: Callable[[Connection], Greeting],
) -> tuple[Connection, Greeting]:
    """The one caller that shows the right certificate and greets well; all before it are hung up on.

    `listens` is told the port; nobody is accepted any more afterwards. HostError if it does not come in time.
    """
    context = tls.server_context(files.certificate, files.key, files.peer)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    end = time.monotonic() + wait_s
    with _server(address, family) as listener:
        listens(listener.getsockname()[1])
        while (left := end - time.monotonic()) > 0:
            listener.settimeout(left)
            try:
                plain, _ = listener.accept()
            except TimeoutError:
                break
            found: Connection | None = None
            try:
                plain.settimeout(GREETING_S)
                stream = _secured(context.wrap_socket(plain, server_side=True), files)
                found = Connection(stream, GREETING_S)
                greeting = greet(found)
            except (GanetiError, OSError) as err:
                say(f"hung up on a caller: {err}", file=sys.stderr)
                if found is not None:
                    found.close()
                continue
            found.limit(SILENCE_S)
            return found, greeting
    raise HostError(f"nobody sent the data within {wait_s:g} s")


def _server(address: str, family: socket.AddressFamily) -> socket.socket:
    try:
        return socket.create_server((address, 0), family=family, backlog=CALLERS)
    except OSError as err:
        raise HostError(f"nothing can listen for the data: {err}") from err


def _secured(stream: ssl.SSLSocket, files: TlsFiles) -> ssl.SSLSocket:
    """The connection, if the other end has the very certificate that is expected."""
    expected = ssl.PEM_cert_to_DER_cert(files.peer.read_text("ascii"))
    if stream.getpeercert(binary_form=True) != expected:
        stream.close()
        raise HostError("the other end has another certificate")
    return stream
