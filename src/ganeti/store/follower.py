"""A candidate's role while another node is the master: it writes the transactions of the master.

A greater epoch ends a session before any answer is sent.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import replace

from ganeti.base.errors import NotMaster, Refused
from ganeti.model.objects import NodeUuid
from ganeti.store.database import History, HistoryDiffers
from ganeti.store.election import SILENCE_S, Ballot, LastContact, Vote
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
    """The greatest epoch that this candidate has seen; older ones are refused."""

    def __init__(self) -> None:
        self.value = 0

    def sees(self, epoch: int) -> None:
        self.value = max(self.value, epoch)

    def check(self, epoch: int) -> None:
        """Raise NotMaster if a greater epoch was seen."""
        if self.value > epoch:
            raise NotMaster(f"epoch {epoch} is over: this node has promised {self.value}")


class FollowerSession:
    """Writes the log of the master with the greatest epoch, one master at a time."""

    def __init__(self, own: NodeUuid, log: LocalLog, highest: HighestEpoch) -> None:
        self._own, self._local, self._highest = own, log, highest
        self.master: NodeUuid | None = None
        """The last master that was followed."""
        self._heard_at = 0.0
        self._session: asyncio.Task[None] | None = None
        self._sessions: set[asyncio.Task[None]] = set()

    async def follow(self, channel: Channel, master: NodeUuid, epoch: int) -> None:
        """Write what this master sends until the connection, or the epoch, ends; close the channel.

        Continues if the caller is cancelled: received transactions are written.
        """
        self.master = master
        self._heard_at = asyncio.get_running_loop().time()
        session = asyncio.create_task(self._follow(channel, epoch), name="following")
        self._session = session
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)
        await asyncio.wait((session,))

    async def end(self) -> None:
        """End the session; nothing more is written for its master."""
        session, self._session = self._session, None
        if session is not None:
            session.cancel()
            await asyncio.wait((session,))

    async def close(self) -> None:
        """End all sessions."""
        for session in list(self._sessions):
            session.cancel()
        if self._sessions:
            await asyncio.wait(list(self._sessions))

    def with_local_heartbeat(self, ballot: Ballot) -> Ballot:
        """Return the register's last contact, updated by this daemon's stream (R8).

        The stream counts even if the local node daemon does not run.
        """
        vote = ballot.get(self._own)
        if self.master is None or not isinstance(vote, Vote):
            return ballot
        heard = LastContact(
            self.master, asyncio.get_running_loop().time() - self._heard_at, SILENCE_S
        )
        if vote.heard is not None and vote.heard.seconds < heard.seconds:
            return ballot
        return {**ballot, self._own: replace(vote, heard=heard)}

    async def take(self, channel: Channel, message: Message, epoch: int) -> None:
        """Handle one message: transactions, or a whole snapshot."""
        if isinstance(message, Append):
            await self._local.append(entries_of(message))
        elif isinstance(message, SnapshotBegin):
            history = History(Position.from_int(message.position), message.digest)
            shared, rows = Position.from_int(message.shared), _snapshot_rows(channel)
            await self._local.replace(history, shared, rows, lambda: self._highest.check(epoch))
        else:
            raise ChannelClosed(f"unexpected message {type(message).__name__}")

    async def _follow(self, channel: Channel, epoch: int) -> None:
        """Write a master's transactions, all that have arrived with one sync."""
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
        """Write these transactions and all that have arrived after them; return the message that follows."""
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
    """Yield the rows of a snapshot; ChannelClosed where it is interrupted."""
    while True:
        async with asyncio.timeout(SNAPSHOT_S):
            message = await channel.receive()
        if isinstance(message, SnapshotEnd):
            return
        if not isinstance(message, SnapshotRows):
            raise ChannelClosed("the snapshot was interrupted")
        yield [Row(*row) for row in message.rows]
