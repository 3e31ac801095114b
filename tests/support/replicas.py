"""Candidates in one loop: registers in memory, and channels that may be cut."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from ganeti.model.objects import NodeUuid
from ganeti.store import election
from ganeti.store.archive import JobArchive
from ganeti.store.archive_feed import ArchiveServer
from ganeti.store.election import LastContact, NoVote, Vote
from ganeti.store.embedded import EmbeddedStore
from ganeti.store.fence import keep_promised
from ganeti.store.interface import CampaignKind, Identity, Master
from ganeti.store.local_log import Options
from ganeti.store.ports import Ports
from ganeti.store.register import (
    AcceptRequest,
    Answer,
    MemoryRegister,
    Promise,
    PromiseRequest,
    Register,
    accept,
    check_epoch,
)
from ganeti.store.stream import Channel, ChannelClosed, Message, StreamServer

CONNECT_S, VOTE_S = 3.0, 2.0
"""How long a candidate waits for a node that says nothing at all."""


class MemoryChannel:
    """One end of a pair of queues; what is sent while the line is hushed waits for its end."""

    def __init__(
        self, is_hushed: Callable[[], bool], is_full: Callable[[], bool] = lambda: False
    ) -> None:
        self.incoming: asyncio.Queue[Message | None] = asyncio.Queue()
        self.other: MemoryChannel | None = None
        self.is_open = True
        self._is_hushed, self._is_full = is_hushed, is_full
        self._held: list[Message | None] = []

    async def send(self, message: Message) -> None:
        while self.is_open and self._is_full():  # noqa: ASYNC110 - whoever takes it tells nobody
            await asyncio.sleep(0.005)
        if not self.is_open or self.other is None:
            raise ChannelClosed("closed")
        self._held.append(message)
        self.flush()
        await asyncio.sleep(0)

    def flush(self) -> None:
        """Let what waits through, unless the line is hushed; None is the end."""
        if self._is_hushed() or self.other is None:
            return
        held, self._held = self._held, []
        for message in held:
            if message is None:
                self.other.is_open = False
            self.other.incoming.put_nowait(message)

    async def receive(self) -> Message:
        message = await self.incoming.get() if self.is_open else None
        if message is None:
            raise ChannelClosed("closed")
        return message

    def has_more(self) -> bool:
        return not self.incoming.empty()

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.incoming.put_nowait(None)
            self._held.append(None)
            self.flush()


class Replicas:
    """All nodes of a cluster."""

    def __init__(self, directory: Path, names: tuple[str, ...], cluster: str = "cluster-1") -> None:
        self.directory, self.cluster = directory, cluster
        self.names = [NodeUuid(name) for name in names]
        joined = Promise(0, NodeUuid(names[0]))
        self.registers = {name: MemoryRegister(Register(cluster, joined)) for name in self.names}
        self.stores: dict[NodeUuid, EmbeddedStore] = {}
        self.heard: dict[NodeUuid, tuple[NodeUuid, float]] = {}
        self.cut: set[NodeUuid] = set()
        self.hushed: set[NodeUuid] = set()
        self.cut_links: set[frozenset[NodeUuid]] = set()
        self.one_way: set[tuple[NodeUuid, NodeUuid]] = set()
        """From which node to which nothing gets through, though it does the other way."""
        self.stalled: set[NodeUuid] = set()
        """Nodes that take nothing of what they are sent, so that whoever sends more waits."""
        self.silent_voters: set[NodeUuid] = set()
        self.full: set[NodeUuid] = set()
        """Nodes whose registers cannot be written."""
        self.servers: dict[NodeUuid, StreamServer] = {}
        self.channels: list[tuple[NodeUuid, NodeUuid, MemoryChannel]] = []
        self.tasks: set[asyncio.Task[None]] = set()

    def spoil(self, node: NodeUuid, epoch: int) -> None:
        """Raise a node's promise to an epoch that no master ever had."""
        register = self.registers[node].read()
        assert register is not None
        spoilt = replace(register, promised=Promise(epoch, NodeUuid("nobody")))
        self.registers[node].decide(lambda _old: Answer(granted=True, register=spoilt))

    async def open(
        self,
        name: str,
        options: Options | None = None,
        archive: JobArchive | None = None,
        *,
        is_fenced: bool = True,
    ) -> EmbeddedStore:
        """`is_fenced` renews the master's epoch, where no `Roles` do that."""
        node = NodeUuid(name)
        links = self.links(name)
        register = self.registers[node]
        ports = Ports(voters=links, peers=links, register=register)
        store = await EmbeddedStore.open(
            self.directory / f"{name}.db", Identity(self.cluster, node), ports, options
        )
        self.stores[node] = store
        handlers = {**store.handlers, "archive": ArchiveServer(register, archive).serve}
        self.servers[node] = StreamServer(self.cluster, handlers)
        if is_fenced:
            self._spawn(_renew(store))
        return store

    def links(self, name: str) -> "Links":
        """The ports of one node."""
        return Links(self, NodeUuid(name))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def serve(self, node: NodeUuid, channel: Channel) -> None:
        """Let a node answer a caller."""
        self._spawn(self.servers[node].serve(channel))

    def lose_database(self, name: str) -> None:
        """The database of a node whose store is closed is gone; its register stays."""
        for suffix in ("", "-wal", "-shm"):
            (self.directory / f"{name}.db{suffix}").unlink(missing_ok=True)

    def cut_off(self, name: str) -> None:
        """Nobody reaches this node, nor is reached by it."""
        node = NodeUuid(name)
        self.cut.add(node)
        for one, two, channel in self.channels:
            if node in (one, two):
                channel.close()

    def cut_link(self, one: str, other: str) -> None:
        """These two do not reach each other."""
        link = frozenset((NodeUuid(one), NodeUuid(other)))
        self.cut_links.add(link)
        for first, second, channel in self.channels:
            if link == {first, second}:
                channel.close()

    def cut_direction(self, source: str, target: str) -> None:
        """Nothing that one node sends reaches the other, and neither is told."""
        self.one_way.add((NodeUuid(source), NodeUuid(target)))

    def hush(self, name: str) -> None:
        """Nothing reaches this node or leaves it, and nobody is told: what is sent waits."""
        self.hushed.add(NodeUuid(name))

    def repair(self, *names: str) -> None:
        """The lines of these nodes, or of all, are as they should be; what has waited arrives."""
        mended = {NodeUuid(name) for name in names or self.names}
        self.cut -= mended
        self.hushed -= mended
        self.cut_links = {link for link in self.cut_links if not link & mended}
        self.one_way = {way for way in self.one_way if not mended.intersection(way)}
        for _, _, channel in self.channels:
            for end in (channel, channel.other):
                if end is not None:
                    end.flush()

    async def close(self) -> None:
        for store in self.stores.values():
            await store.close()
        for _, _, channel in self.channels:
            channel.close()
        if self.tasks:
            await asyncio.wait(list(self.tasks))


async def _renew(store: EmbeddedStore) -> None:
    """What the daemon does while its store is the master's: keep the epoch promised."""
    renewing: asyncio.Task[None] | None = None
    async with aclosing(store.role_changes()) as roles:
        async for role in roles:
            if renewing is not None:
                renewing.cancel()
            if isinstance(role, Master):
                renewing = asyncio.create_task(_step_down_unless_promised(store, role.lease.epoch))
    if renewing is not None:
        renewing.cancel()


async def _step_down_unless_promised(store: EmbeddedStore, epoch: int) -> None:
    await store.step_down(await keep_promised(store, epoch))


class Links:
    """The ports of one node."""

    def __init__(self, replicas: Replicas, node: NodeUuid) -> None:
        self._all, self._node = replicas, node

    def _is_cut(self, node: NodeUuid) -> bool:
        is_alone = bool({node, self._node} & self._all.cut)
        is_cut = is_alone or frozenset((node, self._node)) in self._all.cut_links
        return node != self._node and is_cut

    def _is_hushed(self, source: NodeUuid, target: NodeUuid) -> bool:
        """Whether what the one sends waits before it gets to the other."""
        is_silent = bool({source, target} & self._all.hushed)
        return source != target and (is_silent or (source, target) in self._all.one_way)

    def _is_mute(self, node: NodeUuid) -> bool:
        """Whether a call to a node has no answer."""
        return self._is_hushed(self._node, node) or self._is_hushed(node, self._node)

    async def connect(self, node: NodeUuid) -> Channel:
        await asyncio.sleep(CONNECT_S if self._is_mute(node) else 0)
        if self._is_cut(node) or self._is_mute(node) or node not in self._all.stores:
            raise ChannelClosed("no connection")
        ours = MemoryChannel(
            lambda: self._is_hushed(self._node, node), lambda: node in self._all.stalled
        )
        theirs = MemoryChannel(lambda: self._is_hushed(node, self._node))
        ours.other, theirs.other = theirs, ours
        self._all.channels.append((self._node, node, ours))
        self._all.serve(node, theirs)
        return ours

    async def _vote(self, node: NodeUuid, answer: Answer | None = None) -> Vote | NoVote:
        await asyncio.sleep(0)
        register = self._all.registers[node].read()
        if register is None or not self._reaches(node) or self._is_hushed(node, self._node):
            return await self._no_vote(node)
        heard = self._heard(node)
        if answer is None:
            return Vote(True, register, heard=heard)
        return Vote(answer.granted, register, answer.reason, heard)

    def _heard(self, node: NodeUuid) -> LastContact | None:
        found = self._all.heard.get(node)
        if found is None:
            return None
        return LastContact(
            found[0], asyncio.get_running_loop().time() - found[1], election.SILENCE_S
        )

    def _reaches(self, node: NodeUuid) -> bool:
        known = node in self._all.registers
        lost = self._is_cut(node) or self._is_hushed(self._node, node)
        return known and not lost and node not in self._all.silent_voters

    async def _no_vote(self, node: NodeUuid) -> NoVote:
        await asyncio.sleep(VOTE_S if self._is_mute(node) else 0)
        return NoVote("no answer")

    async def read(self, node: NodeUuid) -> Vote | NoVote:
        return await self._vote(node) if self._reaches(node) else await self._no_vote(node)

    async def promise(
        self, node: NodeUuid, request: PromiseRequest, kind: CampaignKind
    ) -> Vote | NoVote:
        if not self._reaches(node):
            return await self._no_vote(node)
        heard = self._heard(node)
        answer = self._all.registers[node].decide(
            lambda old: election.vote(old, request, kind, heard)
        )
        return await self._vote(node, answer)

    async def accept(self, node: NodeUuid, request: AcceptRequest) -> Vote | NoVote:
        if not self._reaches(node):
            return await self._no_vote(node)
        if node in self._all.full:
            return NoVote("cannot store the register: no space left")
        answer = self._all.registers[node].decide(lambda old: accept(old, request))
        return await self._vote(node, answer)

    async def renew(self, node: NodeUuid, cluster_uuid: str, epoch: int) -> Vote | NoVote:
        if not self._reaches(node):
            return await self._no_vote(node)
        master = self._node
        answer = self._all.registers[node].decide(lambda old: check_epoch(old, epoch, master))
        if answer.granted:
            self._all.heard[node] = master, asyncio.get_running_loop().time()
        return await self._vote(node, answer)
