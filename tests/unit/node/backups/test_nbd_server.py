"""Disks of a backup by NBD: exactly their bytes, for real and for hostile clients, and damage as an error of the read."""

import contextlib
import json
import random
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from ganeti.node.backups.directory import opened
from ganeti.node.backups.images import Chain, open_chain
from ganeti.node.backups.nbd_server import (
    ALLOCATION,
    CONNECTIONS_LIMIT,
    FLAGS,
    READ_BYTES,
    NbdServer,
)
from ganeti.protocols import nbd
from ganeti.protocols.nbd import ChunkKind, Command, Export, Option, Reply
from tests.support.backup_store import BLOCK, DISK, BackupStore
from tests.support.patience import patience
from tests.unit.node.backups.test_directory import flip, with_three

pytestmark = pytest.mark.requirement("A64")


@pytest.fixture
def store(tmp_path: Path) -> BackupStore:
    return BackupStore(tmp_path / "backups", tmp_path)


class Served:
    """The last backup of a store at a socket, and what the server has reported."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data = path, data
        self.reports: list[str] = []

    def connect(self) -> "Client":
        return Client(self.path)


@contextlib.contextmanager
def served(store: BackupStore) -> Iterator[Served]:
    *_, (point, data) = store.expected.items()
    path = store.work / "nbd"
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(opened(store.path))
        contents = directory.contents()
        chain = stack.enter_context(
            open_chain(directory.descriptor, contents.points[point], DISK, contents.points)
        )
        found = Served(path, data)
        server = NbdServer({"0": chain, "1": Chain(chain.layers, BLOCK)}, found.reports.append)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen(64)
        thread = threading.Thread(target=server.run, args=[listener])
        thread.start()
        try:
            yield found
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10 * patience())


class Client:
    """A client that sends what it is told to."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10 * patience())
        self.socket.connect(str(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def exactly(self, length: int) -> bytes:
        found = b""
        while len(found) < length:
            part = self.socket.recv(length - len(found))
            if not part:
                raise EOFError
            found += part
        return found

    def greet(self, flags: int = 3) -> None:
        assert self.exactly(nbd.GREETING.size)[:16] == b"NBDMAGICIHAVEOPT"
        self.send(struct.pack(">I", flags))

    def option(self, option: int, data: bytes = b"") -> list[tuple[int, bytes]]:
        self.send(nbd.OPTION.pack(nbd.OPTION_MAGIC, option, len(data)) + data)
        replies = []
        while True:
            _, asked, kind, length = nbd.OPTION_REPLY.unpack(self.exactly(nbd.OPTION_REPLY.size))
            assert asked == option
            replies.append((kind, self.exactly(length)))
            if kind == Reply.ACK or kind >= Reply.ERROR:
                return replies

    def go(self, name: str = "0", option: Option = Option.GO) -> list[tuple[int, bytes]]:
        return self.option(option, struct.pack(">I", len(name)) + name.encode() + bytes(2))

    def ask(self, command: int, offset: int, length: int, data: bytes = b"") -> int:
        self.send(nbd.REQUEST.pack(nbd.REQUEST_MAGIC, 0, command, 7, offset, length) + data)
        magic, error, handle = nbd.SIMPLE.unpack(self.exactly(nbd.SIMPLE.size))
        assert (magic, handle) == (nbd.SIMPLE_MAGIC, 7)
        return int(error)

    def chunk(
        self,
        command: int,
        offset: int,
        length: int,
        flags: int = 0,
        kind: ChunkKind = ChunkKind.DATA,
    ) -> bytes:
        self.send(nbd.REQUEST.pack(nbd.REQUEST_MAGIC, flags, command, 7, offset, length))
        magic, done, was, handle, size = nbd.CHUNK.unpack(self.exactly(nbd.CHUNK.size))
        assert (magic, done, was, handle) == (nbd.CHUNK_MAGIC, nbd.CHUNK_DONE, kind, 7)
        return self.exactly(size)

    def status(self, offset: int, length: int, flags: int = 0) -> list[tuple[int, int]]:
        data = self.chunk(Command.STATUS, offset, length, flags, ChunkKind.STATUS)
        assert data[:4] == struct.pack(">I", 1)
        return list(struct.iter_unpack(">II", data[4:]))

    def read(self, offset: int, length: int) -> bytes:
        assert self.ask(Command.READ, offset, length) == 0
        return self.exactly(length)


def test_any_bytes_are_those_of_the_disk(store: BackupStore) -> None:
    with_three(store)
    dice = random.Random(1)
    with served(store) as one, one.connect() as client:
        client.greet()
        client.go()
        for _ in range(100):
            begin = dice.randrange(len(one.data))
            length = min(dice.randrange(1, 5 * BLOCK), len(one.data) - begin)
            assert client.read(begin, length) == one.data[begin : begin + length]
        assert client.read(0, len(one.data)) == one.data


def test_qemu_reads_the_same_bytes(store: BackupStore) -> None:
    if shutil.which("qemu-img") is None:
        pytest.skip("qemu-img is not installed")
    with_three(store)
    copy = store.work / "copy"
    with served(store) as one:
        uri = f"nbd+unix:///0?socket={one.path}"
        subprocess.run(
            ["qemu-img", "convert", "-f", "raw", "-O", "raw", uri, str(copy)],
            check=True, timeout=60 * patience(),
        )  # fmt: skip
        assert copy.read_bytes() == one.data


@pytest.mark.requirement("G24")
def test_zeros_are_reported_and_qemu_skips_them(store: BackupStore) -> None:
    rng = random.Random(4)
    store.save(rng.randbytes(4 * BLOCK) + bytes(60 * BLOCK) + rng.randbytes(2 * BLOCK))
    store.save(bytes(2 * BLOCK) + store.expected["20261127-000001"][2 * BLOCK :])
    with served(store) as one, one.connect() as client:
        client.greet()
        assert client.option(Option.STRUCTURED) == [(Reply.ACK, b"")]
        words = struct.pack(">I", 1) + b"0" + struct.pack(">II", 1, 15) + ALLOCATION
        context, ack = client.option(Option.SET_CONTEXT, words)
        assert context == (Reply.CONTEXT, struct.pack(">I", 1) + ALLOCATION)
        assert ack == (Reply.ACK, b"")
        assert client.option(Option.SET_CONTEXT, words[:7]) == [(Reply.INVALID, b"")]
        unknown = struct.pack(">I", 1) + b"7" + words[5:]
        assert client.option(Option.SET_CONTEXT, unknown) == [(Reply.UNKNOWN, b"")]
        assert client.option(Option.SET_CONTEXT, words[:9] + b"\xff" * 4) == [(Reply.ACK, b"")]
        client.go()
        size = len(one.data)
        zeros, data, rest, last = 2 * BLOCK, 2 * BLOCK, 60 * BLOCK, 2 * BLOCK
        wanted = [(zeros, 3), (data, 0), (rest, 3), (last, 0)]
        assert client.status(0, size) == wanted
        assert client.status(0, size, nbd.ONE_EXTENT) == wanted[:1]
        assert client.status(BLOCK + 5, BLOCK) == [(BLOCK - 5, 3), (5, 0)]
        assert (
            client.chunk(Command.READ, 3 * BLOCK, 9)
            == struct.pack(">Q", 3 * BLOCK) + one.data[3 * BLOCK : 3 * BLOCK + 9]
        )
        for command in (Command.READ, Command.STATUS):
            failed = struct.pack(">IH", nbd.EINVAL, 0)
            assert client.chunk(command, size, 1, kind=ChunkKind.FAILED) == failed
        if shutil.which("qemu-img") is not None:
            uri = f"nbd+unix:///0?socket={one.path}"
            argv = ["qemu-img", "map", "--output=json", "-f", "raw", uri]
            told = subprocess.run(argv, check=True, capture_output=True, timeout=60 * patience())
            assert [part["zero"] for part in json.loads(told.stdout)] == [True, False, True, False]


def test_exports_are_listed_and_described(store: BackupStore) -> None:
    with_three(store)
    with served(store) as one, one.connect() as client:
        client.greet()
        assert [data[4:] for kind, data in client.option(Option.LIST) if kind == Reply.SERVER] == [
            b"0",
            b"1",
        ]
        exports = [data for kind, data in client.go("1", Option.INFO) if kind == Reply.INFO]
        assert struct.unpack(">HQH", exports[0]) == (0, BLOCK, FLAGS)
        assert FLAGS & Export.READ_ONLY
        [(kind, why)] = client.go("2")
        assert (kind, why) == (Reply.UNKNOWN, b"the exports are 0, 1")
        assert client.option(Option.SET_CONTEXT) == [(Reply.INVALID, b"")]
        assert client.option(4) == [(Reply.UNSUPPORTED, b"")]
        assert client.option(Option.GO, b"\xff\xff\xff\xff") == [(Reply.INVALID, b"")]
        assert client.option(Option.ABORT) == [(Reply.ACK, b"")]
        with pytest.raises(EOFError):
            client.exactly(1)


@pytest.mark.parametrize("flags", [1, 3])
def test_old_clients_get_the_first_export(store: BackupStore, flags: int) -> None:
    with_three(store)
    with served(store) as one, one.connect() as client:
        client.greet(flags)
        client.send(nbd.OPTION.pack(nbd.OPTION_MAGIC, Option.EXPORT_NAME, 0))
        assert struct.unpack(">QH", client.exactly(10)) == (len(one.data), FLAGS)
        if flags == 1:
            assert client.exactly(124) == bytes(124)
        assert client.read(5, 10) == one.data[5:15]


def test_what_is_no_read_within_the_disk_is_refused(store: BackupStore) -> None:
    with_three(store)
    with served(store) as one, one.connect() as client:
        client.greet()
        client.go()
        size = len(one.data)
        assert client.ask(Command.WRITE, 0, 100_000, bytes(100_000)) == nbd.EPERM
        assert client.ask(Command.TRIM, 0, BLOCK) == nbd.EPERM
        for offset, length in (
            (size, 1),
            (size - 1, 2),
            (0, 0),
            (2**64 - 1, 1),
            (0, READ_BYTES + 1),
        ):
            assert client.ask(Command.READ, offset, length) == nbd.EINVAL
        assert client.read(size - 1, 1) == one.data[-1:]
        client.send(nbd.REQUEST.pack(nbd.REQUEST_MAGIC, 0, Command.DISCONNECT, 0, 0, 0))
        with pytest.raises(EOFError):
            client.exactly(1)


@pytest.mark.requirement("A51")
@pytest.mark.parametrize(
    "nonsense",
    [
        b"\xff\xff\xff\xff",
        struct.pack(">I", 3) + b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 3) + nbd.OPTION.pack(nbd.OPTION_MAGIC, Option.GO, 1 << 30),
        struct.pack(">I", 3)
        + nbd.OPTION.pack(nbd.OPTION_MAGIC, Option.EXPORT_NAME, 0)
        + bytes(nbd.REQUEST.size),
        struct.pack(">I", 3)
        + nbd.OPTION.pack(nbd.OPTION_MAGIC, Option.EXPORT_NAME, 0)
        + nbd.REQUEST.pack(nbd.REQUEST_MAGIC, 0, Command.WRITE, 0, 0, READ_BYTES + 1),
    ],
    ids=["flags", "http", "option", "request", "write"],
)
def test_client_that_sends_nonsense_loses_only_its_own_connection(
    store: BackupStore, nonsense: bytes
) -> None:
    with_three(store)
    with served(store) as one, one.connect() as good:
        good.greet()
        good.go()
        with one.connect() as bad:
            bad.exactly(nbd.GREETING.size)
            bad.send(nonsense)
            with contextlib.suppress(EOFError, ConnectionError):
                while True:
                    bad.exactly(1)
        assert good.read(0, 9) == one.data[:9]
        assert one.reports == []


def test_more_clients_than_the_limit_wait(store: BackupStore) -> None:
    with_three(store)
    with served(store) as one, contextlib.ExitStack() as stack:
        many = [stack.enter_context(one.connect()) for _ in range(CONNECTIONS_LIMIT)]
        for client in many:
            client.greet()
        late = stack.enter_context(one.connect())
        late.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            late.exactly(1)
        many[0].socket.close()
        late.socket.settimeout(10 * patience())
        late.greet()
        late.go()
        assert late.read(0, 3) == one.data[:3]


@pytest.mark.requirement("G24")
def test_damaged_piece_is_an_error_of_the_read_and_named(store: BackupStore) -> None:
    data = random.Random(3).randbytes(200 * BLOCK)
    store.save(data)
    (image,) = store.path.glob("*.qcow2")
    flip(image, image.stat().st_size // 3)
    with served(store) as one, one.connect() as client:
        client.greet()
        client.go()
        errors = [client_error(client, at) for at in range(0, len(data), BLOCK)]
        assert set(errors) == {0, nbd.EIO}
        assert image.name in one.reports[0]
        assert "not what was written" in one.reports[0]


def client_error(client: Client, at: int) -> int:
    error = client.ask(Command.READ, at, BLOCK)
    if not error:
        client.exactly(BLOCK)
    return error
