"""Copying a disk between two nodes: whole or not at all, and only from the node that is meant."""

import asyncio
import hashlib
import io
import json
import os
import socket
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base import tls
from ganeti.base.clock import SystemClock
from ganeti.base.errors import GanetiError, HostError, InputError
from ganeti.base.paths import Paths
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.progress import Progress
from ganeti.node import transfers
from ganeti.node.disk_copy import (
    CHUNK,
    DEFLATED,
    FRAME,
    PIECE,
    RAW,
    frame,
    pieces,
    unpacked,
)
from ganeti.node.instance_locks import InstanceLocks
from ganeti.node.tasks import Program, Tasks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.meters import Meters
from ganeti.rpc.procedures.progress import ProgressArgs
from ganeti.rpc.procedures.transfers import (
    DISK_LISTEN,
    DISK_SEND,
    DiskListenArgs,
    DiskListening,
    DiskSendArgs,
    DiskSent,
)
from ganeti.storage.assemble import device
from tests.support.node_certificates import Authority

pytestmark = pytest.mark.requirement("G12")

ROOT = "/srv/ganeti/file-storage"
MIB = 1024 * 1024
DISK = DiskSpec(
    uuid="d", index=0, size=4, template="file", logical_id=("loop", f"{ROOT}/web1/disk0")
)
TOKEN = "the token"


@dataclass
class Node:
    """One node with a disk, and its answers to calls."""

    paths: Paths
    handlers: Handlers
    tasks: Tasks
    fingerprint: str

    @property
    def disk(self) -> Path:
        return self.paths.below(f"{ROOT}/web1/disk0")

    async def listen(self, peer: str, key: str = "1/0/1") -> int:
        args = DiskListenArgs(
            instance_name="web1", disk=DISK, address="127.0.0.1", peer=peer, token=TOKEN
        )
        answer = await self.handlers[DISK_LISTEN.name](args, Call(key=key))
        assert isinstance(answer, DiskListening)
        return answer.port

    async def send(self, port: int, peer: str, **changes: Any) -> DiskSent:
        args = DiskSendArgs(
            instance_name="web1", disk=DISK, address="127.0.0.1", port=port, peer=peer, token=TOKEN
        )
        answer = await self.handlers[DISK_SEND.name](replace(args, **changes), Call(key="1/0/2"))
        assert isinstance(answer, DiskSent)
        return answer


@pytest.fixture
def authority() -> Authority:
    return Authority()


def make_node(directory: Path, authority: Authority, name: str) -> Node:
    paths = Paths(directory / name)
    paths.etc.mkdir(parents=True)
    paths.below(f"{ROOT}/web1").mkdir(parents=True, mode=0o700)
    paths.file_storage_paths.write_text(f"{ROOT}\n")
    fingerprint = authority.equip(paths, name)
    tasks = Tasks(paths.tasks, SystemClock())
    handlers = transfers.handlers(paths, tasks, partial(device, paths), InstanceLocks())
    node = Node(paths, handlers, tasks, fingerprint)
    node.disk.write_bytes(bytes(DISK.size * MIB))
    return node


@pytest.fixture
def source(tmp_path: Path, authority: Authority) -> Node:
    node = make_node(tmp_path, authority, "source")
    with node.disk.open("r+b") as disk:
        disk.write(b"first sector")
        disk.seek(2 * MIB + 700)
        disk.write(os.urandom(300_000))
        disk.seek(4 * MIB - 5)
        disk.write(b"bytes")
    return node


@pytest.fixture
def target(tmp_path: Path, authority: Authority) -> Node:
    return make_node(tmp_path, authority, "target")


def nowhere(_position: int) -> None:
    """The position is of no interest."""


async def ended(node: Node) -> None:
    """Wait until no program of the node runs any more."""
    while node.tasks.running():  # noqa: ASYNC110 - they are not our children, nobody tells
        await asyncio.sleep(0.02)
    await node.tasks.close()


@pytest.mark.parametrize("compress", ["none", "gzip"])
async def test_a_disk_arrives_whole_and_zeros_are_not_sent(
    source: Node, target: Node, compress: str
) -> None:
    port = await target.listen(source.fingerprint)
    sent = await source.send(port, target.fingerprint, compress=compress)
    await ended(target)
    assert target.disk.read_bytes() == source.disk.read_bytes()
    assert 300_000 < sent.data_bytes < 8 * PIECE
    assert sent.sha256


@pytest.mark.parametrize("sparse", [True, False])
def test_positions_count_where_nothing_is_sent(source: Node, *, sparse: bool) -> None:
    with source.disk.open("r+b") as disk:
        disk.truncate(64 * MIB)
        disk.seek(20 * MIB)
        disk.write(bytes(20 * MIB))  # data of zeros
    positions = list[int]()
    with source.disk.open("rb") as disk:
        found = list(pieces(disk, 64 * MIB, leaves_out_zeros=sparse, at=positions.append))
    assert positions == sorted(positions)
    assert {30 * MIB, 39 * MIB} <= set(positions)
    assert positions[-1] >= 63 * MIB
    assert sum(len(data) for _, data in found) == (8 * PIECE - PIECE if sparse else 64 * MIB)


async def test_a_copy_reports_how_far_it_is_while_it_goes_on(
    source: Node, target: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    meters = Meters()
    seen = list[Progress | None]()
    complete = source.tasks.complete

    async def looked_at(key: str, program: Program) -> int:
        done = await complete(key, program)
        seen.append(await meters.progress(ProgressArgs(key=key), Call()))
        return done

    monkeypatch.setattr(source.tasks, "complete", looked_at)
    source.handlers = meters.wrap(source.handlers)
    port = await target.listen(source.fingerprint)
    await source.send(port, target.fingerprint)
    await ended(target)
    (found,) = seen
    assert found is not None
    assert found.total == DISK.size * MIB
    assert await meters.progress(ProgressArgs(key="1/0/2"), Call()) is None


@pytest.mark.requirement("A62")
async def test_only_the_node_that_is_meant_can_send(
    source: Node, target: Node, authority: Authority, tmp_path: Path
) -> None:
    stranger = make_node(tmp_path, authority, "stranger")
    stranger.disk.write_bytes(b"x" * DISK.size * MIB)
    port = await target.listen(source.fingerprint)
    with socket.create_connection(("127.0.0.1", port)) as caller:  # no TLS at all
        caller.sendall(b"GET / HTTP/1.0\r\n\r\n")
    with pytest.raises(HostError, match="was not copied"):
        await stranger.send(port, target.fingerprint)
    with pytest.raises(HostError, match="not copied"):  # the right node for another disk
        await source.send(port, target.fingerprint, token="another")
    assert not any(target.disk.read_bytes())
    sent = await source.handlers[DISK_SEND.name](
        DiskSendArgs(instance_name="web1", disk=DISK, address="127.0.0.1", port=port,
                     peer=target.fingerprint, token=TOKEN),
        Call(key="1/0/3"),
    )  # fmt: skip
    assert sent.data_bytes
    await ended(target)
    assert target.disk.read_bytes() == source.disk.read_bytes()


async def test_a_sender_finds_out_that_somebody_else_listens(
    source: Node, target: Node, authority: Authority, tmp_path: Path
) -> None:
    stranger = make_node(tmp_path, authority, "stranger")
    port = await stranger.listen(source.fingerprint)
    with pytest.raises(HostError, match="not that of the expected node"):
        await source.send(port, target.fingerprint)
    assert await asyncio.to_thread(_send_raw, source, port, []) == {}
    await ended(stranger)


def _send_raw(node: Node, port: int, frames: list[bytes]) -> dict[str, Any]:
    """Greet as the sender does, send these frames, and return the receiver's answer."""
    paths = node.paths
    context = tls.client_context(
        paths.node_certificate, paths.node_key, paths.authority_certificate
    )
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain) as stream,
    ):
        greeting = {"token": TOKEN, "size": DISK.size * MIB}
        stream.sendall(json.dumps(greeting).encode() + b"\n")
        for one in frames:
            stream.sendall(one)
        if not frames:
            return {}
        answer: dict[str, Any] = json.loads(stream.recv(4096))
        return answer


def end_frame(digest: str) -> bytes:
    return FRAME.pack(0, len(digest), 0) + digest.encode()


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([frame(DISK.size * MIB - 2, b"four", 0)], "beyond the end"),
        ([FRAME.pack(2**63, 4, RAW) + b"four"], "beyond the end"),
        ([FRAME.pack(0, CHUNK + 1, RAW)], "are allowed"),
        ([FRAME.pack(0, 0, RAW)], "are allowed"),
        ([FRAME.pack(0, 4, 9) + b"four"], "unknown kind"),
        ([FRAME.pack(0, 4, DEFLATED) + b"four"], "incorrect header"),
        ([frame(0, b"data", 0), end_frame(hashlib.sha256(b"other").hexdigest())], "damaged"),
        ([end_frame("")], "damaged"),
        ([end_frame("\xff" * 9)], "decode"),
    ],
)
async def test_what_is_no_disk_is_refused_with_a_reason(
    source: Node, target: Node, frames: list[bytes], reason: str
) -> None:
    port = await target.listen(source.fingerprint)
    answer = await asyncio.to_thread(_send_raw, source, port, frames)
    assert reason in answer["error"]
    await ended(target)


async def test_a_call_without_its_secrets_is_refused(source: Node) -> None:
    with pytest.raises(InputError, match="fingerprint"):
        await source.send(1, "not a fingerprint")
    with pytest.raises(InputError, match="compress"):
        await source.send(1, source.fingerprint, compress="rar")


async def test_nobody_listening_is_said(source: Node, target: Node) -> None:
    with pytest.raises(HostError, match="refused"):
        await source.send(1, target.fingerprint)


async def test_a_disk_that_is_missing_is_not_listened_for(source: Node, target: Node) -> None:
    target.disk.unlink()
    with pytest.raises(GanetiError, match="disk 0"):
        await target.listen(source.fingerprint)


async def test_orders_are_for_root_alone(source: Node, target: Node) -> None:
    port = await target.listen(source.fingerprint)
    await source.send(port, target.fingerprint)
    await ended(target)
    directory = target.paths.disk_copies
    assert directory.stat().st_mode & 0o777 == 0o700
    [order] = directory.glob("*.order")
    assert order.stat().st_mode & 0o777 == 0o600


@pytest.mark.requirement("G27")
async def test_only_as_many_files_as_are_kept_are_left_whatever_their_age(
    source: Node, target: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "KEPT", 3)
    copies = source.paths.disk_copies
    copies.mkdir(parents=True)
    for number in range(5):
        (copies / f"{number}.progress").touch()
        os.utime(copies / f"{number}.progress", (number, number))
    with pytest.raises(HostError, match="refused"):  # nobody listens
        await source.send(1, target.fingerprint)
    left = {path.name for path in copies.iterdir()}
    assert {"0.progress", "1.progress"} & left == set()
    assert {"2.progress", "3.progress", "4.progress"} <= left


def test_a_bomb_is_not_unpacked() -> None:
    bomb = zlib.compress(bytes(CHUNK + 1))
    with pytest.raises(HostError, match="holds more than"):
        unpacked(DEFLATED, len(bomb), bomb)


def test_all_of_a_disk_is_read_where_zeros_count(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    path.write_bytes(bytes(CHUNK) + b"end")
    with path.open("rb", buffering=0) as disk:
        whole = list(pieces(disk, CHUNK + 3, leaves_out_zeros=False, at=nowhere))
        sparse = list(pieces(disk, CHUNK + 3, leaves_out_zeros=True, at=nowhere))
    assert whole == [(0, bytes(CHUNK)), (CHUNK, b"end")]
    assert sparse == [(CHUNK, b"end")]


def test_a_disk_that_is_too_small_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    path.write_bytes(b"short")
    with path.open("rb", buffering=0) as disk, pytest.raises(HostError, match="smaller"):
        list(pieces(disk, 100, leaves_out_zeros=False, at=nowhere))
    assert isinstance(disk, io.RawIOBase)
