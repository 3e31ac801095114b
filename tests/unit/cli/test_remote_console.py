"""gnt-instance console of a guest on another node: through a real endpoint of that node's daemon."""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from ganeti.base.errors import ExecError
from ganeti.cli.gnt_instance import console, remote_console
from tests.support.patience import patience
from tests.unit.web.test_consoles import Guest, guest_of

LIMIT_S = 20.0


@dataclass
class OtherNode:
    """A node with a guest, in a thread of its own; stands in for the master, too."""

    loop: asyncio.AbstractEventLoop
    guest: Guest
    wrong: dict[str, Any]
    """What the master says wrongly of the endpoint."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def call(self, method: str, scope: None, instance: str, kind: str) -> dict[str, Any]:
        assert (method, scope) == ("OpenConsole", None)
        opened = asyncio.run_coroutine_threadsafe(
            self.guest.open(None, None, instance, kind), self.loop
        )
        return opened.result(LIMIT_S * patience()) | self.wrong


@pytest.fixture
def other_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OtherNode]:
    loop, ready = asyncio.new_event_loop(), threading.Event()
    found: list[OtherNode] = []
    ended = asyncio.Event()

    async def serve() -> None:
        rig: Any = SimpleNamespace(master=SimpleNamespace())
        async with guest_of(rig, tmp_path) as guest:
            found.append(OtherNode(loop, guest, {}))
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(LIMIT_S * patience())
    monkeypatch.setattr(remote_console, "LuxiClient", lambda: found[0])
    monkeypatch.setattr(console, "SILENCE_S", 0.3 * patience())
    yield found[0]
    loop.call_soon_threadsafe(ended.set)
    thread.join()
    loop.close()


def pumped(
    connection: socket.socket, typed: bytes, shows: int = 0, *, escape: int | None = None
) -> bytes:
    """Type into a console until the screen shows so many bytes; return what it shows."""
    source, keyboard = os.pipe()
    screen, sink = os.pipe()
    shown = bytearray()
    typing_end = os.fdopen(keyboard, "wb", buffering=0)

    def read() -> None:
        while data := os.read(screen, 65536):
            shown.extend(data)
            if len(shown) >= shows:
                typing_end.close()

    reader = threading.Thread(target=read)
    reader.start()
    typing_end.write(typed)
    if not shows:
        typing_end.close()
    with connection:
        console.pump(connection, source, sink, escape=escape)
    for one in (source, sink):
        os.close(one)
    reader.join()
    os.close(screen)
    return bytes(shown)


def test_guest_of_another_node_is_typed_to_and_shown(other_node: OtherNode) -> None:
    connection = remote_console.connect("web1", "serial")
    assert pumped(connection, b"root\n", 12) == b"login: ROOT\n"
    assert other_node.guest.connections == 1


def test_nothing_of_a_long_output_stays_behind(other_node: OtherNode) -> None:
    connection = remote_console.connect("web1", "serial")
    assert pumped(connection, b"x" * 50_000, 50_007) == b"login: " + b"X" * 50_000


def test_console_ends_with_its_guest_and_with_the_escape(other_node: OtherNode) -> None:
    assert pumped(remote_console.connect("web1", "serial"), b"poweroff") == b"login: "
    connection = remote_console.connect("web1", "serial")
    assert pumped(connection, b"\x1d", escape=console.ESCAPE) in (b"", b"login: ")


def test_log_of_a_console_comes_from_its_node(
    other_node: OtherNode, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = b"boot\r\n" + os.urandom(300_000)
    (tmp_path / "serial").unlink()
    (tmp_path / "serial").write_bytes(log)
    place = {"host": "node2.example.com"}
    assert console._show_log("web1", place, "/no/such/log") == 0
    assert capfdbinary.readouterr().out == log


def test_log_that_does_not_end_is_given_up(
    other_node: OtherNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = remote_console.connect("web1", "serial")  # it stays open
    monkeypatch.setattr(remote_console, "connect", lambda *_: connection)
    monkeypatch.setattr(remote_console, "LOG_S", 0.1)
    with pytest.raises(ExecError, match=r"did not arrive whole \(.*timed out\); run the command"):
        remote_console.read_log("web1")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"certificates": ["0" * 64]}, "another host answers at node node1"),
        ({"port": 1}, "cannot be reached: Connection refused"),
    ],
)
def test_endpoint_that_is_not_the_nodes_gets_no_secret(
    other_node: OtherNode, wrong: dict[str, Any], message: str
) -> None:
    other_node.wrong.update(wrong)
    with pytest.raises(ExecError, match=message):
        remote_console.connect("web1", "serial")
    assert other_node.guest.connections == 0


def test_command_needs_no_ssh_to_the_other_node(other_node: OtherNode) -> None:
    assert pumped(console._connected("web1", "/no/such/socket"), b"hi\n", 10) == b"login: HI\n"
