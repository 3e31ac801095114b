"""Connections between the master daemons of candidates, and access to the registers of all nodes.

The state stream is TLS on a port of its own, with the same certificates and the same list of
candidates as the node RPC. Node daemons answer for the registers of other nodes. The local register
is read directly, so a node keeps its vote while its own node daemon is down.
"""

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace

from ganeti import __version__
from ganeti.base.connections import watch_other_end
from ganeti.base.errors import GanetiError, HostError, ProtocolError, RpcError
from ganeti.base.tls import peer_fingerprint
from ganeti.model import wire
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.client import RpcClient
from ganeti.rpc.procedures.form import PROTOCOL_VERSION, Nothing
from ganeti.rpc.procedures.mastership import (
    REGISTER_ACCEPT,
    REGISTER_PROMISE,
    REGISTER_READ,
    REGISTER_RENEW,
    AcceptArgs,
    PromiseArgs,
    RegisterAnswer,
    RenewArgs,
)
from ganeti.store.backend import StateBackend
from ganeti.store.election import SILENCE_S, NoVote, Vote, Voter
from ganeti.store.interface import CampaignKind, Position, Row
from ganeti.store.register import AcceptRequest, PromiseRequest
from ganeti.store.stream import (
    LENGTH,
    MESSAGE_LIMIT,
    Channel,
    ChannelClosed,
    Message,
    Voters,
    decode_message,
    encode_message,
)

STATE_PORT = 1816
CONNECT_S = 3.0
HANDSHAKE_S = 10.0
VOTE_S = 2.0
AHEAD_BYTES, AHEAD_MESSAGES = 16 << 20, 64
"""Bytes that a channel reads ahead of its receiver."""

_log = logging.getLogger(__name__)


@dataclass
class NodeDirectory:
    """The nodes by UUID, from the state that this daemon read last."""

    nodes: dict[NodeUuid, Node] = field(default_factory=dict)

    async def read(self, store: StateBackend) -> None:
        """Read the nodes from the store."""
        found: dict[NodeUuid, Node] = {}
        async with contextlib.aclosing(store.load()) as rows:
            async for row in rows:
                if isinstance(row, Row) and row.kind == "node":
                    with contextlib.suppress(GanetiError):
                        node = wire.decode(row.value, Node)
                        found[node.uuid] = node
                elif isinstance(row, Position):
                    continue
        self.nodes = found

    def voter(self, uuid: NodeUuid) -> Callable[[], Voter]:
        """Return this daemon's answer about its own node, sent with each vote."""

        def describe() -> Voter:
            node = self.nodes.get(uuid)
            return Voter(master_capable=node is None or node.master_capable, software=__version__)

        return describe

    def online(self) -> frozenset[NodeUuid]:
        """Return the nodes that are not marked offline."""
        return frozenset(uuid for uuid, node in self.nodes.items() if not node.offline)

    def take(self, nodes: Iterable[Node]) -> None:
        """Replace the nodes with those of the configuration."""
        self.nodes = {node.uuid: node for node in nodes}

    def name(self, uuid: NodeUuid) -> str:
        """Return the node's name, or the UUID if the node is not known."""
        node = self.nodes.get(uuid)
        return node.name if node else uuid


@dataclass(frozen=True)
class RenewalAnswer:
    """The time that a node took to confirm the master's epoch, and its answer."""

    seconds: float
    answer: Vote | NoVote


class RpcVoters:
    """The registers of all nodes.

    The local register is read by `local` even while the local node daemon is down.
    """

    def __init__(
        self, own: NodeUuid, local: Voters, rpc: RpcClient, directory: NodeDirectory
    ) -> None:
        self._own, self._local = own, local
        self._rpc, self._directory = rpc, directory
        self.answers: dict[NodeUuid, RenewalAnswer] = {}
        """The answer of each node to the master's last renewal of its epoch."""

    async def read(self, node: NodeUuid) -> Vote | NoVote:
        answer = await self._asked(
            node, lambda target: self._rpc.call(target, REGISTER_READ, Nothing())
        )
        if node != self._own:
            return answer
        own = await self._local.read(node)
        if isinstance(own, Vote) and isinstance(answer, Vote):
            return replace(
                own, heard=answer.heard
            )  # the node daemon is what a master renews its epoch with
        return own

    async def promise(
        self, node: NodeUuid, request: PromiseRequest, kind: CampaignKind
    ) -> Vote | NoVote:
        if node == self._own:
            return await self._local.promise(node, request, kind)
        args = PromiseArgs(request=request, kind=kind)
        return await self._asked(
            node, lambda target: self._rpc.call(target, REGISTER_PROMISE, args)
        )

    async def accept(self, node: NodeUuid, request: AcceptRequest) -> Vote | NoVote:
        if node == self._own:
            return await self._local.accept(node, request)
        args = AcceptArgs(request=request)
        return await self._asked(node, lambda target: self._rpc.call(target, REGISTER_ACCEPT, args))

    async def renew(self, node: NodeUuid, cluster_uuid: str, epoch: int) -> Vote | NoVote:
        args = RenewArgs(
            cluster_uuid=cluster_uuid, epoch=epoch, master_uuid=self._own, silence_s=SILENCE_S
        )
        asked_at = asyncio.get_running_loop().time()
        # The local node daemon learns the epoch too, because other nodes ask it for votes.
        answer = await self._asked(
            node, lambda target: self._rpc.call(target, REGISTER_RENEW, args)
        )
        self.answers[node] = RenewalAnswer(asyncio.get_running_loop().time() - asked_at, answer)
        if node == self._own:
            return await self._local.renew(node, cluster_uuid, epoch)
        return answer

    async def _asked(
        self, node: NodeUuid, question: Callable[[Node], Awaitable[RegisterAnswer]]
    ) -> Vote | NoVote:
        target = self._directory.nodes.get(node)
        if target is None:
            return NoVote("this node does not know its address")
        try:
            async with asyncio.timeout(VOTE_S):
                state = await question(target)
        except TimeoutError:
            return NoVote(f"no answer within {VOTE_S:g} s")
        except RpcError as err:
            return NoVote(err.reason)
        return vote_of(state)


def vote_of(answer: RegisterAnswer) -> Vote | NoVote:
    """Return the vote that a node's answer means; a node with another protocol has no vote (R8)."""
    if answer.vote is None:
        return NoVote(answer.why or "the node has not joined a cluster")
    if answer.protocol != PROTOCOL_VERSION:
        software = answer.vote.voter.software or "unknown"
        return NoVote(
            f"the node speaks node RPC {answer.protocol} (version {software}), this node "
            f"{PROTOCOL_VERSION}: upgrade the older of the two"
        )
    return answer.vote


class TlsChannel(asyncio.Protocol):
    """A channel of messages over one TLS connection.

    It decodes messages as they arrive, ahead of the receiver, so that many messages can share a sync.
    """

    def __init__(self, connected: Callable[["TlsChannel"], None] | None = None) -> None:
        """`connected` is called once the connection is ready for messages."""
        self._connected = connected
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        """The beginning of a message that is not complete."""
        self._ahead: deque[tuple[Message, int]] = deque()
        self._ahead_bytes = 0
        self._is_paused = False
        self._receiver: asyncio.Future[None] | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._ended = ""
        """The reason why no further message arrives; '' while the connection is open."""

    @property
    def transport(self) -> asyncio.Transport:
        """The connection; ChannelClosed if there is none yet."""
        if self._transport is None:
            raise ChannelClosed("the connection is not open yet")
        return self._transport

    async def send(self, message: Message) -> None:
        transport = self.transport
        if self._ended or transport.is_closing():
            raise ChannelClosed(self._ended or "the connection is closed")
        transport.write(encode_message(message))
        if not self._can_write.is_set():
            await self._can_write.wait()
            if self._ended:
                raise ChannelClosed(self._ended)

    async def receive(self) -> Message:
        while not self._ahead:
            if self._ended:
                raise ChannelClosed(self._ended)
            self._receiver = asyncio.get_running_loop().create_future()
            await self._receiver
        message, size = self._ahead.popleft()
        self._ahead_bytes -= size
        if self._is_paused and not self._is_full() and not self.transport.is_closing():
            self._is_paused = False
            self.transport.resume_reading()
        return message

    def has_more(self) -> bool:
        return bool(self._ahead)

    def close(self) -> None:
        self._end("the connection is closed")

    # Events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream's
        self._transport = transport
        if (connection := transport.get_extra_info("socket")) is not None:
            watch_other_end(connection)
        if self._connected is not None:
            self._connected(self)

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        self._data += data
        try:
            self._decode()
        except GanetiError as err:
            self._end(str(err))
        self._wake()
        if self._is_full() and not (self._is_paused or self._ended):
            self._is_paused = True
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        why = "the peer closed the connection"
        self._end(why if exc is None else str(exc) or type(exc).__name__)

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def _decode(self) -> None:
        """Take the complete messages out of what has arrived."""
        data, start = self._data, 0
        while len(data) - start >= LENGTH.size:
            (size,) = LENGTH.unpack_from(data, start)
            if size > MESSAGE_LIMIT:
                raise ProtocolError(f"a message of {size} bytes is too long")
            end = start + LENGTH.size + size
            if len(data) < end:
                break
            self._ahead.append((decode_message(bytes(data[start + LENGTH.size : end])), size))
            self._ahead_bytes += size
            start = end
        del data[:start]

    def _is_full(self) -> bool:
        return self._ahead_bytes > AHEAD_BYTES or len(self._ahead) >= AHEAD_MESSAGES

    def _wake(self) -> None:
        if self._receiver is not None and not self._receiver.done():
            self._receiver.set_result(None)

    def _end(self, why: str) -> None:
        self._ended = self._ended or why
        self._can_write.set()
        self._wake()
        if self._transport is not None:
            self._transport.close()


class TlsPeers:
    """Connections to the master daemons of other candidates, checked against the configured certificates."""

    def __init__(
        self, context: ssl.SSLContext, directory: NodeDirectory, local_address: str | None
    ) -> None:
        self._context, self._directory = context, directory
        self._local_address = local_address

    async def connect(self, node: NodeUuid) -> Channel:
        target = self._directory.nodes.get(node)
        if target is None:
            raise ChannelClosed("the address of this node is not known")
        try:
            async with asyncio.timeout(CONNECT_S):
                _, channel = await asyncio.get_running_loop().create_connection(
                    TlsChannel,
                    target.primary_ip,
                    STATE_PORT,
                    ssl=self._context,
                    server_hostname="",
                    local_addr=(self._local_address, 0) if self._local_address else None,
                )
        except TimeoutError:
            raise ChannelClosed(f"no connection within {CONNECT_S:g} s") from None
        except OSError as err:
            raise ChannelClosed(err.strerror or str(err)) from err
        if peer_fingerprint(channel.transport) not in target.certificates:
            channel.close()
            raise ChannelClosed("its certificate is not the one in the configuration")
        return channel


@contextlib.asynccontextmanager
async def listening(
    context: ssl.SSLContext,
    address: str | None,
    allowed: Callable[[], frozenset[str]],
    serve: Callable[[Channel], Awaitable[None]],
) -> AsyncIterator[None]:
    """Pass connections of candidates to `serve` for as long as the block runs."""
    serving: set[asyncio.Task[None]] = set()

    async def accept_one(channel: TlsChannel) -> None:
        try:
            caller = peer_fingerprint(channel.transport)
            if caller is None or caller not in allowed():
                _log.warning("refused a connection: %s is not a master candidate", caller)
                return
            await serve(channel)
        finally:
            channel.close()

    def called(channel: TlsChannel) -> None:
        task = asyncio.create_task(accept_one(channel), name="candidate")
        serving.add(task)
        task.add_done_callback(ended)

    def ended(task: asyncio.Task[None]) -> None:
        serving.discard(task)
        if not task.cancelled() and (err := task.exception()) is not None:
            _log.error("a connection of a candidate failed", exc_info=err)

    try:
        server = await asyncio.get_running_loop().create_server(
            lambda: TlsChannel(called),
            address or None,
            STATE_PORT,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_S,
            reuse_address=True,
        )
    except OSError as err:
        where = f"{address or '*'} port {STATE_PORT}"
        raise HostError(f"cannot listen at {where}: {err.strerror or err}") from err
    try:
        yield
    finally:
        server.close()
        for task in list(serving):
            task.cancel()
        if serving:
            await asyncio.wait(list(serving))
