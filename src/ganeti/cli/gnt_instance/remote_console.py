"""A console of a guest on another node, through that node's daemon: TLS 1.3 to an endpoint that the master asks for.

So no node needs an account on another one. The configuration knows the node's certificate.
"""

import socket
import ssl
from typing import Any

from ganeti.base import tls
from ganeti.base.errors import ExecError
from ganeti.clients.luxi import LuxiClient

CONNECT_S = 10.0
LOG_S = 60.0
"""Time without a byte after which the reading of a log ends."""


class _Console(ssl.SSLSocket):
    """As a plain socket, it raises BlockingIOError while nothing has arrived."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except ssl.SSLWantReadError as err:
            raise BlockingIOError from err


def read_log(instance: str) -> bytes:
    """Return what the serial console has said; ExecError, and what the master says."""
    with connect(instance, "log") as connection:
        connection.settimeout(LOG_S)
        try:
            with connection.makefile("rb") as file:
                return file.read()
        except OSError as err:
            raise ExecError(
                f"the log of the console of {instance} did not arrive whole ({err}); run the command again"
            ) from err


def connect(instance: str, kind: str) -> socket.socket:
    """Return a connection to the serial console (`serial`) or its log (`log`); ExecError, and what the master says."""
    with LuxiClient() as client:
        endpoint: dict[str, Any] = client.call("OpenConsole", None, instance, kind)
    where = f"node {endpoint['node']} ({endpoint['address']}, port {endpoint['port']})"
    try:
        plain = socket.create_connection((endpoint["address"], endpoint["port"]), CONNECT_S)
        context = tls.pinned_client_context()
        context.sslsocket_class = _Console
        found = context.wrap_socket(plain)
    except OSError as err:
        raise ExecError(
            f"{where} cannot be reached: {err.strerror or err}; the console of {instance} is there"
        ) from err
    der = found.getpeercert(binary_form=True)
    if der is None or tls.fingerprint_of_der(der) not in endpoint["certificates"]:
        found.close()
        raise ExecError(f"another host answers at {where}: its certificate is not the node's")
    found.settimeout(None)
    found.sendall(str(endpoint["secret"]).encode())
    return found
