"""The program that serves the disks of a backup to a guest: `python -m ganeti.node.backups.live_program ORDER`.

It serves NBD, read-only, to the only caller with the expected certificate (`live_relay.py` on the guest's node), or
at the local socket of a guest of its own node. It is a task, its standard input is the listening socket, and it ends
when the task is ended.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ganeti.base import tls
from ganeti.base.errors import GanetiError, HostError
from ganeti.base.files import write_atomically
from ganeti.base.terminal import say
from ganeti.model import wire
from ganeti.node.backups.directory import opened
from ganeti.node.backups.images import Chain, open_chain
from ganeti.node.backups.key_pipe import received_keys
from ganeti.node.backups.nbd_server import KEPT_PIECES, NbdServer
from ganeti.node.backups.rights import drop_rights
from ganeti.node.carrier.callers import standard_input
from ganeti.node.carrier.connection import check_peer
from ganeti.node.carrier.order import TlsFiles
from ganeti.uidpool import ReleaseUid, RequestUnusedUid

READY = ".ready"


class LiveOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The disks to serve."""

    directory: str
    """The directory of the instance's backups."""
    point: str
    disks: tuple[str, ...]
    """UUIDs: also the names of the exports."""
    locks: str
    """The directory of the locks of user ids."""
    first_uid: int
    end_uid: int
    """The user ids of which the program uses an unused one."""
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
            locked = RequestUnusedUid(
                range(order.first_uid, order.end_uid), directory=Path(order.locks)
            )
            files.callback(ReleaseUid, locked)
            uid = int(locked)
        write_atomically(ready, b"")
        drop_rights(uid)
        NbdServer(chains, lambda why: say(f"damaged: {why}", file=sys.stderr), secure).run(listener)


def _chains(order: LiveOrder, files: contextlib.ExitStack) -> Mapping[str, Chain]:
    keys = received_keys()
    with opened(order.directory, keys) as directory, directory.locked(waits=True):
        contents = directory.complete()
        point = contents.find(order.point)
        return {
            disk: files.enter_context(
                open_chain(
                    directory.descriptor, point, disk, contents.points, keys=keys, kept=KEPT_PIECES
                )
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


def main(argv: Sequence[str]) -> int:
    """Carry out an order; return only after a failure."""
    file = Path(argv[0])
    try:
        order = wire.decode(file.read_bytes(), LiveOrder, what=str(file))
        serve(order, standard_input(), file.with_suffix(READY))
    except (GanetiError, OSError) as err:
        say(str(err), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
