"""The master in the view of asyncio programs: the REST server, benchmarks, tests."""

import asyncio
import socket
from pathlib import Path
from typing import Any

from ganeti.base.errors import ProtocolError
from ganeti.protocols.luxi import MessageBuffer, encode_request, error_of, parse_answer

CONNECT_LIMIT_S = 30.0
CONNECT_INTERVAL_S = 0.01


class AsyncLuxiClient:
    """One connection; its calls are sequential."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = MessageBuffer()
        self._turn = asyncio.Lock()
        self.is_degraded = False

    @classmethod
    async def connect(cls, path: Path) -> "AsyncLuxiClient":
        """Return a new connection; OSError."""
        return cls(*await asyncio.open_unix_connection(sock=await _connected(path)))

    async def call(self, method: str, *args: Any) -> Any:
        """Return the result of one request, or raise its error."""
        async with self._turn:
            try:
                self._writer.write(encode_request(method, list(args)))
                await self._writer.drain()
                answer = parse_answer(await self._receive())
            except BaseException:
                # A late answer must not be mistaken for that of the next call.
                self._writer.transport.abort()
                raise
        self.is_degraded = answer.degraded
        if not answer.success:
            raise error_of(answer)
        return answer.result

    @property
    def is_open(self) -> bool:
        """True if further requests are possible; not after an error of the connection."""
        return not self._writer.transport.is_closing()

    def abort(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        await self._writer.wait_closed()

    async def _receive(self) -> bytes:
        while True:
            data = await self._reader.read(256 * 1024)
            if not data:
                raise ConnectionResetError(None, "the master daemon closed the connection")
            messages = self._buffer.feed(data)
            if len(messages) == 1:
                return messages[0]
            if messages:
                raise ProtocolError("the master daemon sent more than one answer")


async def _connected(path: Path) -> socket.socket:
    """Return a connected socket.

    A busy listener refuses with EAGAIN, which does not begin a connection, although asyncio would treat it as one.
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
