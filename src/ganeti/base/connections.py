"""TCP connections that find out when the other end is gone."""

import contextlib
import socket

SILENCE_LIMIT_MS = 20_000
"""A peer whose host is gone is noticed after this long, also in the middle of a long call."""


def watch_other_end(connection: socket.socket) -> None:
    """Let the system close a connection whose other end says nothing for long; where it can."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_LIMIT_MS)
