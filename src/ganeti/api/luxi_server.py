"""The server of LUXI connections: an idle connection costs only its socket (S189, S190).

A connection has no task of its own. Bytes are collected until a message is complete. A request that
needs no waiting is answered in the same turn of the loop. Otherwise one task handles the messages
of that connection, one at a time, and sends the answers. The server closes a connection whose
client sends too much or too slowly, or does not read its answers.
"""

import asyncio
import logging
import socket
import struct
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ganeti.api import unix_socket
from ganeti.base.errors import GanetiError, InputError
from ganeti.base.staggered_waker import StaggeredWaker
from ganeti.protocols.luxi import (
    MESSAGE_LIMIT,
    Answer,
    MessageBuffer,
    MessageTooLongError,
    Request,
    refusal,
)
from ganeti.protocols.luxi_requests import PART_BYTES, answer_parts, encode_answer, parse_request

_log = logging.getLogger(__name__)

OFF_LOOP_BYTES = 64 * 1024
"""A longer message is parsed in a thread."""
AT_ONCE_BYTES = 4 * 1024
"""A longer message is never answered without a task."""
AT_ONCE_A_TURN = 64
"""Maximum number of requests that are answered in one turn of the loop; each takes less than 0.1 ms."""
PARTS_A_TURN = 1
"""Number of parts of large answers that are encoded in one turn of the loop, for all clients together."""
READ_BYTES = 64 * 1024
"""Bytes per read.

Into one buffer of the server, since allocating for each read costs more than a small request.
"""
AHEAD_BYTES = 256 * 1024
"""Maximum bytes of the next messages that are read while one is being handled."""
ACCEPTS_A_TURN = 64
"""Number of new clients that are accepted before the loop gets a turn."""
_PEER = struct.Struct("3i")


@dataclass(frozen=True)
class Limits:
    """Bounds on what clients can make the daemon hold (docs/rules.md, limits)."""

    clients: int = 12_000
    message_bytes: int = MESSAGE_LIMIT
    message_s: float = 30.0
    """Time limit from the first byte of a message to its end."""
    total_bytes: int = 256 * 1024 * 1024
    """Maximum bytes of all incomplete messages."""
    drain_s: float = 60.0
    """Time limit for a client to read an answer."""


@dataclass(frozen=True)
class Caller:
    """The client process (SO_PEERCRED)."""

    uid: int
    gid: int
    pid: int


class Dispatcher(Protocol):
    """Answers requests."""

    def answer_at_once(self, request: Request, caller: Caller) -> Answer | None:
        """Return the answer to a cheap request; None: `answer` must be called."""
        ...

    async def answer(self, request: Request, caller: Caller) -> Answer:
        """Return the answer; never raises for a fault of the client."""
        ...

    def is_abandonable(self, method: str) -> bool:
        """Return whether a request may be dropped when its client disconnects."""
        ...


@dataclass(frozen=True)
class ServerStatistics:
    """Counts for metrics and tests."""

    clients: int
    busy: int
    requests: int
    buffered_bytes: int
    refused: int


class LuxiServer:
    """One socket and its clients."""

    def __init__(
        self,
        path: Path,
        dispatcher: Dispatcher,
        *,
        limits: Limits | None = None,
        group: int | None = None,
    ) -> None:
        self.path = path
        self.dispatcher = dispatcher
        self.limits = limits or Limits()
        self._group = group
        self._listener: unix_socket.Listener | None = None
        self._server: asyncio.Server | None = None
        self.connections: set[_Connection] = set()
        self.buffered_bytes = 0
        self.requests = 0
        self.refused = 0
        self.turns = StaggeredWaker()
        self.quick_turns = StaggeredWaker(AT_ONCE_A_TURN)
        self.parts = StaggeredWaker(PARTS_A_TURN)
        self.read_buffer = memoryview(bytearray(READ_BYTES))

    async def start(self) -> None:
        """Listen; ConfigurationError if the path is in use."""
        self._listener = unix_socket.Listener(self.path, group=self._group)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: _Connection(self), sock=self._listener.socket, backlog=ACCEPTS_A_TURN
        )
        # asyncio uses its backlog for both purposes; more clients may be waiting to be accepted.
        self._listener.socket.listen(unix_socket.BACKLOG)

    async def close(self) -> None:
        """Stop listening, end running requests, disconnect all clients."""
        if self._server is not None and self._listener is not None:
            self._server.close()
            self._listener.close()
        tasks = [one.task for one in self.connections if one.task is not None]
        for connection in list(self.connections):
            connection.abort()
        await asyncio.gather(*tasks, return_exceptions=True)
        # The loop reports lost connections in its next turn.
        await asyncio.sleep(0)

    def statistics(self) -> ServerStatistics:
        busy = sum(one.task is not None for one in self.connections)
        return ServerStatistics(
            len(self.connections), busy, self.requests, self.buffered_bytes, self.refused
        )


class _Connection(asyncio.BufferedProtocol):
    """One client."""

    def __init__(self, server: LuxiServer) -> None:
        self._server = server
        self._buffer = MessageBuffer(server.limits.message_bytes)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._caller = Caller(-1, -1, -1)
        self._deadline: asyncio.TimerHandle | None = None
        self._is_ended = False
        self._is_paused = False
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._method = ""
        self._parsed: Request | None = None
        """The next message, if it has been read already."""
        self._last_words = b""
        self.task: asyncio.Task[None] | None = None

    # Events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream server's
        self._transport = transport
        self._caller = _peer(transport.get_extra_info("socket"))
        server = self._server
        if len(server.connections) >= server.limits.clients:
            server.refused += 1
            self._fail(f"more than {server.limits.clients} clients are connected; try again later")
            return
        server.connections.add(self)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._server.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._server.read_buffer[:nbytes])
        before = self._buffer.pending_bytes
        try:
            messages = self._buffer.feed(data)
        except MessageTooLongError as err:
            self._server.buffered_bytes -= before
            self._buffer = MessageBuffer()
            self._fail(err.message)
            return
        self._server.buffered_bytes += self._buffer.pending_bytes - before
        if self._server.buffered_bytes > self._server.limits.total_bytes:
            self._fail("the master daemon holds too many incomplete messages; try again later")
            return
        for message in messages:
            self._waiting.append(message)
            self._waiting_bytes += len(message)
        self._watch_the_clock(has_new=bool(messages))
        if self._waiting and self.task is None:
            self._answer_at_once()
            if self._waiting or not self._can_write.is_set():
                self.task = asyncio.get_running_loop().create_task(self._work(), name="luxi-client")
        self._pause_if_full()

    def eof_received(self) -> bool:
        """Answer the requests before the end; drop those that only wait for changes."""
        self._is_ended = True
        if self.task is None:
            return False
        if self._server.dispatcher.is_abandonable(self._method):
            self.task.cancel()
        return True

    def connection_lost(self, _exc: Exception | None) -> None:
        self._is_ended = True
        self._server.connections.discard(self)
        self._server.buffered_bytes -= self._buffer.pending_bytes
        self._buffer = MessageBuffer()
        self._waiting.clear()
        self._parsed = None
        self._can_write.set()
        self._stop_the_clock()
        if self.task is not None and self._server.dispatcher.is_abandonable(self._method):
            self.task.cancel()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    # Requests

    def abort(self) -> None:
        """Disconnect at once."""
        if self.task is not None:
            self.task.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _answer_at_once(self) -> None:
        """Answer the first received messages that need no task, in one write."""
        server, answers = self._server, list[bytes]()
        is_next = server.quick_turns.may_continue
        while self._waiting and len(self._waiting[0]) <= AT_ONCE_BYTES and is_next():
            try:
                request = parse_request(self._waiting[0])
                answer = server.dispatcher.answer_at_once(request, self._caller)
            except Exception:  # noqa: BLE001 - whose fault it is, the task says
                break
            if answer is None:
                self._parsed = request
                break
            server.requests += 1
            answers.append(encode_answer(answer))
            self._take_message()
        if answers and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(answers))

    def _take_message(self) -> bytes:
        message = self._waiting.popleft()
        self._waiting_bytes -= len(message)
        return message

    async def _work(self) -> None:
        """Answer the received messages in order."""
        try:
            await self._drain()
            while self._waiting:
                message = self._take_message()
                parsed, self._parsed = self._parsed, None
                await self._server.turns.turn()
                await self._send(await self._answer(message, parsed))
                self._resume_if_empty()
        except Exception:  # noqa: BLE001 - one connection must not end the others
            _log.exception("a LUXI connection failed")
            self.abort()
        finally:
            self.task = None
            self._method = ""
            if self._is_ended:
                self._hang_up()

    async def _answer(self, message: bytes, parsed: Request | None) -> Answer:
        self._server.requests += 1
        try:
            request = parsed or await self._parse(message)
        except InputError as err:
            return Answer(False, f"Failed to parse request: {err.message}")
        self._method = request.method
        try:
            return await self._server.dispatcher.answer(request, self._caller)
        except GanetiError as err:
            return refusal(err)
        except Exception:  # noqa: BLE001 - the log learns why, and the daemon lives on
            _log.exception("LUXI request %s failed", request.method)
            return Answer(
                False,
                f"Internal error in {request.method}; the log of ganeti-masterd has the details",
            )
        finally:
            self._method = ""

    async def _parse(self, message: bytes) -> Request:
        if len(message) <= OFF_LOOP_BYTES:
            return parse_request(message)
        return await asyncio.to_thread(parse_request, message)

    async def _send(self, answer: Answer) -> None:
        """Send an answer; a large one in parts, each made once the client has read the previous one."""
        for part in answer_parts(answer):
            if self._transport is None or self._transport.is_closing():
                return
            self._transport.write(part)
            await self._drain()
            if len(part) >= PART_BYTES:
                await self._server.parts.turn()

    async def _drain(self) -> None:
        """Wait until the client has read its answers; disconnect it if it does not."""
        if self._transport is None or self._can_write.is_set():
            return
        try:
            async with asyncio.timeout(self._server.limits.drain_s):
                await self._can_write.wait()
        except TimeoutError:
            self._transport.abort()

    # Limits

    def _pause_if_full(self) -> None:
        ahead = self._waiting_bytes + self._buffer.pending_bytes
        if self.task is not None and ahead > AHEAD_BYTES and self._transport is not None:
            self._transport.pause_reading()
            self._is_paused = True
            self._stop_the_clock()

    def _resume_if_empty(self) -> None:
        if self._is_paused and not self._waiting and self._transport is not None:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
                self._watch_the_clock(has_new=True)

    def _watch_the_clock(self, *, has_new: bool) -> None:
        """Limit the time of a message; further bytes of it do not extend the limit."""
        if self._is_ended:
            return
        is_pending = bool(self._buffer.pending_bytes)
        if self._deadline is not None and (has_new or not is_pending):
            self._stop_the_clock()
        if is_pending and self._deadline is None:
            seconds = self._server.limits.message_s
            why = f"a message was not complete within {seconds:g} s"
            self._deadline = asyncio.get_running_loop().call_later(seconds, self._fail, why)

    def _stop_the_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _fail(self, why: str) -> None:
        """Send the error and disconnect, after the answer to the running request."""
        self._last_words = encode_answer(Answer(False, why))
        self._is_ended = True
        self._waiting.clear()
        self._parsed = None
        self._stop_the_clock()
        if self.task is None:
            self._hang_up()
        elif self._transport is not None:
            self._transport.pause_reading()

    def _hang_up(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            if self._last_words:
                self._transport.write(self._last_words)
            self._transport.close()


def _peer(connection: socket.socket) -> Caller:
    size = _PEER.size
    pid, uid, gid = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return Caller(uid, gid, pid)
