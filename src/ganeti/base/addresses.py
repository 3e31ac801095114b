"""This node's own address."""

import ipaddress
import os
import socket

from ganeti.base.errors import ErrorCode, PrereqError

ADDRESS_VARIABLE = "GANETI_ADDRESS"
"""The address of a node of a virtual cluster, whose name no resolver knows."""


def address_of_environment() -> str:
    """Return the address that `GANETI_ADDRESS` gives this node; '' if it is missing or invalid."""
    given = os.environ.get(ADDRESS_VARIABLE, "")
    return given if is_address(given) else ""


def own_address(name: str, option: str) -> str:
    """Return the address of this node: `GANETI_ADDRESS`, or a non-loopback address of its name.

    Blocks while the name is resolved. PrereqError mentions `option`, which sets an address.
    """
    if given := address_of_environment():
        return given
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as err:
        what = f"this node's name {name} has no address ({err.strerror}): set one with {option}"
        raise PrereqError(what, ErrorCode.RESOLVER) from err
    addresses = [str(entry[4][0]) for entry in found]
    outside = [one for one in addresses if not ipaddress.ip_address(one).is_loopback]
    if not outside:
        what = (
            f"this node's name {name} resolves to loopback addresses only: set an address with "
            f"{option}"
        )
        raise PrereqError(what, ErrorCode.RESOLVER)
    return outside[0]


def is_address(text: str) -> bool:
    """Return whether `text` is an IP address that a single host can have."""
    try:
        return not ipaddress.ip_address(text).is_unspecified
    except ValueError:
        return False


def is_loopback(text: str) -> bool:
    """Return whether `text` is an address of the loopback interface."""
    return is_address(text) and ipaddress.ip_address(text).is_loopback
