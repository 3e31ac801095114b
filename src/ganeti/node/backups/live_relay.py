"""The program that connects a guest with its backup: `python -m ganeti.node.backups.live_relay ORDER`.

It connects each caller of a local socket with `live_program.py` on the node of the backup, by TLS. It is a task, its
standard input is the listening socket, and it ends when the task is ended. A boot waits for it, so it imports little.
"""

import contextlib
import select
import socket
import ssl
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ganeti.base import tls
from ganeti.base.errors import GanetiError, HostError
from ganeti.base.terminal import say
from ganeti.node.carrier.callers import standard_input
from ganeti.node.carrier.connection import check_peer
from ganeti.node.carrier.order import TlsFiles

CONNECTIONS_LIMIT = 64
CONNECT_S, TRY_EVERY_S = 10.0, 0.5
"""The time for one attempt to connect, and the pause before the next one."""
PATIENCE_S = 20.0
"""The time for which a caller waits for the other node; it then tries again itself."""
_CHUNK = 1 << 18


class RelayOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The address of the program that serves the backup, and the paths of the TLS files."""

    address: str
    port: int
    certificate: str
    key: str
    peer: str


def relay(order: RelayOrder, listener: socket.socket) -> None:
    """Connect callers with the other node until the process ends."""
    files = TlsFiles(Path(order.certificate), Path(order.key), Path(order.peer))
    context, expected = tls.client_context(files.certificate, files.key, files.peer), files.expected
    free = threading.Semaphore(CONNECTIONS_LIMIT)

    def serve_one(here: socket.socket) -> None:
        try:
            with here, _connected(order, context, expected) as there:
                _join(here, there)
        except (GanetiError, OSError) as err:
            say(f"{order.address} port {order.port}: {err}", file=sys.stderr)
        finally:
            free.release()

    while True:
        free.acquire()
        connection, _ = listener.accept()
        threading.Thread(target=serve_one, args=[connection], daemon=True).start()


def _connected(order: RelayOrder, context: ssl.SSLContext, expected: str) -> ssl.SSLSocket:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            plain = socket.create_connection((order.address, order.port), timeout=CONNECT_S)
            stream = context.wrap_socket(plain)
            check_peer(stream, expected)
            stream.settimeout(None)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(TRY_EVERY_S)
        else:
            return stream


def _join(here: socket.socket, there: ssl.SSLSocket) -> None:
    """Pass on what either side sends, until one of them ends; one thread, because TLS allows no more."""
    for one in (here, there):
        one.setblocking(False)
    outward = inward = memoryview(b"")
    while True:
        reading = [one for one, waiting in ((here, outward), (there, inward)) if not waiting]
        writing = [one for one, waiting in ((there, outward), (here, inward)) if waiting]
        has_more = not inward and there.pending()
        select.select(reading, writing, [], 0 if has_more else None)
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            outward = _passed(here, there, outward)
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            inward = _passed(there, here, inward)


def _passed(source: socket.socket, target: socket.socket, waiting: memoryview) -> memoryview:
    """Send what waits, or read more; return what waits then. HostError at the end."""
    if waiting:
        return waiting[target.send(waiting) :]
    data = source.recv(_CHUNK)
    if not data:
        raise HostError("the connection has ended")
    return memoryview(data)


def main(argv: Sequence[str]) -> int:
    """Carry out an order; return only after a failure."""
    try:
        order = msgspec.json.decode(Path(argv[0]).read_bytes(), type=RelayOrder)
        relay(order, standard_input())
    except (GanetiError, OSError, msgspec.MsgspecError) as err:
        say(str(err), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
