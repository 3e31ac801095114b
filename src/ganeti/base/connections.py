"""Detection of dead peers of TCP connections."""

import contextlib
import socket

SILENCE_LIMIT_MS = 20_000
"""Time after which a dead peer is detected, even during a long call."""


def watch_other_end(connection: socket.socket) -> None:
    """Let the system close a connection whose peer is silent for long, where supported."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_LIMIT_MS)
