"""A client of confd: queries some master candidates, and uses the answer of the highest serial (S52, S55).

For holders of the cluster's key: programs of root on a candidate.
"""

import asyncio
import random
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from ganeti.base.clock import Clock, SystemClock
from ganeti.base.errors import GanetiError
from ganeti.base.paths import CONFD_PORT
from ganeti.protocols.confd import (
    PROTOCOL,
    Answer,
    Query,
    QueryType,
    Request,
    pack_request,
    parse_answer,
)

ASKED = 6
"""The limit of queried candidates."""
LIMIT_S = 5.0
AGAIN_S = 0.5
"""Datagrams get lost: a candidate that has not answered is queried again after this time."""
GRACE_S = 0.05
"""The wait for slower candidates once enough have answered: one of them may be the newest."""


class NoAnswer(GanetiError):
    """No candidate answered in time."""


@dataclass(frozen=True)
class BestAnswer:
    """The newest answer, and the number of answers."""

    answer: Answer
    answered: int
    asked: int


def enough(asked: int) -> int:
    """Return how many answers of this number of candidates to wait for: most of them, both of two."""
    return min(asked, asked // 2 + 1)


class ConfdClient:
    """Queries the candidates at some addresses; each query has a socket of its own."""

    def __init__(
        self,
        key: bytes,
        addresses: Sequence[str],
        *,
        port: int = CONFD_PORT,
        clock: Clock | None = None,
    ) -> None:
        self._key = key
        self._addresses = list(dict.fromkeys(addresses))
        self._port = port
        self._clock = clock or SystemClock()

    async def ask(
        self, kind: QueryType, query: Query = None, *, limit_s: float = LIMIT_S, asked: int = ASKED
    ) -> BestAnswer:
        """Return the received answer with the highest serial; NoAnswer if there is none within the limit."""
        chosen = random.sample(self._addresses, min(asked, len(self._addresses)))
        if not chosen:
            raise NoAnswer("no master candidate is known: name one by its address")
        conversation = _Conversation(
            self._key, Request(PROTOCOL, kind, str(uuid.uuid4()), query), len(chosen)
        )
        loop = asyncio.get_running_loop()
        transports = []
        try:
            for address in chosen:
                with suppress(OSError):
                    transport, _ = await loop.create_datagram_endpoint(
                        lambda: conversation, remote_addr=(address, self._port)
                    )
                    transports.append(transport)
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._converse(conversation, transports)
        finally:
            for transport in transports:
                transport.close()
        answers = conversation.answers
        if not answers:
            raise NoAnswer(
                f"none of {len(chosen)} master candidates answered within {limit_s:g} s: check that they run"
                " ganeti-confd with this key, and that clocks differ by less than five minutes"
            )
        best = max(answers.values(), key=lambda one: one.serial)
        return BestAnswer(best, len(answers), len(chosen))

    async def _converse(
        self, conversation: "_Conversation", transports: Sequence[asyncio.DatagramTransport]
    ) -> None:
        while not conversation.has_enough.is_set():
            packet = pack_request(self._key, conversation.request, self._clock.time())
            for transport in transports:
                if transport not in conversation.answers:
                    transport.sendto(packet)
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await conversation.has_enough.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await conversation.has_all.wait()


class _Conversation(asyncio.DatagramProtocol):
    """One query and its answers; other datagrams are ignored."""

    def __init__(self, key: bytes, request: Request, asked: int) -> None:
        self.request = request
        self.answers: dict[asyncio.BaseTransport, Answer] = {}
        self.has_enough, self.has_all = asyncio.Event(), asyncio.Event()
        self._key, self._asked = key, asked
        self._addresses: dict[object, asyncio.BaseTransport] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._addresses[transport.get_extra_info("peername")[:2]] = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        transport = self._addresses.get(addr[:2])
        answer = parse_answer(data, self._key, self.request.rsalt)
        if transport is None or answer is None:
            return
        self.answers[transport] = answer
        if len(self.answers) >= enough(self._asked):
            self.has_enough.set()
        if len(self.answers) >= self._asked:
            self.has_all.set()

    def error_received(self, exc: Exception) -> None:
        """Ignore the error: no process listens there now; other candidates may, and this one is queried again."""
