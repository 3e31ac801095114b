"""Copies for a master of the version before: whole or not at all, and only between the two nodes of the calls."""

import asyncio
import hashlib
import json
import os
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ganeti.base import tls
from ganeti.base.errors import GanetiError, HostError, InputError
from ganeti.node import former_copies
from ganeti.node.carrier.former import (
    DEFLATED,
    FRAME,
    LIMIT,
    PLAIN,
    PositionedReader,
    PositionedWriter,
)
from ganeti.node.carrier.frames import PIECE
from ganeti.rpc.procedures.transfers import (
    DISK_LISTEN,
    DISK_SEND,
    DiskListenArgs,
    DiskListening,
    DiskSendArgs,
    DiskSent,
)
from tests.support.node_certificates import Authority
from tests.support.stream_nodes import MIB, NAME, SIZE, SPEC, Node

pytestmark = pytest.mark.requirement("G12", "G28")

DISK = SPEC.disks[0]
TOKEN = "the token"


class FormerNode(Node):
    """A node with the certificate of its cluster, as copies of the version before use it."""

    def __init__(self, root: Path, authority: Authority) -> None:
        super().__init__(root)
        self.fingerprint = authority.equip(self.paths, root.name)
        self.handlers |= former_copies.handlers(self.streams)

    async def listen(self, peer: str) -> int:
        args = DiskListenArgs(
            instance_name=NAME, disk=DISK, address="127.0.0.1", peer=peer, token=TOKEN
        )
        answer = await self.call(DISK_LISTEN, args)
        assert isinstance(answer, DiskListening)
        return answer.port

    async def send(self, port: int, peer: str, **changes: Any) -> DiskSent:
        args = DiskSendArgs(
            instance_name=NAME, disk=DISK, address="127.0.0.1", port=port, peer=peer, token=TOKEN
        )
        answer = await self.call(DISK_SEND, replace(args, **changes))
        assert isinstance(answer, DiskSent)
        return answer

    async def idle(self) -> None:
        await super().idle()
        await self.tasks.close()


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str], FormerNode]:
    authority = Authority()
    return lambda name: FormerNode(tmp_path / name, authority)


@pytest.fixture
def source(make: Callable[[str], FormerNode]) -> FormerNode:
    node = make("source")
    node.fill(b"first sector" + bytes(2 * MIB + 700) + os.urandom(300_000))
    return node


@pytest.fixture
def target(make: Callable[[str], FormerNode]) -> FormerNode:
    node = make("target")
    node.disk().write_bytes(bytes(SIZE * MIB))
    return node


@pytest.mark.parametrize("changes", [{"compress": "gzip"}, {"leaves_out_zeros": False}])
async def test_disk_arrives_whole(
    source: FormerNode, target: FormerNode, changes: dict[str, Any]
) -> None:
    port = await target.listen(source.fingerprint)
    sent = await source.send(port, target.fingerprint, **changes)
    await target.idle()
    assert target.disk().read_bytes() == source.disk().read_bytes()
    assert sent.data_bytes == SIZE * MIB
    assert target.paths.streams.stat().st_mode & 0o777 == 0o700
    [order] = target.paths.streams.glob("*/*.order")
    assert order.stat().st_mode & 0o777 == 0o600


@pytest.mark.requirement("A62")
async def test_only_the_node_of_the_call_can_send(
    source: FormerNode, target: FormerNode, make: Callable[[str], FormerNode]
) -> None:
    stranger = make("stranger")
    stranger.disk().write_bytes(b"x" * SIZE * MIB)
    port = await target.listen(source.fingerprint)
    with socket.create_connection(("127.0.0.1", port)) as caller:  # no TLS at all
        caller.sendall(b"GET / HTTP/1.0\r\n\r\n")
    with pytest.raises(HostError, match="was not sent"):
        await stranger.send(port, target.fingerprint)
    with pytest.raises(HostError, match="was not sent"):  # the right node for another disk
        await source.send(port, target.fingerprint, token="another")
    assert not any(target.disk().read_bytes())
    assert (await source.send(port, target.fingerprint)).data_bytes
    await target.idle()
    assert target.disk().read_bytes() == source.disk().read_bytes()


async def test_sender_refuses_another_listener(
    source: FormerNode, target: FormerNode, make: Callable[[str], FormerNode]
) -> None:
    stranger = make("stranger")
    port = await stranger.listen(source.fingerprint)
    with pytest.raises(HostError, match="a different certificate"):
        await source.send(port, target.fingerprint)
    assert await asyncio.to_thread(_send_raw, source, port, []) == {}
    await stranger.idle()


def _send_raw(node: FormerNode, port: int, frames: list[bytes]) -> dict[str, Any]:
    """Greet as a sender of the version before does, send these frames, and return the receiver's answer."""
    paths = node.paths
    context = tls.client_context(
        paths.node_certificate, paths.node_key, paths.authority_certificate
    )
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain) as stream,
    ):
        greeting = {"token": TOKEN, "size": SIZE * MIB}
        stream.sendall(json.dumps(greeting).encode() + b"\n")
        for one in frames:
            stream.sendall(one)
        if not frames:
            return {}
        answer: dict[str, Any] = json.loads(stream.recv(4096))
        return answer


def frame(offset: int, data: bytes) -> bytes:
    return FRAME.pack(offset, len(data), PLAIN) + data


def end_frame(digest: str) -> bytes:
    return FRAME.pack(0, len(digest), 0) + digest.encode()


def digest_of(*pieces: tuple[int, bytes]) -> str:
    counted = hashlib.sha256()
    for offset, data in pieces:
        counted.update(struct.pack(">QI", offset, len(data)) + data)
    return counted.hexdigest()


async def test_compressed_frames_of_the_version_before_are_read(
    source: FormerNode, target: FormerNode
) -> None:
    data, port = b"data" * 5000, await target.listen(source.fingerprint)
    packed = zlib.compress(data)
    digest = digest_of((MIB, data), (3 * MIB, b"more"))
    frames = [FRAME.pack(MIB, len(packed), DEFLATED) + packed, frame(3 * MIB, b"more")]
    answer = await asyncio.to_thread(_send_raw, source, port, [*frames, end_frame(digest)])
    assert answer == {"sha256": digest}
    await target.idle()
    found = target.disk().read_bytes()
    assert found == (bytes(MIB) + data).ljust(3 * MIB, b"\0") + b"more".ljust(MIB, b"\0")


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([frame(SIZE * MIB - 2, b"four")], "beyond the end"),
        ([FRAME.pack(2**63, 4, PLAIN) + b"four"], "beyond the end"),
        ([frame(4, b"four"), frame(0, b"four")], "out of order"),
        ([FRAME.pack(0, LIMIT + 1, PLAIN)], "a frame of kind"),
        ([FRAME.pack(0, 0, PLAIN)], "a frame of kind"),
        ([FRAME.pack(0, 4, 9) + b"four"], "a frame of kind"),
        ([FRAME.pack(0, 4, DEFLATED) + b"four"], "damaged"),
        ([frame(0, b"data"), end_frame(digest_of((0, b"other")))], "damaged"),
        ([end_frame("")], "damaged"),
        ([end_frame("\xff" * 9)], "damaged"),
    ],
)
async def test_anything_else_is_refused_with_a_reason(
    source: FormerNode, target: FormerNode, frames: list[bytes], reason: str
) -> None:
    port = await target.listen(source.fingerprint)
    answer = await asyncio.to_thread(_send_raw, source, port, frames)
    assert reason in answer["error"]
    await target.idle()


async def test_call_without_its_secrets_is_refused(source: FormerNode, target: FormerNode) -> None:
    with pytest.raises(InputError, match="fingerprint"):
        await source.send(1, "not a fingerprint")
    with pytest.raises(InputError, match="token"):
        await source.send(1, source.fingerprint, token="")
    with pytest.raises(InputError, match="compress"):
        await source.send(1, source.fingerprint, compress="rar")
    with pytest.raises(HostError, match="refused"):  # no program listens there
        await source.send(1, target.fingerprint)
    target.disk().unlink()
    with pytest.raises(GanetiError, match="disk 0"):
        await target.listen(source.fingerprint)


@given(
    pieces=st.lists(
        st.one_of(st.binary(min_size=1, max_size=99), st.integers(1, PIECE)), max_size=6
    ),
    leaves_out_zeros=st.booleans(),
)
def test_positioned_frames_say_where_data_belongs(
    pieces: list[bytes | int], *, leaves_out_zeros: bool
) -> None:
    made = bytearray()

    def write(*parts: bytes) -> None:
        for part in parts:
            made.extend(part)

    writer = PositionedWriter(write, leaves_out_zeros=leaves_out_zeros)
    whole = b"".join(bytes(one) if isinstance(one, int) else one for one in pieces)
    for piece in pieces:
        if isinstance(piece, int):
            writer.zeros(piece)
        else:
            writer.data(piece)
    digest = writer.end()
    disk, counted, left = bytearray(len(whole)), hashlib.sha256(), memoryview(made)
    while True:
        offset, length, kind = FRAME.unpack(left[: FRAME.size])
        data, left = left[FRAME.size :][:length], left[FRAME.size + length :]
        if kind == 0:
            break
        disk[offset : offset + length] = data
        counted.update(struct.pack(">QI", offset, length) + data)
    assert disk == whole
    assert bytes(data).decode() == counted.hexdigest() == digest
    left = memoryview(made)

    def fill(room: memoryview) -> None:
        nonlocal left
        room[:] = left[: len(room)]
        left = left[len(room) :]

    reader = PositionedReader(fill, len(whole))
    assert b"".join(bytes(zeros) + bytes(data) for zeros, data in reader.pieces()) == whole
    assert reader.seal == digest
