"""The protocol between the master daemons of candidates: transaction stream, fencing, copying.

    master -> follower      Hello(replicate); HelloAcknowledged or Reject; then Append, Ping, Snapshot*: each Append,
                            Ping and SnapshotEnd is answered by an Ack
    candidate -> member     Hello(fence); HelloAcknowledged or Reject; then Pull: Append* or Snapshot*, Done
    candidate -> master     Hello(hand over); Done once it has ended, or Reject
    master -> follower      Hello(archive): see `archive_feed`

A message is a length and msgpack. `daemons` implements the interfaces at the end of this module.
"""

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, Protocol, TypeAlias

import msgspec

from ganeti.base.errors import NotMaster, ProtocolError, StoreError
from ganeti.model.objects import NodeUuid
from ganeti.store.election import NoVote, Vote
from ganeti.store.encoding import EncodedEntry
from ganeti.store.interface import CampaignKind, Position
from ganeti.store.register import AcceptRequest, PromiseRequest

LENGTH = struct.Struct(">I")
MESSAGE_LIMIT = 64 << 20
HELLO_S = 5.0
"""Time limit for a caller's handshake."""

_log = logging.getLogger(__name__)

Purpose = Literal["replicate", "fence", "hand-over", "archive"]


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Hello(_Message, frozen=True):
    """The caller, its epoch, and its purpose."""

    cluster_uuid: str
    epoch: int
    node_uuid: str
    purpose: Purpose


class HelloAcknowledged(_Message, frozen=True):
    """The caller's epoch is accepted; `position` is the end of the history here."""

    position: int
    digest: bytes


class Reject(_Message, frozen=True):
    """A refusal with its reason; `epoch` is the greatest epoch promised here."""

    reason: str
    epoch: int = 0


class Append(_Message, frozen=True):
    """Transactions: (position, previous, digest, content) each."""

    entries: list[tuple[int, int, bytes, bytes]]


class Ping(_Message, frozen=True):
    """Request an Ack."""


class Ack(_Message, frozen=True):
    """Everything up to the position is synced."""

    position: int


class SnapshotBegin(_Message, frozen=True):
    """Rows follow that replace everything."""

    position: int
    digest: bytes
    shared: int = 0
    """The last position that the receiver's history may share with the sender's.

    Positions up to it are the beginning of the sender's history.
    """


class SnapshotRows(_Message, frozen=True):
    """Some rows: (kind, key, value) each."""

    rows: list[tuple[str, str, bytes]]


class SnapshotEnd(_Message, frozen=True):
    """The snapshot is complete."""


class Pull(_Message, frozen=True):
    """Request for everything after this history, or for everything."""

    position: int
    digest: bytes


class Done(_Message, frozen=True):
    """The end of the data."""


class ArchiveHave(_Message, frozen=True):
    """Ids of jobs in the master's archive, as (first, last)."""

    ranges: list[tuple[int, int]]


class ArchiveMissing(_Message, frozen=True):
    """Ids that this archive lacks."""

    ids: list[int]


class ArchiveJobs(_Message, frozen=True):
    """Archived jobs: (id, content)."""

    jobs: list[tuple[int, bytes]]


Message: TypeAlias = (
    Hello
    | HelloAcknowledged
    | Reject
    | Append
    | Ping
    | Ack
    | SnapshotBegin
    | SnapshotRows
    | SnapshotEnd
    | Pull
    | Done
    | ArchiveHave
    | ArchiveMissing
    | ArchiveJobs
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def encode_message(message: Message) -> bytes:
    """Return the message with its length prefix."""
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body


def decode_message(body: bytes) -> Message:
    """Return the message of bytes without the length; ProtocolError."""
    try:
        message: Message = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a message of the state stream is damaged: {error}") from None
    return message


def append_of(entries: list[EncodedEntry]) -> Append:
    """Return the message with these entries."""
    return Append(
        [(e.position.as_int(), e.previous.as_int(), e.digest, e.content) for e in entries]
    )


def entries_of(message: Append) -> list[EncodedEntry]:
    """Return the entries of a message."""
    at = Position.from_int
    return [
        EncodedEntry(at(position), at(previous), digest, content)
        for position, previous, digest, content in message.entries
    ]


class ChannelClosed(Exception):
    """The peer is gone or cannot be reached; the text has the reason."""


class Channel(Protocol):
    """An ordered channel for messages to one other daemon; every method raises ChannelClosed."""

    async def send(self, message: Message) -> None:
        """Send a message; waits while too much is in transit."""
        ...

    async def receive(self) -> Message: ...

    def has_more(self) -> bool:
        """Return whether `receive` would not wait."""
        ...

    def close(self) -> None:
        """Close; idempotent."""
        ...


class Peers(Protocol):
    """The master daemons of the other candidates."""

    async def connect(self, node: NodeUuid) -> Channel:
        """Return a channel; ChannelClosed, within seconds, on failure."""
        ...


class Voters(Protocol):
    """The registers of all nodes; calls never raise, since a missing answer is an answer, too."""

    async def read(self, node: NodeUuid) -> Vote | NoVote: ...

    async def promise(
        self, node: NodeUuid, request: PromiseRequest, kind: CampaignKind
    ) -> Vote | NoVote: ...

    async def accept(self, node: NodeUuid, request: AcceptRequest) -> Vote | NoVote: ...

    async def renew(self, node: NodeUuid, cluster_uuid: str, epoch: int) -> Vote | NoVote:
        """Confirm that this node is still the master."""
        ...


Handler: TypeAlias = Callable[[Channel, Hello], Awaitable[None]]
"""Answers one caller after its handshake, until the connection ends; does not close it."""


class StreamServer:
    """Passes each caller of this cluster to the handler of its purpose."""

    def __init__(self, cluster_uuid: str, handlers: Mapping[Purpose, Handler]) -> None:
        self._cluster_uuid, self._handlers = cluster_uuid, handlers

    async def serve(self, channel: Channel) -> None:
        """Answer one caller on its connection, until the connection ends."""
        try:
            async with asyncio.timeout(HELLO_S):
                hello = await channel.receive()
            if not isinstance(hello, Hello) or hello.cluster_uuid != self._cluster_uuid:
                await channel.send(Reject("this node belongs to another cluster"))
            elif (handler := self._handlers.get(hello.purpose)) is None:
                await channel.send(Reject(f"this node does not answer calls to {hello.purpose}"))
            else:
                await handler(channel, hello)
        except (ChannelClosed, TimeoutError) as err:
            _log.debug("a connection ended: %s", err)
        except (StoreError, NotMaster, ProtocolError) as err:
            _log.warning("a connection failed: %s", err)
        finally:
            channel.close()
