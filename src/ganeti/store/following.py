"""What a candidate's store does while another one is the master: it writes what that one sends.

A greater epoch ends a session before anything is answered; a snapshot takes the place of everything,
and what was here is kept aside (R9).
"""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ganeti.base.errors import NotMaster, Refused
from ganeti.base.whole import to_the_end
from ganeti.model.objects import NodeUuid
from ganeti.store.asides import keep_aside, read_aside
from ganeti.store.database import History, HistoryDiffers
from ganeti.store.election import Ballot, Heard, Vote
from ganeti.store.electorate import SoleVoter
from ganeti.store.encoding import EncodedEntry
from ganeti.store.interface import ZERO, Follower, Identity, Position, Row
from ganeti.store.ports import Ports
from ganeti.store.sqlite import Options, SqliteStore
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

T = TypeVar("T")

_log = logging.getLogger(__name__)


class FollowingStore(SqliteStore):
    """A store that can be written by the stream of a master."""

    def __init__(self, path: Path, identity: Identity, ports: Ports, options: Options) -> None:
        super().__init__(path, identity, SoleVoter(ports.register), options)
        self._ports = ports
        self._taking = asyncio.Lock()
        self._followed: NodeUuid | None = None
        self._heard_at = 0.0
        self._met_epoch = 0
        """The greatest epoch that this store has met; what is older is refused."""
        self._session: asyncio.Task[None] | None = None
        """The task that writes what a master sends."""
        self._sessions: set[asyncio.Task[Any]] = set()

    def _knows_master(self, master: NodeUuid) -> None:
        """Another node, or this one, was the master last."""
        if isinstance(self._roles.role, Follower):
            self._roles.change(Follower("", master))

    def _meets(self, epoch: int) -> None:
        self._met_epoch = max(self._met_epoch, epoch)

    def _check_met(self, epoch: int) -> None:
        if self._met_epoch > epoch:
            raise NotMaster(f"epoch {epoch} is over: this node has promised {self._met_epoch}")

    async def _follow(self, channel: Channel, epoch: int) -> None:
        """Write what a master sends, all that has arrived with one sync."""
        try:
            while True:
                message: Message | None = await channel.receive()
                self._heard_at = asyncio.get_running_loop().time()
                self._check_met(epoch)
                if isinstance(message, Append):
                    message = await self._append_all(channel, message)
                if message is not None and not isinstance(message, Ping):
                    await self._take(channel, message, epoch)
                await channel.send(Ack(self._position.as_int()))
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
                await self._append(entries)
                return following
            more = entries_of(following)
            entries += more
            size += _size(more)
        await self._append(entries)
        return None

    async def _take(self, channel: Channel, message: Message, epoch: int) -> None:
        """One part of what is sent: transactions, or a snapshot as a whole."""
        if isinstance(message, Append):
            await self._append(entries_of(message))
        elif isinstance(message, SnapshotBegin):
            async with self._taking:
                await self._install(channel, message, epoch)
        else:
            raise ChannelClosed(f"{type(message).__name__} is not expected here")

    async def _append(self, entries: list[EncodedEntry]) -> None:
        async def append() -> None:
            await self._commits.run(lambda: self._database.append(entries))
            super(FollowingStore, self)._written(entries)

        async with self._taking:
            await to_the_end(append())

    async def _install(self, channel: Channel, begin: SnapshotBegin, epoch: int) -> None:
        """Take a snapshot; what was here is kept aside where it is not a beginning of that (R9)."""
        history = History(Position.from_int(begin.position), begin.digest)
        old, shared = History(self._position, self._digest), Position.from_int(begin.shared)
        database, kept = self._database, list[Path]()

        def keep(connection: sqlite3.Connection) -> None:
            kept.append(keep_aside(connection, self._path, old, shared))

        async def end() -> None:
            await self._commits.run(lambda: database.end_snapshot(history))
            self._reached(history)

        try:
            is_missed = old.position not in (ZERO, shared)
            await self._commits.run(lambda: database.begin_snapshot(keep if is_missed else None))
            async for rows in _snapshot_rows(channel):
                await self._commits.run(partial(database.add_snapshot_rows, rows))
            self._check_met(epoch)
        except BaseException:
            await to_the_end(self._commits.run(database.abandon_snapshot))
            raise
        await to_the_end(end())
        for path in kept:
            await self._tell_what_is_missed(path)

    async def _tell_what_is_missed(self, path: Path) -> None:
        archive = self._options.archive
        aside = await self._read(lambda: read_aside(path, self._path, archive))
        _log.warning(
            "the master's state took the place of this node's, which is in %s: %s",
            path,
            aside.told() if aside else "it cannot be read",
        )

    def _with_own_ears(self, ballot: Ballot) -> Ballot:
        """This daemon hears its master by the stream, wherever its node daemon may be (R8)."""
        own = self._identity.node_uuid
        vote = ballot.get(own)
        if self._followed is None or not isinstance(vote, Vote):
            return ballot
        heard = Heard(self._followed, asyncio.get_running_loop().time() - self._heard_at)
        if vote.heard is not None and vote.heard.seconds < heard.seconds:
            return ballot
        return {**ballot, own: replace(vote, heard=heard)}

    async def _end_session(self) -> None:
        """Nothing more is written for a master that was followed."""
        session, self._session = self._session, None
        if session is not None:
            session.cancel()
            await asyncio.wait((session,))

    def _keep_task(self, task: asyncio.Task[Any]) -> None:
        """Have it end with the store; who started it may be gone when it fails."""

        def ended(done: asyncio.Task[Any]) -> None:
            self._sessions.discard(done)
            if not done.cancelled():
                done.exception()

        self._sessions.add(task)
        task.add_done_callback(ended)


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
            raise ChannelClosed("the snapshot is interrupted")
        yield [Row(*row) for row in message.rows]
