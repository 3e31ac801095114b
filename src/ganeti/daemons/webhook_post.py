"""Sends one request of a webhook: only to permitted addresses, with bounds of time and size.

The host's addresses are checked at each request, and the connection goes to a checked address, so a name that changes its
address in between reaches nothing else. Redirects are not followed.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from http import HTTPStatus
from typing import Any

from ganeti.base.addresses import is_address
from ganeti.base.clock import Clock
from ganeti.base.errors import InputError
from ganeti.base.http import aiohttp
from ganeti.base.terminal import escaped
from ganeti.base.tls import authorities_context
from ganeti.model.webhook import Webhook
from ganeti.protocols.webhook import Happened, body, check_url, headers, refusal_of
from ganeti.units.services import Posted

CONNECT_S, TOTAL_S = 5.0, 15.0
"""Limits for the connection, and for the whole request including the name's resolution."""
ANSWER_LIMIT = 4096
"""Bytes of an answer that are read, for its part in the error; the connection is closed after them."""
SHOWN = 200
"""Characters of an answer in an error."""
RESOLVERS = 4
"""Threads that resolve names: a name server that does not answer holds only these."""

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Host, port -> its IP addresses; OSError."""


class _CheckedAddresses(aiohttp.abc.AbstractResolver):
    """Gives aiohttp the addresses that were checked."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - the interface
    ) -> list[Any]:
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
                "proto": 0,
                "flags": socket.AI_NUMERICHOST,
            }
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


class WebhookPoster:
    """Sends requests; `close` ends the threads that resolve names."""

    def __init__(self, clock: Clock, resolve: Resolve | None = None) -> None:
        self._clock = clock
        self._resolve = resolve or self._by_system
        self._threads: ThreadPoolExecutor | None = None

    async def close(self) -> None:
        """End the threads that resolve names, without waiting for a name server."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def __call__(
        self, cluster: str, webhook: Webhook, delivery: str, events: Sequence[Happened], /
    ) -> Posted:
        """Send events in one request; never raises because of the receiver."""
        content = body(cluster, webhook.name, events)
        stamp = int(self._clock.time())
        sent = headers(webhook.name, delivery, stamp, webhook.secret, content)
        begun = self._clock.monotonic()
        status, error = 0, ""
        try:
            async with asyncio.timeout(TOTAL_S):
                status, error = await self._send(webhook, sent, content)
        except TimeoutError:
            error = f"no answer within {TOTAL_S:g} s"
        except (aiohttp.ClientError, OSError, InputError, UnicodeError) as err:
            error = str(err) or type(err).__name__
        return Posted(status, self._clock.monotonic() - begun, escaped(error, 500))

    async def _send(
        self, webhook: Webhook, sent: dict[str, str], content: bytes
    ) -> tuple[int, str]:
        addresses = await self._addresses(webhook)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        connector = aiohttp.TCPConnector(
            resolver=_CheckedAddresses(addresses), use_dns_cache=False, force_close=True
        )
        context = self._context_of(webhook) if webhook.verify_tls else False
        async with (
            aiohttp.ClientSession(
                connector=connector,
                timeout=timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            ) as client,
            client.post(
                webhook.url, data=content, headers=sent, ssl=context, allow_redirects=False
            ) as answer,
        ):
            with contextlib.suppress(aiohttp.ClientError):
                said = await answer.content.read(ANSWER_LIMIT)
            if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
                return answer.status, ""
            if HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST:
                return answer.status, f"status {answer.status}: redirects are not followed"
            text = said[:SHOWN].decode(errors="replace").strip()
            return answer.status, f"status {answer.status}: {text}" if text else f"status {answer.status}"  # fmt: skip

    async def _addresses(self, webhook: Webhook) -> list[str]:
        """Return the addresses of the host, all of which are permitted; InputError, OSError."""
        parts = check_url(webhook.url)
        host = str(parts.hostname)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        found = [host] if is_address(host) else await self._resolve(host, port)
        for address in found:
            if why := refusal_of(address, allow_local=webhook.allow_local):
                raise InputError(why)
        return found

    async def _by_system(self, host: str, port: int) -> list[str]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="webhook-names")
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return list(dict.fromkeys(str(one[4][0]) for one in found))

    def _context_of(self, webhook: Webhook) -> ssl.SSLContext:
        """Return the authorities of the webhook, or those of the system; InputError."""
        return authorities_context(webhook.authorities) if webhook.authorities else self._context

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context()
