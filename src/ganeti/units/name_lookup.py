"""What the network knows of a name: its address, and whether a host answers there."""

import asyncio
import contextlib
import socket

from ganeti.base.errors import ErrorCode, PrereqError
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
    """Whether a host has this address: it takes a connection, or refuses it."""
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
