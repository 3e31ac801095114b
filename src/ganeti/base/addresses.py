"""This node's own address."""

import ipaddress
import os
import socket

from ganeti.base.errors import ErrorCode, PrereqError

ADDRESS_VARIABLE = "GANETI_ADDRESS"
"""The address of a node of a virtual cluster, whose name no resolver knows."""


def address_of_environment() -> str:
    """The address that `GANETI_ADDRESS` gives this node; '' without it, or if it is none."""
    given = os.environ.get(ADDRESS_VARIABLE, "")
    return given if is_address(given) else ""


def own_address(name: str, option: str) -> str:
    """The address of this node: `GANETI_ADDRESS`, else what its name resolves to outside this host.

    Blocks while the name is resolved. PrereqError says that `option` gives one.
    """
    if given := address_of_environment():
        return given
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as err:
        what = f"this node's name {name} has no address ({err.strerror}): give one with {option}"
        raise PrereqError(what, ErrorCode.RESOLVER) from err
    addresses = [str(entry[4][0]) for entry in found]
    outside = [one for one in addresses if not ipaddress.ip_address(one).is_loopback]
    if not outside:
        what = (
            f"this node's name {name} resolves to loopback addresses only: give one with {option}"
        )
        raise PrereqError(what, ErrorCode.RESOLVER)
    return outside[0]


def is_address(text: str) -> bool:
    """Whether `text` is an IP address that one host can have."""
    try:
        return not ipaddress.ip_address(text).is_unspecified
    except ValueError:
        return False


def is_loopback(text: str) -> bool:
    """Whether `text` is an address of the loopback interface."""
    return is_address(text) and ipaddress.ip_address(text).is_loopback
