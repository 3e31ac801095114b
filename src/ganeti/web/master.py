"""The REST server's client of the master: reused connections, and answers that are kept for a moment."""

import asyncio
import contextlib
from http import HTTPStatus
from pathlib import Path
from typing import Any

from ganeti.base.errors import GanetiError
from ganeti.clients.luxi_async import AsyncLuxiClient
from ganeti.web.refusals import Refusal

CALL_LIMIT_S = 60.0
MOST_CALLS = 64
"""Limit of concurrent requests at the master; others wait for their turn."""
MOST_WAITS = 1024
"""Limit of requests that only wait at the master (`/2/jobs/J/wait`, events)."""
AGAIN_S = (0.2, 0.5, 1.0, 2.0)
"""Delays of repeated submissions with a key after a lost connection, for example while the master restarts."""


class MasterConnections:
    """Calls to the master daemon of this node."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._idle: list[AsyncLuxiClient] = []
        self._calls = asyncio.Semaphore(MOST_CALLS)
        self._waits = asyncio.Semaphore(MOST_WAITS)
        self.calls = 0
        self.failures = 0

    async def close(self) -> None:
        """Close all connections."""
        idle, self._idle = self._idle, []
        for client in idle:
            with contextlib.suppress(OSError):
                await client.close()

    async def ask(self, method: str, *args: Any) -> Any:
        """Return the answer to a query, which may be sent twice; GanetiError, Refusal (502, 504)."""
        async with self._calls:
            return await self._repeated(method, args, (0.0,))

    async def submit(self, method: str, *args: Any) -> Any:
        """Send a request with its own key, and repeat it while the master daemon restarts; result as of `ask`."""
        async with self._calls:
            return await self._repeated(method, args, AGAIN_S)

    async def act(self, method: str, *args: Any) -> Any:
        """Send a request only once; result as of `ask`."""
        async with self._calls:
            return await self._repeated(method, args, ())

    async def wait(self, method: str, *args: Any) -> Any:
        """Send a request without a time limit; Refusal (503) if too many requests wait."""
        if self._waits.locked():
            why = "too many waiting requests; try again later"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, why, {"Retry-After": "5"})
        async with self._waits:
            return await self._repeated(method, args, (0.0,))

    async def _repeated(self, method: str, args: tuple[Any, ...], again: tuple[float, ...]) -> Any:
        self.calls += 1
        pauses = list(again)
        while True:
            try:
                async with asyncio.timeout(CALL_LIMIT_S + 10):
                    return await self._once(method, args)
            except TimeoutError:
                self.failures += 1
                why = "the master daemon does not answer"
                raise Refusal(HTTPStatus.GATEWAY_TIMEOUT, why) from None
            except OSError as err:
                if not pauses:
                    self.failures += 1
                    why = "the master daemon of this node does not answer; see its log"
                    raise Refusal(HTTPStatus.BAD_GATEWAY, why) from err
                await asyncio.sleep(pauses.pop(0))

    async def _once(self, method: str, args: tuple[Any, ...]) -> Any:
        client = self._idle.pop() if self._idle else await AsyncLuxiClient.connect(self._socket)
        try:
            result = await client.call(method, *args)
        except GanetiError:
            self._keep(client)
            raise
        except OSError:
            # The other connections are as old as this one: the daemon may have restarted.
            await self.close()
            raise
        self._keep(client)
        return result

    def _keep(self, client: AsyncLuxiClient) -> None:
        if client.is_open and len(self._idle) < MOST_CALLS:
            self._idle.append(client)
        else:
            client.abort()
