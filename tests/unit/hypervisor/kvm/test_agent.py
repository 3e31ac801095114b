"""A guest's agent that answers, that does not, and that does its worst."""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti.hypervisor.kvm import agent as agent_module
from ganeti.hypervisor.kvm.agent import (
    ANSWER_LIMIT,
    LONGEST,
    MOST,
    AgentRefused,
    AgentSilent,
    GuestAgent,
)

pytestmark = pytest.mark.requirement("A64")

Answer = Callable[[dict[str, Any], asyncio.StreamWriter], Awaitable[None]]
LOOPBACK = {"name": "lo", "hardware-address": "00:00:00:00:00:00"}
NIC = {
    "name": "eth0",
    "hardware-address": "aa:00:00:00:00:01",
    "ip-addresses": [
        {"ip-address": "192.0.2.7", "ip-address-type": "ipv4", "prefix": 24},
        {"ip-address": "fe80::1", "ip-address-type": "ipv6", "prefix": 64},
    ],
}
ANSWERS: dict[str, Any] = {
    "guest-network-get-interfaces": [LOOPBACK, NIC],
    "guest-get-osinfo": {"pretty-name": "Debian GNU/Linux 12", "kernel-release": "6.1.0"},
    "guest-get-host-name": {"host-name": "web1"},
    "guest-ping": {},
    "guest-fsfreeze-freeze": 3,
    "guest-fsfreeze-thaw": 3,
    "guest-fsfreeze-status": "thawed",
}


class Guest:
    """What listens behind the channel: well-behaved, unless it was given something else to do."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.instead: dict[str, Answer] = {}
        self.before_sync = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            writer.write(self.before_sync)
            while True:
                line = await reader.readuntil(b"\n")
                question = json.loads(line.rpartition(b"\xff")[2])
                name = question["execute"]
                self.asked.append(name)
                if name in self.instead:
                    await self.instead[name](question, writer)
                elif name == "guest-sync-delimited":
                    token = {"return": question["arguments"]["id"]}
                    writer.write(b"\xff" + json.dumps(token).encode() + b"\n")
                else:
                    writer.write(json.dumps({"return": ANSWERS[name]}).encode() + b"\n")
        writer.close()


def says(data: bytes, times: int = 1) -> Answer:
    async def answer(_question: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        for _ in range(times):
            writer.write(data)
            await writer.drain()

    return answer


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gnt-") as name:
        yield Path(name) / "a"


@pytest.fixture
async def guest(path: Path) -> AsyncIterator[Guest]:
    one = Guest()
    server = await asyncio.start_unix_server(one.serve, path)
    yield one
    server.close()
    await server.wait_closed()


async def test_a_guest_reports_its_system(guest: Guest, path: Path) -> None:
    found = await GuestAgent(path).info()
    assert (found.host_name, found.os, found.kernel) == ("web1", "Debian GNU/Linux 12", "6.1.0")
    assert [(one.name, one.addresses) for one in found.interfaces] == [
        ("lo", []),
        ("eth0", ["192.0.2.7/24", "fe80::1/64"]),
    ]


async def test_what_is_left_of_an_earlier_conversation_is_passed_over(
    guest: Guest, path: Path
) -> None:
    guest.before_sync = b'ory"}\n{"return": 17}\n[1]\n\xff{"error": {"desc": "what?"}}\n'
    assert (await GuestAgent(path).info()).host_name == "web1"


async def test_what_the_agent_does_not_know_stays_empty(guest: Guest, path: Path) -> None:
    unknown = b'{"error": {"class": "CommandNotFound", "desc": "not found"}}\n'
    guest.instead = {"guest-get-osinfo": says(unknown)}
    found = await GuestAgent(path).info()
    assert (found.os, found.host_name) == ("", "web1")


@pytest.mark.parametrize(
    ("data", "times"),
    [
        (b"x" * 65536, 1600),  # 100 MiB in one line
        (b"\n" * 65536, 64),
        (b'{"return": 1}\n' * 4096, 64),
        (b"", 1),
        (b"[" * 100_000 + b"\n", 1),
        (b'{"return": 5}\n', 1),
        (b'{"return": [[{"name": 3}]]}\n', 1),
    ],
)
async def test_an_agent_that_does_its_worst_costs_little(
    guest: Guest, path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, times: int
) -> None:
    monkeypatch.setattr(agent_module, "ANSWER_S", 1.0)
    for name in ("guest-network-get-interfaces", "guest-sync-delimited"):
        guest.instead = {name: says(data, times)}
        with pytest.raises(AgentSilent):
            await GuestAgent(path).info()
    guest.instead = {}
    assert (await GuestAgent(path).info()).host_name == "web1"


async def test_output_of_an_agent_is_limited(guest: Guest, path: Path) -> None:
    many = [{**NIC, "name": "n" * 5000, "ip-addresses": NIC["ip-addresses"] * 500}] * 100  # type: ignore[operator]  # a list
    assert len(json.dumps(many)) > ANSWER_LIMIT
    guest.instead = {
        "guest-network-get-interfaces": says(json.dumps({"return": many[:5]}).encode() + b"\n")
    }
    found = await GuestAgent(path).info()
    assert len(found.interfaces) == 5
    assert len(found.interfaces[0].name) == LONGEST
    assert len(found.interfaces[0].addresses) == MOST


async def test_freezing_and_thawing_may_be_repeated(guest: Guest, path: Path) -> None:
    agent = GuestAgent(path)
    await agent.ping()
    assert await agent.freeze() == 3
    guest.instead = {"guest-fsfreeze-status": says(b'{"return": "frozen"}\n')}
    assert await agent.freeze() == 0
    assert guest.asked.count("guest-fsfreeze-freeze") == 1
    assert await agent.thaw() == 3
    guest.instead = {"guest-fsfreeze-thaw": says(b'{"error": {"desc": "busy"}}\n')}
    with pytest.raises(AgentRefused, match="busy"):
        await agent.thaw()


async def test_the_clock_is_set_in_nanoseconds(guest: Guest, path: Path) -> None:
    asked: list[dict[str, Any]] = []

    async def answer(question: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        asked.append(question)
        writer.write(b'{"return": {}}\n')

    guest.instead = {"guest-set-time": answer}
    await GuestAgent(path).set_time(1.5)
    assert asked == [{"execute": "guest-set-time", "arguments": {"time": 1_500_000_000}}]
    guest.instead = {"guest-set-time": says(b'{"error": {"desc": "unknown command"}}\n')}
    with pytest.raises(AgentRefused, match="unknown command"):
        await GuestAgent(path).set_time(1.5)


async def test_a_shutdown_is_not_answered(
    guest: Guest, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "ANSWER_S", 0.2)
    guest.instead = {"guest-shutdown": says(b"")}
    await GuestAgent(path).shutdown()
    assert guest.asked[-1] == "guest-shutdown"


async def test_no_process_listens(path: Path) -> None:
    with pytest.raises(AgentSilent, match="cannot be reached"):
        await GuestAgent(path).info()
