"""What the network knows of a name: its address, and whether a host answers there."""

import asyncio
import contextlib
import socket

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.paths import NODED_PORT

ANSWER_S = 1.0
"""How long a host may take to answer, be it with a refusal."""


async def address_of(name: str) -> str:
    """The address that `name` resolves to; PrereqError if it has none."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as err:
        raise PrereqError(
            f"the name {name} has no address ({err.strerror}); make it known to the resolver, or do"
            " without the check (--no-name-check)",
            ErrorCode.RESOLVER,
        ) from err
    return str(found[0][4][0])


async def is_answering(address: str, port: int = NODED_PORT) -> bool:
    """Return whether a host has this address: it takes a connection, or refuses it."""
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
    """PrereqError if the checks that are asked for find the name unknown, or its address in use."""
    if not name_check:
        return
    address = await address_of(name)
    if ip_check and await is_answering(address):
        raise PrereqError(
            f"a host already answers at {address}, the address of {name}", ErrorCode.NOT_UNIQUE
        )


def check_arguments(*, name_check: bool, ip_check: bool) -> None:
    """InputError unless the checks can be made together."""
    if ip_check and not name_check:
        raise InputError("needs the check of the name as well (--name-check)", "ip_check")
