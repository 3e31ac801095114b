"""Replicates the master's archive of jobs to the other candidates, with any back end of the state (F10).

    master -> candidate     Hello(archive); HelloAcknowledged or Reject; then ArchiveHave, answered by ArchiveMissing,
                            and ArchiveJobs, answered by Done

An id has one content, and an archive knows which ids it has forgotten. So a follower catches up by
comparing ranges of ids: a hundred thousand equal ids take ten small messages. Jobs archived later
are sent at once.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ganeti.base.errors import ProtocolError, Refused, StoreError
from ganeti.model.objects import NodeUuid
from ganeti.store.archive import MOST_IDS, JobArchive
from ganeti.store.interface import Identity, Membership
from ganeti.store.register import Answer, RegisterKeeper, check_epoch
from ganeti.store.stream import (
    ArchiveHave,
    ArchiveJobs,
    ArchiveMissing,
    Channel,
    ChannelClosed,
    Done,
    Hello,
    HelloAcknowledged,
    Message,
    Peers,
    Reject,
)
from ganeti.store.worker import Worker

ANSWER_S = 10.0
RETRY_S = 2.0
DELIVERY_S = 10.0
"""Time that archiving waits for the followers that certainly have the last state, before it is refused."""
DELIVERY_TICK_S = 0.01
CHUNK_BYTES = 4 << 20
CHUNK_JOBS = 500
QUEUED_JOBS, QUEUED_BYTES = 2_000, 32 << 20
"""A follower that lags by more than either compares ids again."""

Jobs = list[tuple[int, bytes]]

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Link:
    """The jobs that one follower has not been sent; nothing is queued for a disconnected follower."""

    is_live: bool = False
    has_caught_up: bool = False
    """True once the follower has all jobs that were archived before it connected."""
    refused: str = ""
    """The follower's reason for accepting no jobs; '' if it accepts them or has not answered."""
    queue: deque[tuple[int, Jobs]] = field(default_factory=deque)
    added: int = 0
    sent: int = -1
    """The number of deliveries, and how many of them the follower has; -1 before it has caught up once."""
    queued_jobs: int = 0
    queued_bytes: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, jobs: Jobs) -> None:
        """Queue jobs; a follower that lags by too much compares ids again."""
        self.added += 1
        if not self.is_live:
            return
        self.queue.append((self.added, jobs))
        self.queued_jobs += len(jobs)
        self.queued_bytes += _size(jobs)
        if self.queued_jobs > QUEUED_JOBS or self.queued_bytes > QUEUED_BYTES:
            self.end()
        self.news.set()

    def begin(self) -> int:
        """Queue the jobs archived from now on; return the number of earlier deliveries."""
        self.is_live = True
        return self.added

    def has(self, upto: int) -> None:
        """Record how many deliveries the follower has."""
        self.has_caught_up = True
        self.sent = max(self.sent, upto)

    def taken(self) -> tuple[int, Jobs] | None:
        """Return the next delivery, None while there is none."""
        if not self.queue:
            return None
        number, jobs = self.queue.popleft()
        self.queued_jobs -= len(jobs)
        self.queued_bytes -= _size(jobs)
        return number, jobs

    def end(self) -> None:
        """Stop: the follower is disconnected, or must compare ids again."""
        self.is_live = self.has_caught_up = False
        self.queue.clear()
        self.queued_jobs = self.queued_bytes = 0
        self.news.set()


class ArchiveFeed:
    """The followers' archives, as a master sees them."""

    def __init__(
        self,
        identity: Identity,
        epoch: int,
        peers: Peers,
        archive: JobArchive,
    ) -> None:
        self._identity, self._epoch = identity, epoch
        self._peers, self._archive = peers, archive
        self._links: dict[NodeUuid, _Link] = {}
        self._tasks: dict[NodeUuid, asyncio.Task[None]] = {}

    def followers_are(self, followers: Collection[NodeUuid]) -> None:
        """Replace the set of followers; this node is never a follower of itself."""
        followers = set(followers) - {self._identity.node_uuid}
        for node in self._links.keys() - followers:
            self._tasks.pop(node).cancel()
            self._links.pop(node).end()
        for node in sorted(set(followers) - self._links.keys()):
            self._links[node] = _Link()
            self._tasks[node] = asyncio.create_task(self._feed(node), name=f"archive {node}")

    async def deliver(self, jobs: Jobs, members: Callable[[], Awaitable[Membership]]) -> None:
        """Send the jobs archived here; return once enough followers have all of this archive.

        The holders of the state must have them. Where any candidate may be the next master, half of
        the candidates and all connected ones must have them. Refused if one of these does not
        confirm in time. A follower that cannot open its archive is skipped: it cannot be the master
        before it has this whole archive.
        """
        for link in self._links.values():
            link.add(jobs)
        upto = {node: link.added for node, link in self._links.items()}
        loop = asyncio.get_running_loop()
        end = loop.time() + DELIVERY_S
        while lacking := self._lacking(await members(), upto):
            if loop.time() > end:
                why = "; ".join(f"node {node} does not have them" for node in sorted(lacking))
                raise Refused(
                    f"the jobs are not archived, since they would be lost with this node: {why}"
                    f" within {DELIVERY_S:g} s"
                )
            await asyncio.sleep(DELIVERY_TICK_S)

    def _lacking(self, members: Membership, upto: Mapping[NodeUuid, int]) -> list[NodeUuid]:
        """Return the followers that archiving still waits for."""
        wanted = members.candidates if members.is_any_next else members.holders
        lacking = [node for node in wanted if not self._has(node, upto.get(node, 0))]
        if members.is_any_next and 2 * len(lacking) <= len(wanted):
            return [node for node in lacking if self._links[node].is_live]
        return lacking

    def _has(self, node: NodeUuid, upto: int) -> bool:
        link = self._links.get(node)
        return link is None or bool(link.refused) or link.sent >= upto

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self.followers_are(())
        await asyncio.gather(*tasks, return_exceptions=True)

    def statistics(self) -> dict[NodeUuid, bool]:
        """Return each follower, and whether it has everything that is not in transit."""
        return {node: link.has_caught_up for node, link in self._links.items()}

    async def _feed(self, node: NodeUuid) -> None:
        link, said = self._links[node], ""
        while True:
            try:
                channel = await self._peers.connect(node)
                try:
                    await self._greet(channel, link)
                    said = ""
                    await self._serve(channel, link)
                finally:
                    channel.close()
            except (ChannelClosed, TimeoutError, StoreError) as err:
                why = str(err) or "no answer"
                if why != said:
                    _log.info("cannot replicate the archive to node %s: %s", node, why)
                said = why
            finally:
                link.end()
            await asyncio.sleep(RETRY_S)

    async def _greet(self, channel: Channel, link: _Link) -> None:
        identity = self._identity
        hello = Hello(identity.cluster_uuid, self._epoch, identity.node_uuid, "archive")
        answer = await _asked(channel, hello)
        link.refused = answer.reason if isinstance(answer, Reject) else ""
        if not isinstance(answer, HelloAcknowledged):
            raise ChannelClosed(_reason(answer))

    async def _serve(self, channel: Channel, link: _Link) -> None:
        before = link.begin()  # jobs archived while ids are compared are sent afterwards
        await self._catch_up(channel)
        if link.is_live:
            link.has(before)
        while link.is_live:
            link.news.clear()
            if (delivery := link.taken()) is None:
                await link.news.wait()
                continue
            number, jobs = delivery
            await _send(channel, jobs)
            if link.is_live:
                link.has(number)
        raise ChannelClosed("it is too slow and compares its archive again")

    async def _catch_up(self, channel: Channel) -> None:
        """Send every archived job that the follower lacks."""
        after = 0
        while ranges := await self._archive.ranges(after, MOST_IDS):
            after = ranges[-1][1]
            answer = await _asked(channel, ArchiveHave(ranges))
            if not isinstance(answer, ArchiveMissing):
                raise ChannelClosed(_reason(answer))
            left = answer.ids
            while left:
                jobs = await self._archive.some(left[:CHUNK_JOBS], CHUNK_BYTES)
                if not jobs:
                    raise ChannelClosed("it requests jobs that are not in this archive")
                await _send(channel, jobs)
                last = jobs[-1][0]
                left = [job_id for job_id in left if job_id > last]


class ArchiveServer:
    """A candidate's side: stores the jobs that the master of the greatest epoch sends."""

    def __init__(
        self,
        register: RegisterKeeper,
        archive: JobArchive | None,
        worker: Worker | None = None,
        *,
        ended: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`archive` is None if it cannot be opened; `worker` is the thread that decides the register.

        `ended` is called when the connection of a master has ended, which it keeps for its whole term.
        """
        self._register, self._archive, self._worker = register, archive, worker
        self._ended = ended

    async def serve(self, channel: Channel, hello: Hello) -> None:
        """Serve until the connection closes; StoreError if this archive cannot be written."""
        if self._archive is None:
            await channel.send(Reject("its archive of jobs cannot be opened"))
            return
        answer = await self._check_epoch(hello.epoch, NodeUuid(hello.node_uuid))
        if not answer.granted:
            promised = answer.register.promised.epoch if answer.register else 0
            await channel.send(Reject(answer.reason, promised))
            return
        await channel.send(HelloAcknowledged(0, b""))
        try:
            await serve_archive(channel, self._archive)
        except ChannelClosed:
            if self._ended is not None:
                await self._ended()
            raise

    async def _check_epoch(self, epoch: int, master: NodeUuid) -> Answer:
        """Write down a greater epoch before anything else (R2)."""

        def decide() -> Answer:
            return self._register.decide(lambda old: check_epoch(old, epoch, master))

        return await self._worker.call(decide) if self._worker else decide()


async def serve_archive(channel: Channel, archive: JobArchive) -> None:
    """Handle the messages after the handshake."""
    while True:
        message = await channel.receive()
        if isinstance(message, ArchiveHave):
            if sum(last - first + 1 for first, last in message.ranges) > MOST_IDS:
                raise ProtocolError("too many ids of archived jobs at once")
            missing = await archive.missing(message.ranges)
            await channel.send(ArchiveMissing(missing))
        elif isinstance(message, ArchiveJobs):
            await archive.add(message.jobs)
            await channel.send(Done())
        else:
            raise ChannelClosed(f"unexpected message {type(message).__name__}")


async def _send(channel: Channel, jobs: Jobs) -> None:
    for part in _parts(jobs):
        answer = await _asked(channel, ArchiveJobs(part))
        if not isinstance(answer, Done):
            raise ChannelClosed(_reason(answer))


def _size(jobs: Jobs) -> int:
    return sum(len(content) for _, content in jobs)


def _parts(jobs: Sequence[tuple[int, bytes]]) -> list[Jobs]:
    """Yield parts that are hardly longer than CHUNK_BYTES."""
    parts: list[Jobs] = []
    size = 0
    for job in jobs:
        size += len(job[1])
        if not parts or size > CHUNK_BYTES:
            parts.append([])
            size = len(job[1])
        parts[-1].append(job)
    return parts


async def _asked(channel: Channel, message: Message) -> Message:
    async with asyncio.timeout(ANSWER_S):
        await channel.send(message)
        return await channel.receive()


def _reason(answer: Message) -> str:
    return (
        answer.reason
        if isinstance(answer, Reject)
        else "it does not use the protocol of the state stream"
    )


class ReplicatedArchive:
    """A master's archive: other candidates have a job in their archives before it leaves the state."""

    def __init__(
        self,
        archive: JobArchive,
        feed: ArchiveFeed,
        members: Callable[[], Awaitable[Membership]],
    ) -> None:
        """`members` is the method of the back end."""
        self._archive, self._feed, self._members = archive, feed, members

    def candidates_are(self, candidates: frozenset[NodeUuid]) -> None:
        """Replicate to these candidates, except this node, from now on."""
        self._feed.followers_are(candidates)

    async def append(self, jobs: Sequence[tuple[int, bytes]]) -> None:
        """Raise like `JobArchive.append`; Refused also if too few candidates get all of this archive.

        Called without jobs, it delivers the jobs that an earlier refusal left here.
        """
        if jobs:
            await self._archive.append(jobs)
        await self._feed.deliver(list(jobs), self._members)

    async def get(self, job_id: int) -> bytes | None:
        return await self._archive.get(job_id)

    async def ids(self, *, limit: int, below: int | None) -> list[int]:
        return await self._archive.ids(limit=limit, below=below)

    async def greatest_id(self) -> int:
        return await self._archive.greatest_id()
