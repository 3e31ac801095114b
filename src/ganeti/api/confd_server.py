"""confd's socket: answers valid datagrams, and ignores all others (S54, G25).

An answer uses only data in memory: it neither waits, writes, nor calls another process (S63, S64).
"""

import contextlib
import logging
import socket
from collections.abc import Callable, Sequence

from ganeti.confd.answers import answer
from ganeti.confd.facts import ClusterCopy
from ganeti.protocols.confd import (
    PACKET_LIMIT,
    WINDOW_S,
    ErrorDetail,
    Status,
    pack_answer,
    parse_request,
)

AT_ONCE = 256
"""Number of datagrams that are read before the loop gets a turn."""
REPEATS_LIMIT = 100
"""Maximum answers to the same datagram in a second, so that a replayed one causes no stream of answers."""
REMEMBERED = 50_000
RECEIVE_BYTES = 8 << 20
_SO_RCVBUFFORCE = 33

log = logging.getLogger(__name__)


def bound_socket(address: str, port: int) -> socket.socket:
    """Return the socket at an address, '' for all; OSError. As root it gets buffers for a flood."""
    where = address or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")  # noqa: S104 - every holder of the key may ask
    family = socket.AF_INET6 if ":" in where else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        if family == socket.AF_INET6 and not address:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        for option in (socket.SO_RCVBUF, _SO_RCVBUFFORCE):
            with contextlib.suppress(OSError):
                opened.setsockopt(socket.SOL_SOCKET, option, RECEIVE_BYTES)
        opened.bind((where, port))
    except OSError:
        opened.close()
        raise
    return opened


class ConfdServer:
    """Answers at a socket from `facts`, which has position 0 while nothing is known."""

    def __init__(
        self,
        opened: socket.socket,
        keys: Sequence[bytes],
        facts: Callable[[], ClusterCopy],
        tolerance_s: float = WINDOW_S,
    ) -> None:
        self._socket = opened
        self._tolerance_s = tolerance_s
        self._keys = tuple(keys)
        self._facts = facts
        self._buffer = bytearray(PACKET_LIMIT + 1)
        self._view = memoryview(self._buffer)
        self._repeats: dict[str, int] = {}
        self._second = 0

    def use_keys(self, keys: Sequence[bytes]) -> None:
        """Replace the keys."""
        self._keys = tuple(keys)

    def readable(self, now: Callable[[], float]) -> None:
        """Handle received datagrams, a bounded number."""
        time = now()
        for _ in range(AT_ONCE):
            try:
                size, sender = self._socket.recvfrom_into(self._buffer)
            except BlockingIOError:
                return
            except OSError as err:
                # An error that an earlier answer caused on the network.
                log.debug("cannot receive a datagram: %s", err)
                continue
            packet = self.reply(self._view[:size], time)
            if packet is not None:
                with contextlib.suppress(OSError):
                    self._socket.sendto(packet, sender)

    def reply(self, packet: bytes | memoryview, now: float) -> bytes | None:
        """Return the answer to a datagram; None for silence."""
        asked = parse_request(packet, self._keys, now, self._tolerance_s)
        if asked is None or not self._may_answer(asked.fingerprint, now):
            return None
        facts = self._facts()
        if not facts.position:
            return None
        try:
            status, content = answer(facts, asked.request)
        except Exception:
            log.exception("unexpected error while answering type %d", asked.request.type)
            status, content = Status.ERROR, ErrorDetail.INTERNAL
        return pack_answer(asked, status, content, facts.position)

    def _may_answer(self, fingerprint: str, now: float) -> bool:
        second = int(now)
        if second != self._second or len(self._repeats) >= REMEMBERED:
            self._second = second
            self._repeats.clear()
        count = self._repeats.get(fingerprint, 0)
        self._repeats[fingerprint] = count + 1
        return count < REPEATS_LIMIT
