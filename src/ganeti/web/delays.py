"""Bounds on guesses of passwords, for each address and for each name: one at a time, and ever more slowly.

A guess that fails costs its address and its name 0.1 s, then twice as much each time, up to 2 s. The next guess from
that address, or at that name, waits for that time before the password is compared, whether or not the client still
waits for its answer. A right password does not end the delays of its address. Credentials that were right before, from the
same address, wait for nothing: guesses of others do not slow them.
"""

import asyncio
import hmac
import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar

from ganeti.web.refusals import Refusal

FIRST_S = 0.1
LONGEST_S = 2.0
FORGET_S = 60.0
WAITING_LIMIT = 16
"""Guesses that may wait for their turn, from one address or at one name; more are refused at once."""
KNOWN_LIMIT = 10_000
"""Addresses and names, and right credentials, that are remembered."""
_PREFIX = 64
"""Bits of an IPv6 address that belong to one host or more."""

T = TypeVar("T")


@dataclass
class _Guesses:
    """What was guessed from an address, or at a name."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    failed: float = 0.0
    """When a guess failed last."""
    delay_s: float = 0.0
    """How long after that the next guess must wait."""


class LoginDelays:
    """Who has guessed lately."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._guesses: OrderedDict[tuple[str, str], _Guesses] = OrderedDict()
        self._right: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        """Addresses, and digests of credentials that were right from there."""
        self._key = secrets.token_bytes(32)

    async def login(
        self, address: str, name: str | None, credentials: str, check: Callable[[], T | None]
    ) -> T | None:
        """Return what `check` returns, in the turn of the address and the name; None after a delay. Refusal (429).

        `name` is None where the credentials have no name, as a token.
        """
        digest = hmac.digest(self._key, credentials.encode("utf-8", "surrogateescape"), "sha256")
        known = (address, digest)
        if known in self._right:
            if (user := check()) is not None:
                self._right.move_to_end(known)
                return user
            del self._right[known]
        keys = [("address", _network(address))] + ([("name", name)] if name is not None else [])
        async with AsyncExitStack() as turns:
            guesses = [await turns.enter_async_context(self._turn(key)) for key in keys]
            user = check()
            if user is not None:
                self._right[known] = None
                _cut(self._right)
                return user
            delay_s = max(self._fail(one) for one in guesses)
        await asyncio.sleep(delay_s)
        return None

    @asynccontextmanager
    async def _turn(self, key: tuple[str, str]) -> AsyncIterator[_Guesses]:
        """Wait until no other guess is being made, and until the delay of the last one is over."""
        one = self._guesses.setdefault(key, _Guesses())
        self._guesses.move_to_end(key)
        _cut(self._guesses)
        if one.waiting >= WAITING_LIMIT:
            why = "too many logins fail from this address or with this name; try again later"
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
    """The address, or of IPv6 the network of one host."""
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
