"""The messages between the master and a new node: one line of JSON each, in this order.

node    Challenge
master  Response      proves the secret
node    Application   proves it too, and asks for a certificate
master  Admission     or why not
node    Joined        or why not
"""

import asyncio
from typing import TypeVar

import msgspec

from ganeti.base.errors import InputError, ProtocolError
from ganeti.model import wire

T = TypeVar("T")

MESSAGE_LIMIT = 4 * 1024 * 1024
MESSAGE_TIMEOUT_S = 30.0
VERSION = 1


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """The node's nonce."""

    nonce: str
    version: int = VERSION


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """The master's nonce and proof."""

    nonce: str
    proof: str


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """The node's identity: `request` asks for a certificate (PEM).

    `error` is the reason for refusing the master.
    """

    proof: str = ""
    name: str = ""
    primary_ip: str = ""
    port: int = 0
    request: str = ""
    error: str = ""


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a new member; `error` is the reason of a refusal."""

    cluster_uuid: str = ""
    cluster_name: str = ""
    node_uuid: str = ""
    certificate: str = ""
    authority: str = ""
    epoch: int = 0
    master_uuid: str = ""
    ssconf_position: int = 0
    ssconf: dict[str, str] = {}
    file_storage_paths: list[str] = []
    error: str = ""


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """The node is now a member; `error` is the reason of a failure."""

    error: str = ""


async def send(writer: asyncio.StreamWriter, message: msgspec.Struct) -> None:
    """Send one message."""
    writer.write(wire.encode(message) + b"\n")
    async with asyncio.timeout(MESSAGE_TIMEOUT_S):
        await writer.drain()


async def receive(
    reader: asyncio.StreamReader, kind: type[T], *, timeout_s: float = MESSAGE_TIMEOUT_S
) -> T:
    """Return the next message; ProtocolError if none arrives in time, or it is invalid."""
    try:
        async with asyncio.timeout(timeout_s):
            line = await reader.readline()
    except TimeoutError:
        raise ProtocolError(f"no message within {timeout_s:g} s") from None
    except (ValueError, OSError) as err:
        raise ProtocolError(f"the connection failed: {err}") from err
    if not line.endswith(b"\n"):
        raise ProtocolError("the connection was closed")
    try:
        return wire.decode(line, kind, what="join")
    except InputError as err:
        raise ProtocolError(err.message) from err
