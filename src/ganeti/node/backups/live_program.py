"""The programs that bring the disks of a backup to a guest: `python -m ganeti.node.backups.live_program ORDER`.

    node of the backup: serves the disks by NBD, read-only, to the only caller with the expected certificate
    node of the guest:  connects each caller of a local socket with it

On one node, the first program serves the local socket itself. Each runs as a task of its node, and its standard input
is the listening socket. It ends when the task is ended.
"""

import contextlib
import os
import select
import socket
import ssl
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ganeti.base import tls
from ganeti.base.errors import GanetiError, HostError
from ganeti.base.files import write_atomically
from ganeti.base.terminal import say
from ganeti.images.convert import UIDS
from ganeti.model import wire
from ganeti.node.backups.directory import opened
from ganeti.node.backups.images import Chain, open_chain
from ganeti.node.backups.mount import KEPT_PIECES, drop_rights
from ganeti.node.backups.nbd_server import CONNECTIONS_LIMIT, NbdServer
from ganeti.node.carrier.callers import standard_input
from ganeti.node.carrier.connection import check_peer
from ganeti.node.carrier.order import TlsFiles
from ganeti.rpc.procedures.form import Message
from ganeti.uidpool import ReleaseUid, RequestUnusedUid

READY = ".ready"
CONNECT_S, TRY_EVERY_S = 10.0, 0.5
"""The time for one attempt to connect, and the pause before the next one."""
PATIENCE_S = 20.0
"""The time for which a caller waits for the other node; it then tries again itself."""
_CHUNK = 1 << 18


class LiveOrder(Message, frozen=True, kw_only=True):
    """The disks to serve, or the address of the program that serves them."""

    directory: str = ""
    """The directory of the instance's backups; '': connect to `address`."""
    point: str = ""
    disks: tuple[str, ...] = ()
    """UUIDs: also the names of the exports."""
    locks: str = ""
    """The directory of the locks of user ids."""
    address: str = ""
    port: int = 0
    certificate: str = ""
    """'': the callers are local."""
    key: str = ""
    peer: str = ""

    @property
    def tls(self) -> TlsFiles:
        return TlsFiles(Path(self.certificate), Path(self.key), Path(self.peer))


def serve(order: LiveOrder, listener: socket.socket, ready: Path) -> None:
    """Serve the disks until the process ends, without privileges."""
    secure = _Secure(order.tls) if order.certificate else None
    with contextlib.ExitStack() as files:
        chains = _chains(order, files)
        uid = os.getuid()
        if uid == 0:
            locked = RequestUnusedUid(UIDS, directory=Path(order.locks))
            files.callback(ReleaseUid, locked)
            uid = int(locked)
        write_atomically(ready, b"")
        drop_rights(uid)
        NbdServer(chains, lambda why: say(f"damaged: {why}", file=sys.stderr), secure).run(listener)


def _chains(order: LiveOrder, files: contextlib.ExitStack) -> Mapping[str, Chain]:
    with opened(order.directory) as directory, directory.locked(waits=True):
        contents = directory.complete()
        point = contents.find(order.point)
        return {
            disk: files.enter_context(
                open_chain(directory.descriptor, point, disk, contents.points, kept=KEPT_PIECES)
            )
            for disk in order.disks
        }


class _Secure:
    """Returns the TLS connection of a caller with the expected certificate."""

    def __init__(self, files: TlsFiles) -> None:
        self._context = tls.server_context(files.certificate, files.key, files.peer)
        self._expected = files.expected

    def __call__(self, plain: socket.socket) -> socket.socket:
        stream = self._context.wrap_socket(plain, server_side=True)
        try:
            check_peer(stream, self._expected)
        except HostError:
            stream.close()
            raise
        return stream


def relay(order: LiveOrder, listener: socket.socket, ready: Path) -> None:
    """Connect callers with the other node until the process ends."""
    files = order.tls
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

    write_atomically(ready, b"")
    while True:
        free.acquire()
        connection, _ = listener.accept()
        threading.Thread(target=serve_one, args=[connection], daemon=True).start()


def _connected(order: LiveOrder, context: ssl.SSLContext, expected: str) -> ssl.SSLSocket:
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
    file = Path(argv[0])
    try:
        order = wire.decode(file.read_bytes(), LiveOrder, what=str(file))
        work = serve if order.directory else relay
        work(order, standard_input(), file.with_suffix(READY))
    except (GanetiError, OSError) as err:
        say(str(err), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
