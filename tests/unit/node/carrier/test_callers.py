"""Listening for one caller: strangers neither get in nor in its way."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base import certificates, tls
from ganeti.base.errors import HostError
from ganeti.node.carrier import callers
from ganeti.node.carrier.callers import CALLERS, Expected, listen
from ganeti.node.carrier.greeting import LINE_LIMIT
from ganeti.node.tasks import open_port

WAIT_S = 50.0


class Listener:
    """Listens in a thread for who says "hello"."""

    def __init__(self, directory: Path) -> None:
        key = certificates.new_key()
        (directory / "key").write_bytes(key)
        (directory / "pem").write_bytes(
            certificates.for_transfer(key, "x509-00000001", time.time())
        )
        self._files = (directory / "pem", directory / "key", directory / "pem")
        self._listener = open_port("127.0.0.1", directory / "port")
        self._port = int((directory / "port").read_text())
        self.heard: bytes | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def call(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), timeout=WAIT_S)

    def secured(self) -> ssl.SSLSocket:
        return tls.client_context(*self._files).wrap_socket(self.call())

    def wait(self) -> bytes | None:
        self._thread.join(WAIT_S)
        return self.heard

    def _run(self) -> None:
        expected = Expected(tls.server_context(*self._files), lambda _stream: None, self._greet)
        found = listen(self._listener, expected, wait_s=WAIT_S)
        if found is not None:
            self.heard = found[1]
            found[0].close()

    @staticmethod
    def _greet(line: bytes) -> bytes:
        if line != b"hello\n":
            raise HostError("it says something else")
        return line


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    found = Listener(tmp_path)
    try:
        yield found
    finally:
        if found.heard is None:
            with found.secured() as last:
                last.sendall(b"hello\n")
        found.wait()


@pytest.mark.requirement("A61")
def test_expected_caller_is_accepted_while_others_are_silent(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "SAY_S", 1000.0)
    strangers = [listener.call() for _ in range(CALLERS - 2)]
    strangers[0].sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a handshake
    half = listener.secured()
    half.sendall(b"hel")
    with listener.secured() as right:
        right.sendall(b"hello\n")
        assert listener.wait() == b"hello\n"
    for one in (*strangers, half):
        with one:
            assert not gives(one), "it was not hung up on"


@pytest.mark.requirement("A61")
def test_silent_or_wrong_caller_is_disconnected(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "SAY_S", 1000.0)
    with listener.secured() as wrong, listener.secured() as long, listener.call() as plain:
        wrong.sendall(b"something else\n")
        assert not gives(wrong)
        long.sendall(bytes(LINE_LIMIT + 1))
        assert not gives(long)
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        while gives(plain):  # an alert that this is not TLS
            pass
    monkeypatch.setattr(callers, "SAY_S", 0.05)
    with listener.call() as silent:
        assert not gives(silent)


@pytest.mark.requirement("A61")
def test_too_many_silent_ones_push_out_the_oldest_and_the_right_one_gets_through(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "SAY_S", 1000.0)
    strangers = [listener.call() for _ in range(CALLERS)]
    with listener.secured() as right:
        assert not gives(strangers[0]), "it was not hung up on"
        right.sendall(b"hello\n")
        assert listener.wait() == b"hello\n"
    for one in strangers:
        one.close()


def gives(stream: socket.socket) -> bytes:
    """What comes next; b'' after the end."""
    try:
        return stream.recv(100)
    except ConnectionError:
        return b""
