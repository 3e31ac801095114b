"""Sends a follower transactions and snapshots, within bounds of memory and time."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from ganeti.store.database import History
from ganeti.store.encoding import EncodedEntry
from ganeti.store.interface import ZERO, Position, Row
from ganeti.store.stream import (
    Channel,
    ChannelClosed,
    Message,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotRows,
    append_of,
)

CHUNK_ENTRIES = 100
CHUNK_BYTES = 4 << 20
BEHIND_ENTRIES = 20_000
BEHIND_BYTES = 32 << 20
"""A follower that lags by more than either is served from the log again instead of from memory."""
SEND_S = 30.0
"""Time for which a follower may receive nothing of what is sent."""
SNAPSHOT_S = 600.0
"""Time limit of a whole snapshot: while it is read, the write-ahead log cannot shrink."""


class Feed:
    """The written transactions that one follower has not been sent."""

    def __init__(self) -> None:
        self.entries: deque[EncodedEntry] = deque()
        self.is_live = False
        self.is_asked = True
        """True if the follower gets a ping when there is nothing else to send."""
        self.news = asyncio.Event()
        self._bytes = 0

    def ask(self) -> None:
        """Send a ping, unless something else is sent anyway."""
        self.is_asked = True
        self.news.set()

    def begin(self) -> None:
        """Collect transactions from now on."""
        self.end()
        self.is_live = True

    def end(self) -> None:
        """Stop collecting: the follower is served from the log."""
        self.is_live = False
        self.entries.clear()
        self._bytes = 0

    def add(self, entries: list[EncodedEntry]) -> None:
        if self.is_live:
            self.entries.extend(entries)
            self._bytes += sum(len(entry.content) for entry in entries)
            if len(self.entries) > BEHIND_ENTRIES or self._bytes > BEHIND_BYTES:
                self.end()
        self.news.set()

    def take(self, after: Position) -> list[EncodedEntry]:
        taken: list[EncodedEntry] = []
        size = 0
        while self.entries and len(taken) < CHUNK_ENTRIES and size < CHUNK_BYTES:
            entry = self.entries.popleft()
            self._bytes -= len(entry.content)
            if entry.position > after:
                taken.append(entry)
                size += len(entry.content)
        return taken


async def send_snapshot(
    channel: Channel, slices: AsyncGenerator[History | list[Row], None], shared: Position
) -> Position:
    """Send a snapshot; return its position.

    The receiver's history shares at most the positions up to `shared`.
    """
    position = ZERO
    try:
        async with asyncio.timeout(SNAPSHOT_S), aclosing(slices):
            async for part in slices:
                if isinstance(part, History):
                    position = part.position
                    begin = SnapshotBegin(position.as_int(), part.digest, shared.as_int())
                    await give(channel, begin)
                else:
                    rows = [(row.kind, row.key, row.value) for row in part]
                    await give(channel, SnapshotRows(rows))
    except TimeoutError:
        raise ChannelClosed(f"it has not received the state within {SNAPSHOT_S:g} s") from None
    await give(channel, SnapshotEnd())
    return position


async def give(channel: Channel, message: Message) -> None:
    """Send a message; ChannelClosed where the peer does not read."""
    try:
        async with asyncio.timeout(SEND_S):
            await channel.send(message)
    except TimeoutError:
        raise ChannelClosed(f"it has received nothing for {SEND_S:g} s") from None


async def send_log(
    channel: Channel, read: Callable[[Position], Awaitable[list[EncodedEntry]]], after: Position
) -> None:
    """Send everything after a position; ChannelClosed or NotInLog."""
    while entries := await read(after):
        await give(channel, append_of(entries))
        after = entries[-1].position
