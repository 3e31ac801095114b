"""Asking several candidates: the newest answer counts, forged ones do not."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from ganeti.clients.confd import ConfdClient, NoAnswer, enough
from ganeti.protocols.confd import Asked, QueryType, Status, pack_answer, parse_request
from tests.support.predictable import FrozenClock

KEY = b"k" * 32
Answering = Callable[[Asked], list[bytes]]


class Candidates(asyncio.DatagramProtocol):
    """What listens at one port of several loopback addresses."""

    def __init__(self) -> None:
        self.clock = FrozenClock()
        self.port = 0
        self.transports: list[asyncio.DatagramTransport] = []
        self.asked: list[str] = []

    async def add(self, answering: Answering) -> str:
        address = f"127.0.0.{len(self.transports) + 1}"
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Candidate(self, address, answering), local_addr=(address, self.port)
        )
        self.transports.append(transport)
        self.port = transport.get_extra_info("sockname")[1]
        return address

    def client(self, *more: str) -> ConfdClient:
        addresses = [one.get_extra_info("sockname")[0] for one in self.transports]
        return ConfdClient(KEY, [*addresses, *more], port=self.port, clock=self.clock)


class _Candidate(asyncio.DatagramProtocol):
    def __init__(self, all_of_them: Candidates, address: str, answering: Answering) -> None:
        self.all, self.address, self.answering = all_of_them, address, answering

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.all.asked.append(self.address)
        asked = parse_request(data, (KEY,), self.all.clock.time())
        assert asked is not None
        for packet in self.answering(asked):
            self.transport.sendto(packet, addr)  # type: ignore[attr-defined] # of datagrams


@pytest.fixture
async def candidates() -> AsyncIterator[Candidates]:
    made = Candidates()
    yield made
    for transport in made.transports:
        transport.close()
    await asyncio.sleep(0)


def of(serial: int, text: str = "") -> Answering:
    return lambda asked: [pack_answer(asked, Status.OK, text or str(serial), serial)]


def silence(_asked: Asked) -> list[bytes]:
    return []


@pytest.mark.requirement("S52")
async def test_the_answer_of_the_highest_serial_counts(candidates: Candidates) -> None:
    for serial in (5, 7, 6):
        await candidates.add(of(serial))
    found = await candidates.client().ask(QueryType.MASTER)
    assert (found.answer.answer, found.answer.serial, found.answered) == ("7", 7, 3)
    both = await candidates.client().ask(QueryType.MASTER, asked=2)
    assert both.answered == both.asked == 2


@pytest.mark.requirement("A36", "S55")
async def test_forged_answers_are_passed_over(candidates: Candidates) -> None:
    def forging(asked: Asked) -> list[bytes]:
        honest = pack_answer(asked, Status.OK, "honest", 3)
        other = Asked(asked.request.__class__(1, 3, "another salt"), asked.key, "")
        stranger = Asked(asked.request, b"another key" * 3, "")
        forged = [pack_answer(one, Status.OK, "forged", 99) for one in (other, stranger)]
        return [*forged, b"", b"plj0", honest[:-1], honest, *forged]

    await candidates.add(forging)
    found = await candidates.client().ask(QueryType.MASTER)
    assert (found.answer.answer, found.answer.serial) == ("honest", 3)


@pytest.mark.requirement("S52")
async def test_silent_candidates_cost_the_limit_at_most_and_are_asked_again(
    candidates: Candidates,
) -> None:
    first = await candidates.add(silence)
    third = await candidates.add(silence)
    second = await candidates.add(of(4))
    found = await candidates.client().ask(QueryType.MASTER, limit_s=0.7)
    assert (found.answer.serial, found.answered, found.asked) == (4, 1, 3)
    assert candidates.asked.count(first) == candidates.asked.count(third) == 2
    assert candidates.asked.count(second) == 1


@pytest.mark.requirement("S52")
async def test_only_some_of_many_are_asked(candidates: Candidates) -> None:
    for serial in range(9):
        await candidates.add(of(serial + 1))
    found = await candidates.client().ask(QueryType.MASTER, asked=4)
    assert (found.asked, len(set(candidates.asked))) == (4, 4)
    assert found.answered == 4


@pytest.mark.requirement("S52")
async def test_one_dead_candidate_of_three_costs_no_time_to_speak_of(
    candidates: Candidates,
) -> None:
    await candidates.add(silence)
    for serial in (5, 7):
        await candidates.add(of(serial))
    found = await candidates.client().ask(QueryType.MASTER, limit_s=60)
    assert (found.answer.serial, found.answered, found.asked) == (7, 2, 3)


async def test_no_candidate_answers(candidates: Candidates) -> None:
    await candidates.add(silence)
    with pytest.raises(NoAnswer, match="none of 1 master candidates"):
        await candidates.client().ask(QueryType.PING, limit_s=0.05)
    with pytest.raises(NoAnswer, match="no master candidate is known"):
        await ConfdClient(KEY, []).ask(QueryType.PING)


async def test_a_closed_port_is_ignored_and_other_answers_count(candidates: Candidates) -> None:
    await candidates.add(of(4))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM):
        found = await candidates.client("127.0.0.77").ask(QueryType.PING, limit_s=0.1)
    assert found.answer.serial == 4
    assert json.loads(found.answer.answer) == 4


@pytest.mark.parametrize(("asked", "wanted"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4)])
def test_how_many_answers_are_enough(asked: int, wanted: int) -> None:
    assert enough(asked) == wanted
