"""The lookup of a name in the network: its address, and whether a host answers there."""

import asyncio
import contextlib
import socket

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.paths import NODED_PORT

ANSWER_S = 1.0
"""The time in which a host must answer; a refusal is an answer."""


async def address_of(name: str) -> str:
    """Return the address that `name` resolves to; PrereqError if it has none."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as err:
        raise PrereqError(
            f"the name {name} has no address ({err.strerror}); add it to the resolver, or skip"
            " the check (--no-name-check)",
            ErrorCode.RESOLVER,
        ) from err
    return str(found[0][4][0])


async def is_answering(address: str, port: int = NODED_PORT) -> bool:
    """Return whether a host has this address: it accepts a connection, or refuses it."""
    try:
        async with asyncio.timeout(ANSWER_S):
            _, writer = await asyncio.open_connection(address, port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


async def check_name(name: str, *, name_check: bool, ip_check: bool) -> None:
    """Raise PrereqError if the requested checks find the name unknown, or its address in use."""
    if not name_check:
        return
    address = await address_of(name)
    if ip_check and await is_answering(address):
        raise PrereqError(
            f"a host already answers at {address}, the address of {name}", ErrorCode.NOT_UNIQUE
        )


def check_arguments(*, name_check: bool, ip_check: bool) -> None:
    """Raise InputError unless the checks can be combined."""
    if ip_check and not name_check:
        raise InputError("requires the check of the name as well (--name-check)", "ip_check")
