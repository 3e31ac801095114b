"""confd's socket: answers, silence, and nothing in between."""

import socket
from collections.abc import Iterator

import pytest

from ganeti.api.confd_server import AT_ONCE, REPEATS_LIMIT, ConfdServer, bound_socket
from ganeti.confd.facts import ClusterCopy
from ganeti.protocols.confd import QueryType, Request, Status, pack_request, parse_answer
from tests.unit.confd.cluster import POSITION, facts_of, objects

KEY = b"k" * 32
NOW = 1_700_000_000.0


def query(salt: str, kind: int = QueryType.MASTER, key: bytes = KEY, now: float = NOW) -> bytes:
    return pack_request(key, Request(1, kind, salt), now)


class Line:
    """A server at a socket, and a client of it; nothing waits."""

    def __init__(self, facts: ClusterCopy) -> None:
        self.socket = bound_socket("127.0.0.1", 0)
        self.server = ConfdServer(self.socket, (KEY,), lambda: facts)
        self.client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.client.bind(("127.0.0.1", 0))
        self.client.connect(self.socket.getsockname())
        self.client.setblocking(False)

    def said(self) -> list[bytes]:
        """What has come back."""
        self.server.readable(lambda: NOW)
        found = []
        while True:
            try:
                found.append(self.client.recv(65_536))
            except BlockingIOError:
                return found

    def close(self) -> None:
        self.socket.close()
        self.client.close()


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line(facts_of(objects()))
    yield made
    made.close()


@pytest.mark.requirement("S54", "S239")
def test_clock_tolerance_is_a_setting_of_the_server() -> None:
    facts = facts_of(objects())
    late = query("a", now=NOW - 400)
    with socket.socket() as line:
        assert ConfdServer(line, (KEY,), lambda: facts, 600).reply(late, NOW) is not None
        assert ConfdServer(line, (KEY,), lambda: facts).reply(late, NOW) is None


@pytest.mark.requirement("S53", "S64")
def test_answers_carry_the_position_of_the_state(line: Line) -> None:
    line.client.send(query("a"))
    line.client.send(query("b"))
    first, second = line.said()
    answer = parse_answer(first, KEY, "a")
    assert answer is not None
    assert (answer.answer, answer.serial) == ("node1.example.com", POSITION)
    assert parse_answer(second, KEY, "b")


@pytest.mark.requirement("G25", "A33", "A34", "A38")
def test_there_is_silence_for_everything_else(line: Line) -> None:
    noise = [b"", b"x", b"plj0", query("a", key=b"other" * 8), query("a", now=NOW - 301)]
    for packet in [*noise, query("a") + b" x", b"\0" * 61_441, b"\0" * 65_000]:
        line.client.send(packet)
    assert line.said() == []
    line.client.send(query("a"))
    assert len(line.said()) == 1


@pytest.mark.requirement("A38")
def test_a_flood_leaves_the_loop_its_turn(line: Line) -> None:
    for number in range(AT_ONCE + 10):
        line.client.send(query(str(number)))
    line.server.readable(lambda: NOW)
    assert 0 < len(line.said()) <= AT_ONCE + 10
    assert line.said() == []


@pytest.mark.requirement("A34")
def test_a_recorded_datagram_brings_no_stream_of_answers(line: Line) -> None:
    packet = query("a")
    answered = [line.server.reply(packet, NOW) for _ in range(1000)]
    assert sum(one is not None for one in answered) == REPEATS_LIMIT
    assert len({one for one in answered if one}) == 1
    assert line.server.reply(query("b"), NOW)
    assert line.server.reply(packet, NOW + 1)


@pytest.mark.requirement("S63")
def test_server_without_facts_is_silent() -> None:
    server = ConfdServer(socket.socket(), (KEY,), ClusterCopy)
    assert server.reply(query("a"), NOW) is None
    server._socket.close()


@pytest.mark.requirement("G25")
def test_a_fault_of_the_program_is_an_error_for_one_query(
    line: Line, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("ganeti.api.confd_server.answer", broken)
    packet = line.server.reply(query("a"), NOW)
    assert packet is not None
    found = parse_answer(packet, KEY, "a")
    assert found is not None
    assert found.status == Status.ERROR
    assert "a bug" in caplog.text
    assert "a bug" not in packet.decode()


def test_all_addresses_are_listened_at_by_default() -> None:
    with bound_socket("", 0) as opened:
        port = opened.getsockname()[1]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"x", ("127.0.0.1", port))
        assert opened.recv(10) == b"x"
