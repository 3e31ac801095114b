"""A candidate's role while another node is the master: it writes the transactions of the master.

A greater epoch ends a session before anything is answered.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import replace

from ganeti.base.errors import NotMaster, Refused
from ganeti.model.objects import NodeUuid
from ganeti.store.database import History, HistoryDiffers
from ganeti.store.election import Ballot, Heard, Vote
from ganeti.store.encoding import EncodedEntry
from ganeti.store.interface import Position, Row
from ganeti.store.local_log import LocalLog
from ganeti.store.stream import (
    Ack,
    Append,
    Channel,
    ChannelClosed,
    Message,
    Ping,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotRows,
    entries_of,
)

SNAPSHOT_S = 60.0
BATCH_ENTRIES = 2000
BATCH_BYTES = 16 << 20

_log = logging.getLogger(__name__)


class HighestEpoch:
    """The greatest epoch that this candidate has seen; what is older is refused."""

    def __init__(self) -> None:
        self.value = 0

    def sees(self, epoch: int) -> None:
        self.value = max(self.value, epoch)

    def check(self, epoch: int) -> None:
        """NotMaster if a greater one was seen."""
        if self.value > epoch:
            raise NotMaster(f"epoch {epoch} is over: this node has promised {self.value}")


class FollowerSession:
    """The log as the master of the greatest epoch writes it, one master at a time."""

    def __init__(self, own: NodeUuid, log: LocalLog, highest: HighestEpoch) -> None:
        self._own, self._local, self._highest = own, log, highest
        self.master: NodeUuid | None = None
        """The last one that was followed."""
        self._heard_at = 0.0
        self._session: asyncio.Task[None] | None = None
        self._sessions: set[asyncio.Task[None]] = set()

    async def follow(self, channel: Channel, master: NodeUuid, epoch: int) -> None:
        """Write what this master sends until the connection, or the epoch, ends; closes the channel.

        Goes on where the caller is cancelled: what has arrived is written.
        """
        self.master = master
        self._heard_at = asyncio.get_running_loop().time()
        session = asyncio.create_task(self._follow(channel, epoch), name="following")
        self._session = session
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)
        await asyncio.wait((session,))

    async def end(self) -> None:
        """Nothing more is written for a master that was followed."""
        session, self._session = self._session, None
        if session is not None:
            session.cancel()
            await asyncio.wait((session,))

    async def close(self) -> None:
        """End all."""
        for session in list(self._sessions):
            session.cancel()
        if self._sessions:
            await asyncio.wait(list(self._sessions))

    def with_local_heartbeat(self, ballot: Ballot) -> Ballot:
        """This daemon hears its master by the stream, wherever its node daemon may be (R8)."""
        vote = ballot.get(self._own)
        if self.master is None or not isinstance(vote, Vote):
            return ballot
        heard = Heard(self.master, asyncio.get_running_loop().time() - self._heard_at)
        if vote.heard is not None and vote.heard.seconds < heard.seconds:
            return ballot
        return {**ballot, self._own: replace(vote, heard=heard)}

    async def take(self, channel: Channel, message: Message, epoch: int) -> None:
        """One part of what is sent: transactions, or a snapshot as a whole."""
        if isinstance(message, Append):
            await self._local.append(entries_of(message))
        elif isinstance(message, SnapshotBegin):
            history = History(Position.from_int(message.position), message.digest)
            shared, rows = Position.from_int(message.shared), _snapshot_rows(channel)
            await self._local.replace(history, shared, rows, lambda: self._highest.check(epoch))
        else:
            raise ChannelClosed(f"{type(message).__name__} is not expected here")

    async def _follow(self, channel: Channel, epoch: int) -> None:
        """Write what a master sends, all that has arrived with one sync."""
        try:
            while True:
                message: Message | None = await channel.receive()
                self._heard_at = asyncio.get_running_loop().time()
                self._highest.check(epoch)
                if isinstance(message, Append):
                    message = await self._append_all(channel, message)
                if message is not None and not isinstance(message, Ping):
                    await self.take(channel, message, epoch)
                await channel.send(Ack(self._local.tail.position.as_int()))
        except (ChannelClosed, HistoryDiffers, Refused, NotMaster) as err:
            _log.info("following epoch %d ended: %s", epoch, err)
        finally:
            channel.close()

    async def _append_all(self, channel: Channel, message: Append) -> Message | None:
        """Write these transactions and all that have arrived behind them; what came after them."""
        entries = entries_of(message)
        size = _size(entries)
        while channel.has_more() and len(entries) < BATCH_ENTRIES and size < BATCH_BYTES:
            following = await channel.receive()
            if not isinstance(following, Append):
                await self._local.append(entries)
                return following
            more = entries_of(following)
            entries += more
            size += _size(more)
        await self._local.append(entries)
        return None


def _size(entries: list[EncodedEntry]) -> int:
    return sum(len(entry.content) for entry in entries)


async def _snapshot_rows(channel: Channel) -> AsyncGenerator[list[Row], None]:
    """The rows of a snapshot that has begun; ChannelClosed where it is interrupted."""
    while True:
        async with asyncio.timeout(SNAPSHOT_S):
            message = await channel.receive()
        if isinstance(message, SnapshotEnd):
            return
        if not isinstance(message, SnapshotRows):
            raise ChannelClosed("the snapshot was interrupted")
        yield [Row(*row) for row in message.rows]
