"""Notify systemd that a service is ready or alive. Without systemd, do nothing."""

import contextlib
import os
import socket

SOCKET_VARIABLE = "NOTIFY_SOCKET"


def notify(state: str) -> bool:
    """Notify the service manager, with `READY=1` or `WATCHDOG=1`; return whether one received it."""
    address = os.environ.get(SOCKET_VARIABLE, "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(address)
        sender.send(state.encode())
        return True
    return False
