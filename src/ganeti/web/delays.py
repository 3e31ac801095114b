"""Limits on password guesses: one guess at a time for each address and each name, with growing delays.

The first wrong guess delays the next guess from its address or at its name by 0.1 s. Each further wrong guess
doubles the delay, up to 2 s. The server waits for the delay before it compares the password, even if the client
has gone. A right password does not reset the delay of its address. Credentials that were right before from the same
address are never delayed, so guesses of other users do not slow them.
"""

import asyncio
import hmac
import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar

from ganeti.web.refusals import Refusal

FIRST_S = 0.1
LONGEST_S = 2.0
FORGET_S = 60.0
WAITING_LIMIT = 16
"""Guesses that may wait from one address or at one name; further guesses are refused at once."""
KNOWN_LIMIT = 10_000
"""Limit of stored addresses, names and right credentials."""
_PREFIX = 64
"""Prefix length of the IPv6 network that counts as one address."""

T = TypeVar("T")


@dataclass
class _Guesses:
    """The guesses from an address or at a name."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    failed: float = 0.0
    """Time of the last wrong guess."""
    delay_s: float = 0.0
    """Delay of the next guess after that time."""


class LoginDelays:
    """The recent guesses of all addresses and names."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._guesses: OrderedDict[tuple[str, str], _Guesses] = OrderedDict()
        self._right: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        """Addresses, and digests of credentials that were right from there."""
        self._key = secrets.token_bytes(32)

    async def login(
        self,
        address: str,
        name: str | None,
        credentials: str,
        check: Callable[[], Awaitable[T | None]],
    ) -> T | None:
        """Wait for the turn of the address and the name, and return the result of `check`; Refusal (429).

        The result is None after a delay. `name` is None for credentials without a name, such as a token.
        """
        digest = hmac.digest(self._key, credentials.encode("utf-8", "surrogateescape"), "sha256")
        known = (address, digest)
        if known in self._right:
            if (user := await check()) is not None:
                self._right.move_to_end(known)
                return user
            del self._right[known]
        keys = [("address", _network(address))] + ([("name", name)] if name is not None else [])
        async with AsyncExitStack() as turns:
            guesses = [await turns.enter_async_context(self._turn(key)) for key in keys]
            try:
                user = await check()
            except asyncio.CancelledError:  # a client that hangs up early has guessed nevertheless
                for one in guesses:
                    self._fail(one)
                raise
            if user is not None:
                self._right[known] = None
                _cut(self._right)
                return user
            delay_s = max(self._fail(one) for one in guesses)
        await asyncio.sleep(delay_s)
        return None

    @asynccontextmanager
    async def _turn(self, key: tuple[str, str]) -> AsyncIterator[_Guesses]:
        """Wait until no other guess is in progress and the delay of the last guess is over."""
        one = self._guesses.setdefault(key, _Guesses())
        self._guesses.move_to_end(key)
        _cut(self._guesses)
        if one.waiting >= WAITING_LIMIT:
            why = "too many failed logins from this address or with this name; try again later"
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, why, {"Retry-After": "5"})
        one.waiting += 1
        try:
            async with one.turn:
                if (left := one.failed + one.delay_s - self._now()) > 0:
                    await asyncio.sleep(left)
                yield one
        finally:
            one.waiting -= 1

    def _fail(self, one: _Guesses) -> float:
        now = self._now()
        is_new = not one.delay_s or now - one.failed > FORGET_S
        one.delay_s = FIRST_S if is_new else min(one.delay_s * 2, LONGEST_S)
        one.failed = now
        return one.delay_s


def _network(address: str) -> str:
    """Return the address, or for IPv6 the network of one host."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4 or found.is_loopback:  # noqa: PLR2004 - the version of IP
        return address
    return str(ipaddress.ip_network((found, _PREFIX), strict=False))


def _cut(known: OrderedDict[Any, Any]) -> None:
    if len(known) > KNOWN_LIMIT:
        known.popitem(last=False)
