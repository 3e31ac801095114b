"""The master, for programs that run on asyncio: the REST server, benchmarks, tests."""

import asyncio
import socket
from pathlib import Path
from typing import Any

from ganeti.base.errors import ProtocolError
from ganeti.protocols.luxi import MessageBuffer, encode_request, error_of, parse_answer

CONNECT_LIMIT_S = 30.0
CONNECT_INTERVAL_S = 0.01


class AsyncLuxiClient:
    """One connection; calls on it follow each other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = MessageBuffer()
        self._turn = asyncio.Lock()
        self.is_degraded = False

    @classmethod
    async def connect(cls, path: Path) -> "AsyncLuxiClient":
        """A new connection; OSError."""
        return cls(*await asyncio.open_unix_connection(sock=await _connected(path)))

    async def call(self, method: str, *args: Any) -> Any:
        """The result of one request; its error is raised."""
        async with self._turn:
            try:
                self._writer.write(encode_request(method, list(args)))
                await self._writer.drain()
                answer = parse_answer(await self._receive())
            except BaseException:
                # A late answer must not be taken for that of the next call.
                self._writer.transport.abort()
                raise
        self.is_degraded = answer.degraded
        if not answer.success:
            raise error_of(answer)
        return answer.result

    @property
    def is_open(self) -> bool:
        """Whether more can be asked; not after an error of the line."""
        return not self._writer.transport.is_closing()

    def abort(self) -> None:
        """Hang up at once."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        await self._writer.wait_closed()

    async def _receive(self) -> bytes:
        while True:
            data = await self._reader.read(256 * 1024)
            if not data:
                raise ConnectionResetError(None, "the master daemon hung up")
            messages = self._buffer.feed(data)
            if len(messages) == 1:
                return messages[0]
            if messages:
                raise ProtocolError("the master daemon sent more than one answer")


async def _connected(path: Path) -> socket.socket:
    """A socket that is connected.

    A listener that is behind refuses with EAGAIN, which does not begin a connection, although
    asyncio would take it for one.
    """
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        one.setblocking(False)
        async with asyncio.timeout(CONNECT_LIMIT_S):
            while True:
                try:
                    one.connect(str(path))
                except BlockingIOError:
                    await asyncio.sleep(CONNECT_INTERVAL_S)
                else:
                    return one
    except BaseException:
        one.close()
        raise
