"""The client of QEMU's NBD server, against `qemu-nbd` and against a server that answers strangely."""

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.errors import HostError
from ganeti.node.backups import nbd, throttle
from ganeti.node.backups.ends import open_changes
from ganeti.node.backups.nbd import ALLOCATION, FORGET_BYTES, NbdReader, dirty_context
from ganeti.node.backups.throttle import LARGE, SMALL
from ganeti.node.carrier.order import ChangesOrder
from ganeti.protocols.nbd import Command

pytestmark = pytest.mark.requirement("A64", "B7")

BLOCK = 64 * 1024
SIZE = 64 * BLOCK


@contextlib.contextmanager
def served(directory: Path, image: Path, *flags: str) -> Iterator[str]:
    """The image at a socket, by QEMU's own program, read-only unless other flags are passed."""
    if shutil.which("qemu-nbd") is None:
        pytest.skip("qemu-nbd is not installed")
    path = directory / "s"
    words = ["qemu-nbd", "-k", str(path), "-x", "disk", "-f", "raw", *(flags or ("-r",)), "-t"]
    with subprocess.Popen([*words, str(image)]) as server:
        try:
            while not _listens(path):
                assert server.poll() is None
                time.sleep(0.01)
            yield str(path)
        finally:
            server.kill()  # it ignores other signals as long as a failed test has left a connection
            path.unlink(missing_ok=True)


def _listens(path: Path) -> bool:
    """Whether a client is accepted: the socket exists some time before."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def test_data_is_read_and_holes_are_known(disk_path: Path) -> None:
    image = disk_path / "disk"
    data = os.urandom(3 * BLOCK)
    with image.open("wb") as file:
        file.truncate(SIZE)
        file.seek(4 * BLOCK + 512)
        file.write(data)
    with (
        served(disk_path, image) as path,
        contextlib.closing(NbdReader(path, "disk", ALLOCATION, SIZE)) as disk,
    ):
        spans = list(disk.spans())
        assert sum(length for _, length, _ in spans) == SIZE
        assert [at for at, _, _ in spans] == [0, *(at + length for at, length, _ in spans)][:-1]
        assert all(at % BLOCK == length % BLOCK == 0 for at, length, _ in spans)
        assert sum(length for _, length, is_zero in spans if not is_zero) == 4 * BLOCK
        room = bytearray(8 * BLOCK)
        disk.read(0, memoryview(room))
        assert bytes(room[4 * BLOCK + 512 : 7 * BLOCK + 512]) == data
        assert not any(room[: 4 * BLOCK])
        with pytest.raises(HostError, match="lost the disk's old content"):
            disk.read(SIZE, memoryview(room))


def test_all_of_a_moment_is_sent_as_it_is(disk_path: Path) -> None:
    image, wanted = disk_path / "disk", bytearray(SIZE)
    wanted[4 * BLOCK + 512 : 7 * BLOCK + 512] = os.urandom(3 * BLOCK)
    wanted[SIZE - 1] = 7
    with image.open("wb") as file:
        file.truncate(SIZE)
        file.seek(4 * BLOCK)
        file.write(wanted[4 * BLOCK : 8 * BLOCK])
        file.seek(SIZE - 1)
        file.write(b"\x07")
    order = ChangesOrder(export="disk", whole=True)
    with served(disk_path, image) as path, open_changes(order, path, SIZE) as source:
        pieces = [bytes(zeros) + bytes(data) for zeros, data in source.pieces()]
        source.finish()
    assert b"".join(pieces) == bytes(wanted)
    spare = ChangesOrder(export="disk", whole=True, spare=str(disk_path))
    with served(disk_path, image) as path, open_changes(spare, path, SIZE) as source:
        assert sum(zeros + len(data) for zeros, data in source.pieces()) == SIZE


@pytest.mark.parametrize(("flags", "forgotten"), [(("--discard=unmap",), True), ((), False)])
def test_parts_that_were_read_are_discarded_where_the_server_allows_it(
    disk_path: Path, flags: tuple[str, ...], *, forgotten: bool
) -> None:
    image, part = disk_path / "disk", 8 * BLOCK
    data = os.urandom(2 * FORGET_BYTES)
    image.write_bytes(data)
    with (
        served(disk_path, image, *flags) as path,
        contextlib.closing(NbdReader(path, "disk", ALLOCATION, len(data), forgets=True)) as disk,
    ):
        found, room = b"", bytearray(part)
        for at in range(0, len(data), part):
            disk.read(at, memoryview(room))
            found += room
        disk.read(0, memoryview(room))
    assert found == data
    assert (bytes(room) == bytes(part)) is forgotten


def test_disk_of_a_writing_guest_is_read_in_small_parts(
    disk_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, data = disk_path / "disk", os.urandom(24 * BLOCK)
    image.write_bytes(data)
    written, lengths = iter(range(100)), list[int]()
    monkeypatch.setattr(nbd, "written_by", lambda _process: next(written))
    request = NbdReader._request

    def counted(self: NbdReader, kind: int, offset: int, length: int) -> None:
        if kind == Command.READ:
            lengths.append(length)
        request(self, kind, offset, length)

    monkeypatch.setattr(NbdReader, "_request", counted)
    with (
        served(disk_path, image, "--discard=unmap") as path,
        contextlib.closing(NbdReader(path, "disk", ALLOCATION, len(data), forgets=True)) as disk,
    ):
        room = bytearray(len(data))
        disk.read(0, memoryview(room))
        written = iter([50] * 100)
        monkeypatch.setattr(throttle, "WRITES_STILL_S", 0)
        disk.read(0, memoryview(bytearray(LARGE)))
        disk.read(0, memoryview(bytearray(LARGE)))
    assert room == data
    assert lengths[: len(data) // SMALL] == [SMALL] * (len(data) // SMALL)
    assert lengths[-1] == LARGE


def test_reader_never_discards_by_itself(disk_path: Path) -> None:
    image = disk_path / "disk"
    data = os.urandom(2 * FORGET_BYTES)
    image.write_bytes(data)
    with (
        served(disk_path, image, "--discard=unmap") as path,
        contextlib.closing(NbdReader(path, "disk", ALLOCATION, len(data))) as disk,
    ):
        for at in (0, FORGET_BYTES, 0):
            disk.read(at, memoryview(bytearray(FORGET_BYTES)))
    assert image.read_bytes() == data


def test_missing_server_export_and_bitmap_are_errors(disk_path: Path) -> None:
    image = disk_path / "disk"
    image.write_bytes(bytes(SIZE))
    with served(disk_path, image) as path:
        for export, context, size in (
            ("other", ALLOCATION, SIZE),
            ("disk", dirty_context("b"), SIZE),
            ("disk", ALLOCATION, SIZE + BLOCK),
        ):
            with pytest.raises(HostError, match="QEMU"):
                NbdReader(path, export, context, size)
    with pytest.raises(HostError, match="does not show"):
        NbdReader(str(disk_path / "none"), "disk", ALLOCATION, SIZE)


GREETING = b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n" * 4,
        GREETING,
        GREETING + b"\x17" * 20,
        GREETING + struct.pack(">QIII", 0x3E889045565A9, 8, 1, 1 << 31),
        GREETING + struct.pack(">QIII", 0x3E889045565A9, 7, 1, 0),
    ],
)
def test_strange_server_is_an_error(tmp_path: Path, answer: bytes) -> None:
    """A guest that has taken over its QEMU cannot fill the reader or make it wait for ever (A64)."""
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def answered() -> None:
            there, _ = server.accept()
            with there, contextlib.suppress(OSError):  # the client may be gone
                there.sendall(answer)
                there.shutdown(socket.SHUT_WR)
                while there.recv(4096):
                    pass

        thread = threading.Thread(target=answered)
        thread.start()
        with pytest.raises(HostError, match="QEMU"):
            NbdReader(path, "disk", ALLOCATION, SIZE)
        thread.join()
