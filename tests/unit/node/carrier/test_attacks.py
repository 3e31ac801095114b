"""Carrying disks past who cuts, changes, stalls or pretends; `socat` at either end."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base import certificates
from ganeti.base.errors import GanetiError, HostError, InputError
from ganeti.node.carrier import program
from ganeti.node.carrier.connection import accept, connect
from ganeti.node.carrier.greeting import Greeting
from ganeti.node.carrier.order import TlsFiles
from ganeti.node.tasks import open_port
from ganeti.rpc.procedures.streams import (
    STREAM_RECEIVE,
    STREAM_SEND,
    STREAM_STATUS,
    TRANSFER_KEY_CREATE,
    TRANSFER_KEY_REMOVE,
    StreamArgs,
    TransferKeyArgs,
)
from tests.support.stream_nodes import (
    KEYS,
    MIB,
    NAME,
    RAW,
    Node,
    receive,
    send,
    stream_nodes,
)

THERE = StreamArgs(instance_name=NAME, token="the token", receives=True)
DAY_S = 24 * 3600


@pytest.fixture
async def nodes(disk_path: Path) -> AsyncIterator[tuple[Node, Node]]:
    async with stream_nodes(disk_path) as found:
        yield found


class Between:
    """Forwards one connection; cuts it, or flips a bit, after so many bytes from the caller."""

    def __init__(self, port: int, *, cut: int | None = None, flip: int | None = None) -> None:
        self._port, self._cut, self._flip = port, cut, flip
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            caller, _ = self._listener.accept()
            with caller, socket.create_connection(("127.0.0.1", self._port)) as called:
                back = threading.Thread(target=self._copy, args=(called, caller))
                back.start()
                self._forward(caller, called)
                for one in (caller, called):
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)
                back.join()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := bytearray(source.recv(65536)):
                if self._flip is not None and 0 <= self._flip - passed < len(data):
                    data[self._flip - passed] ^= 1
                if self._cut is not None and passed + len(data) >= self._cut:
                    target.sendall(data[: self._cut - passed])
                    return
                target.sendall(data)
                passed += len(data)
            target.shutdown(socket.SHUT_WR)
            time.sleep(0.05)


@pytest.mark.requirement("A61", "F32", "G14", "G24")
@pytest.mark.parametrize(
    "harm",
    [
        {"cut": 3},
        {"cut": 1200},
        {"cut": MIB},
        {"cut": 4 * MIB},
        {"flip": 3 * MIB // 2},
    ],
)
async def test_what_is_cut_or_changed_on_the_way_fails_at_both_ends(
    nodes: tuple[Node, Node], harm: dict[str, int]
) -> None:
    data = nodes[0].fill(os.urandom(4 * MIB))
    nodes[1].fill(b"")
    # A caller who never shows its certificate is hung up on, and the receiver waits on for the right one.
    patience = 3 if harm.get("cut", MIB) < MIB else 60
    source, target = nodes
    pems = await source.certificate("out"), await target.certificate("in")
    order = receive(pems[0], disk=RAW, hold=True, wait_s=patience)
    between = Between((await target.call(STREAM_RECEIVE, order)).port, **harm)
    try:
        with pytest.raises(GanetiError, match=r"not sent|is not the expected one|has ended"):
            await source.call(STREAM_SEND, send(pems[1], between.port, disk=RAW))
    finally:
        await asyncio.to_thread(between.end)
    await target.idle()
    status = await target.call(STREAM_STATUS, THERE)
    assert (status.running, status.result) == (False, None)
    assert status.error
    assert nodes[0].disk().read_bytes() == data


@pytest.mark.requirement("A61")
async def test_no_caller_is_accepted_after_the_expected_one(nodes: tuple[Node, Node]) -> None:
    source, target = nodes
    data = source.fill(b"data")
    target.fill(b"")
    pems = await source.certificate("out"), await target.certificate("in")
    order = receive(pems[0], disk=RAW, hold=True)
    port = (await target.call(STREAM_RECEIVE, order)).port
    sending = asyncio.create_task(source.call(STREAM_SEND, send(pems[1], port, disk=RAW)))
    async with asyncio.timeout(40):
        while (await target.call(STREAM_STATUS, THERE)).result is None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    second = replace(send(pems[1], port, disk=RAW), token="another token")
    with pytest.raises(GanetiError, match="cannot connect"):
        await source.call(STREAM_SEND, second)
    assert not sending.done()
    assert target.disk().read_bytes() == data
    sending.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sending


def both_ends(
    directory: Path, size: int, parts: dict[str, dict[str, Any]], *, traced: bool = False
) -> "list[subprocess.Popen[bytes]]":
    """The programs of both ends; `traced` has their writes written down beside their orders."""
    now = time.time()
    ends = {"in": pair(directory, "a", now), "out": pair(directory, "b", now)}
    both: dict[str, Any] = {"size": size, "limit": size, "token": "t", "address": "127.0.0.1"}
    processes: list[subprocess.Popen[bytes]] = []
    port_file = directory / "in.port"
    listener = open_port("127.0.0.1", port_file)
    for end, peer in (("in", "out"), ("out", "in")):
        order = {**both, **parts[end]}
        names = ("path", "argv")
        part = {name: order.pop(name) for name in names if name in order}
        order["sink" if end == "in" else "source"] = part
        order |= {"certificate": str(ends[end].certificate), "key": str(ends[end].key)}
        order["peer"] = str(ends[peer].certificate)
        if end == "out":
            order["port"] = int(port_file.read_text())
        file = directory / f"{end}.order"
        file.write_text(json.dumps(order))
        words = [sys.executable, "-m", program.__name__, str(file)]
        if traced:
            calls = "write,writev,pwrite64,pwritev,pwritev2,sendfile,copy_file_range,splice"
            trace = ["-ff", "-y", "-s0", "-e", f"trace={calls}", "-e", "signal=none"]
            words = ["strace", *trace, "-o", str(directory / f"{end}.trace"), *words]
        stdin = listener.fileno() if end == "in" else subprocess.DEVNULL
        processes.append(subprocess.Popen(words, stdin=stdin, stderr=subprocess.DEVNULL))
    listener.close()
    return processes


WRITTEN = re.compile(r"\w+\(\d+<(/[^>]*)>.* = (\d+)$")


def written_to_files(directory: Path) -> dict[str, int]:
    """Path -> bytes that both ends and all that they started have written there."""
    found: dict[str, int] = {}
    for trace in directory.glob("*.trace.*"):
        for line in trace.read_text().splitlines():
            if match := WRITTEN.match(line):
                found[match[1]] = found.get(match[1], 0) + int(match[2])
    return found


@pytest.mark.sampled(0)
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.requirement("S211")
@pytest.mark.parametrize("form", ["raw", "script"])
def test_no_disk_is_stored_anywhere_on_its_way(tmp_path: Path, form: str) -> None:
    size, files = 4 * MIB, {"in": tmp_path / "target", "out": tmp_path / "source"}
    files["out"].write_bytes(os.urandom(size))
    files["in"].touch()
    parts: dict[str, dict[str, Any]] = {
        "in": {"path": str(files["in"])},
        "out": {"path": str(files["out"])},
    }
    if form == "script":
        parts = {
            "in": {"argv": ["dd", f"of={files['in']}", "bs=64k", "status=none"]},
            "out": {"argv": ["cat", str(files["out"])]},
        }
    for part in parts.values():
        part |= {"form": form, "compress": "gzip-fast"}
    processes = both_ends(tmp_path, size, parts, traced=True)
    assert [process.wait(50) for process in processes] == [0, 0]
    assert files["in"].read_bytes() == files["out"].read_bytes()
    written = written_to_files(tmp_path)
    assert written.pop(str(files["in"])) == size
    assert sum(written.values()) < MIB // 16, f"it was stored on its way: {written}"


@pytest.mark.requirement("F32", "G14")
def test_full_disk_is_reported_to_the_sender(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(8 * MIB))
    parts: dict[str, dict[str, Any]] = {
        "in": {"path": "/dev/full", "form": "raw"},
        "out": {"path": str(source), "form": "raw"},
    }
    processes = both_ends(tmp_path, 8 * MIB, parts)
    assert [process.wait(50) for process in processes] == [1, 1]
    for end in ("in", "out"):
        said = (tmp_path / f"{end}.error").read_text()
        assert "No space left on device for /dev/full; free some space" in said
    assert "the receiver" in said


# --- certificates ---


def pair(directory: Path, name: str, now: float) -> TlsFiles:
    """Files of a new key; `peer` is to be set."""
    key = certificates.new_key()
    (directory / f"{name}.key").write_bytes(key)
    made = certificates.for_transfer(key, f"x509-{name * 10}", now)
    (directory / f"{name}.pem").write_bytes(made)
    return TlsFiles(directory / f"{name}.pem", directory / f"{name}.key", directory)


def listening(files: TlsFiles, heard: list[str]) -> tuple[threading.Thread, int]:
    """A receiver in a thread, until one caller greets with a line."""
    port_file = files.certificate.with_suffix(".port")
    listener = open_port("127.0.0.1", port_file)

    def greet(line: bytes) -> Greeting:
        if line != b"hello\n":
            raise HostError("it says something else")
        return Greeting("hello", "", b"")

    def work() -> None:
        try:
            there, said = accept(listener, files, wait_s=2.0, greet=greet)
        except HostError as err:
            heard.append(str(err))
            return
        heard.append(said.form)
        there.tell(b"heard")
        there.close()

    thread = threading.Thread(target=work)
    thread.start()
    return thread, int(port_file.read_text())


@pytest.mark.requirement("A60", "S204", "S205", "F32")
@pytest.mark.parametrize("kind", ["right", "expired", "foreign", "signed by the right one"])
def test_only_the_certificate_itself_is_accepted_by_both_ends(tmp_path: Path, kind: str) -> None:
    now = time.time()
    own = pair(tmp_path, "a", now)
    caller = pair(tmp_path, "b", now - 3 * DAY_S if kind == "expired" else now)
    trusted = caller.certificate
    if kind in {"foreign", "signed by the right one"}:
        caller = pair(tmp_path, "c", now)
    heard: list[str] = []
    thread, port = listening(replace_peer(own, trusted), heard)
    answer = b""
    with contextlib.suppress(HostError, OSError):
        there = connect("127.0.0.1", port, replace_peer(caller, own.certificate))
        try:
            there.tell(b"hello\n")
            answer = there.read(5)
        finally:
            there.close()
    thread.join()
    right = kind == "right"
    assert answer == (b"heard" if right else b"")
    assert heard == ["hello"] if right else "no sender delivered the data" in heard[0]


def replace_peer(files: TlsFiles, peer: Path) -> TlsFiles:
    return TlsFiles(files.certificate, files.key, peer)


@pytest.mark.requirement("A60")
async def test_a_key_is_only_used_with_the_certificate_of_a_transfer(
    nodes: tuple[Node, Node], tmp_path: Path
) -> None:
    source, target = nodes
    await source.certificate("out")
    await target.certificate("in")
    key, now = certificates.new_key(), time.time()
    wrong = {
        "expired": certificates.for_transfer(key, KEYS["out"], now - 3 * DAY_S).decode(),
        "path": certificates.for_transfer(key, "../../etc/x", now).decode(),
        "other": certificates.new_authority(key, "c", "u", now).decode(),
        "none": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    }
    for what, pem in wrong.items():
        with pytest.raises((InputError, GanetiError)):
            await target.call(STREAM_RECEIVE, receive(pem, disk=RAW))
        assert not list(target.paths.streams.glob("*/*.order")), what


@pytest.mark.requirement("A60")
async def test_two_certificates_in_one_are_refused(
    nodes: tuple[Node, Node], tmp_path: Path
) -> None:
    source, target = nodes
    mine = await source.certificate("out")
    await target.certificate("in")
    stranger = pair(tmp_path, "s", time.time()).certificate.read_text("ascii")
    for both in (mine + stranger, stranger + mine):
        with pytest.raises(GanetiError):
            await target.call(STREAM_RECEIVE, receive(both, disk=RAW))
    assert target.tasks.running() == []


@pytest.mark.requirement("A60", "A43")
async def test_a_key_that_was_made_for_one_instance_moves_no_other(
    nodes: tuple[Node, Node],
) -> None:
    source, target = nodes
    await source.certificate("out")
    peer = await target.certificate("in")
    other = "web2.example.com"
    theirs = TransferKeyArgs(instance_name=other, key_name=KEYS["out"])
    with pytest.raises(InputError, match=f"made for {NAME}, not for {other}"):
        await source.call(STREAM_SEND, replace(send(peer, 1, disk=RAW), instance_name=other))
    for procedure in (TRANSFER_KEY_CREATE, TRANSFER_KEY_REMOVE):
        with pytest.raises(InputError, match="made for"):
            await source.call(procedure, theirs)
    assert source.keys.names() == [KEYS["out"]]
    assert source.tasks.running() == []


@pytest.mark.requirement("A61")
def test_silent_peer_is_disconnected(tmp_path: Path) -> None:
    now = time.time()
    own, other = pair(tmp_path, "a", now), pair(tmp_path, "b", now)
    heard: list[str] = []
    thread, port = listening(replace_peer(own, other.certificate), heard)
    there = connect("127.0.0.1", port, replace_peer(other, own.certificate))
    there.limit(0.2)
    with pytest.raises(HostError, match=r"has sent nothing for 0\.2 s"):
        there.read(1)
    there.close()
    thread.join()
    assert "no sender delivered the data" in heard[0]


# --- socat ---


def socat_options(files: TlsFiles) -> str:
    return f"cert={files.certificate},key={files.key},cafile={files.peer},verify=1,openssl-min-proto-version=TLS1.3"


@pytest.mark.skipif(shutil.which("socat") is None, reason="socat is not installed")
@pytest.mark.requirement("S204")
@pytest.mark.parametrize("is_right", [True, False])
def test_socat_may_be_either_end_if_its_certificate_is_the_one(
    tmp_path: Path, *, is_right: bool
) -> None:
    now = time.time()
    own, other, third = (pair(tmp_path, name, now) for name in "abc")
    trusted = other.certificate if is_right else third.certificate
    heard: list[str] = []
    thread, port = listening(replace_peer(own, trusted), heard)
    theirs = socat_options(replace_peer(other, own.certificate))
    name = "openssl-commonname=x509-aaaaaaaaaa"
    called = subprocess.run(
        ["socat", "-t5", "-", f"OPENSSL:127.0.0.1:{port},{theirs},{name}"],
        input=b"hello\n", capture_output=True, check=False, timeout=30,
    )  # fmt: skip
    thread.join()
    assert called.stdout == (b"heard" if is_right else b"")
    assert (heard == ["hello"]) is is_right

    # And the other way round: it listens, and trusts what we have, or not.
    trusts = own.certificate if is_right else third.certificate
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = socat_options(replace_peer(other, trusts))
    name = f"openssl-commonname=x509-{'a' if is_right else 'c'}" + ("a" if is_right else "c") * 9
    listens = f"OPENSSL-LISTEN:{port},bind=127.0.0.1,reuseaddr,{words},{name}"
    with subprocess.Popen(
        ["socat", "-d", "-d", listens, "SYSTEM:echo heard"], stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if b"listening on" in line:
                    break
            answer = b""
            with contextlib.suppress(HostError, OSError, ssl.SSLError):
                there = connect("127.0.0.1", port, replace_peer(own, other.certificate))
                with contextlib.suppress(HostError, OSError):
                    answer = there.read(5)
                there.close()
        finally:
            process.kill()
    assert answer == (b"heard" if is_right else b"")
