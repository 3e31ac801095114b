"""Two nodes with the disks of one instance, and calls that carry these disks from one to the other."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

from ganeti.base.clock import SystemClock
from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.guest_os.scripts import OsScripts
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.names import Consistency
from ganeti.node import exports, streams
from ganeti.node.backups.directory import opened
from ganeti.node.carrier.keys import TransferKeys
from ganeti.node.export_directory import ExportDirectories
from ganeti.node.instance_locks import InstanceLocks
from ganeti.node.streams import Streams
from ganeti.node.tasks import Tasks
from ganeti.protocols.backup_manifest import Image, Manifest, image_file
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.exports import EXPORT_BEGIN, ExportArgs
from ganeti.rpc.procedures.form import Procedure
from ganeti.rpc.procedures.streams import (
    STREAM_END,
    STREAM_RECEIVE,
    STREAM_SEND,
    TRANSFER_KEY_CREATE,
    DiskEnd,
    DumpEnd,
    EndArgs,
    PointEnd,
    ReceiveArgs,
    SendArgs,
    StreamArgs,
    StreamResult,
    TransferKeyArgs,
    WithinArgs,
)
from ganeti.storage.assemble import device

ROOT = "/srv/ganeti/file-storage"
MIB = 1024 * 1024
NAME = "web1.example.com"
SIZE = 4
SPEC = InstanceSpec(
    name=NAME,
    uuid="i",
    hypervisor="fake",
    os="tiny",
    memory=128,
    vcpus=1,
    hvparams={},
    disk_template="file",
    disks=tuple(
        DiskSpec(
            uuid=f"d{index}",
            index=index,
            size=SIZE,
            template="file",
            logical_id=("loop", f"{ROOT}/web1/disk{index}"),
        )
        for index in range(2)
    ),
)
KEYS = {"out": "x509-00000001", "in": "x509-00000002"}
SCRIPTS = {
    "export": 'echo "exporting $EXPORT_INDEX of $INSTANCE_NAME" >&2; exec cat "$EXPORT_DEVICE"',
    "import": 'echo "importing $IMPORT_INDEX" >&2; echo noise; exec dd of="$IMPORT_DEVICE" conv=notrunc 2>/dev/null',
    "create": "exit 0",
    "verify": "exit 0",
}


class Node:
    """One node with the disks of an instance, perhaps full of data."""

    def __init__(self, root: Path) -> None:
        self.paths = Paths(root)
        for directory in (self.paths.etc, self.paths.data, self.paths.run):
            directory.mkdir(parents=True)
        self.paths.below(f"{ROOT}/web1").mkdir(parents=True)
        self.paths.below(f"{ROOT}/web1").chmod(0o700)
        self.paths.file_storage_paths.write_text(f"{ROOT}\n")
        self.os = self.paths.os_search_path[0] / "tiny"
        self.os.mkdir(parents=True)
        (self.os / "ganeti_api_version").write_text("20\n")
        for name, body in SCRIPTS.items():
            self.script(name, body)
        self.tasks = Tasks(self.paths.tasks, SystemClock())
        disks, locks = partial(device, self.paths), InstanceLocks()
        self.scripts = OsScripts(self.paths.os_search_path, self.paths.log / "os", self.tasks, run)
        exported = ExportDirectories.of_node(self.paths)
        self.keys = TransferKeys(self.paths.transfer_keys, SystemClock())
        self.streams = Streams(
            self.paths, self.tasks, disks, locks, self.scripts, self.keys, exported
        )
        self.handlers = {
            **streams.handlers(self.streams),
            **exports.handlers(exported, disks, locks),
        }
        self._calls = 0
        for index in range(2):
            self.fill(b"", index)

    def script(self, name: str, body: str) -> None:
        (self.os / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.os / name).chmod(0o755)

    async def call(self, procedure: Procedure[Any, Any], args: Any) -> Any:
        self._calls += 1
        return await self.handlers[procedure.name](args, Call(key=f"7/0/{self._calls}"))

    async def certificate(self, end: str) -> str:
        args = TransferKeyArgs(instance_name=NAME, key_name=KEYS[end])
        return str((await self.call(TRANSFER_KEY_CREATE, args)).certificate)

    def disk(self, index: int = 0) -> Path:
        return self.paths.below(f"{ROOT}/web1/disk{index}")

    def fill(self, data: bytes, index: int = 0) -> bytes:
        """A disk with data at its beginning and its end, and nothing between."""
        with self.disk(index).open("wb") as target:
            target.write(data)
            target.truncate(SIZE * MIB)
            target.seek(SIZE * MIB - 3)
            target.write(b"end")
        return self.disk(index).read_bytes()

    async def idle(self) -> None:
        async with asyncio.timeout(20):
            while self.streams.receiving or self.tasks.running():  # noqa: ASYNC110
                await asyncio.sleep(0.02)


def receive(peer: str, **fields: Any) -> ReceiveArgs:
    given: dict[str, Any] = {
        "instance_name": NAME,
        "token": "the token",
        "key_name": KEYS["in"],
        "peer": peer,
        "address": "127.0.0.1",
        "size": SIZE * MIB,
        "limit": SIZE * MIB,
    }
    return ReceiveArgs(**{**given, **fields})


def send(peer: str, port: int, **fields: Any) -> SendArgs:
    given: dict[str, Any] = {
        "instance_name": NAME,
        "token": "the token",
        "key_name": KEYS["out"],
        "peer": peer,
        "address": "127.0.0.1",
        "port": port,
        "size": SIZE * MIB,
    }
    return SendArgs(**{**given, **fields})


RAW = DiskEnd(instance=SPEC, index=0)
BY_SCRIPT = DiskEnd(instance=SPEC, index=0, os="tiny")
DUMP = DumpEnd(export=NAME, file="d0", unfinished=True)


POINT, DISK = "20261127-180500", "8d8aa8a3-6f8b-4f3c-9c3b-0f7a5d6c1e2f"


def within(source: EndArgs, target: EndArgs, **fields: Any) -> WithinArgs:
    given = {"instance_name": NAME, "token": "the token", "size": SIZE * MIB, "limit": SIZE * MIB}
    return WithinArgs(source=source, target=target, **{**given, **fields})


def point_end(**fields: Any) -> EndArgs:
    given = {"target": "/srv/ganeti/backup", "instance": NAME, "point": POINT, "disk": DISK}
    return EndArgs(point=PointEnd(**{**given, "size": SIZE * MIB, **fields}))


def commit_point(node: Node) -> None:
    """Make a backup of the image that a stream has written to the directory of a node."""
    with opened(node.paths.below(f"/srv/ganeti/backup/{NAME}")) as directory:
        file = image_file(POINT, DISK)
        image = Image(disk=DISK, size=SIZE * MIB, file=file, backing="", length=0, pieces=())
        manifest = Manifest(
            number=0,
            point=POINT,
            instance="i",
            instance_uuid="i",
            time=1.0,
            parent="",
            consistency=Consistency.DOWN,
            description="",
            disks=(image,),
        )
        directory.commit(manifest)


async def carry(
    nodes: tuple[Node, Node], out: dict[str, Any], into: dict[str, Any]
) -> StreamResult:
    source, target = nodes
    certificates = await source.certificate("out"), await target.certificate("in")
    listening = await target.call(STREAM_RECEIVE, receive(certificates[0], **into))
    result = await source.call(STREAM_SEND, send(certificates[1], listening.port, **out))
    assert isinstance(result, StreamResult)
    await target.idle()
    return result


async def exported(nodes: tuple[Node, Node], **out: Any) -> StreamResult:
    """The first disk as a dump on the other node."""
    await nodes[1].call(EXPORT_BEGIN, ExportArgs(export=NAME))
    return await carry(nodes, {"disk": RAW, "digests": True, **out}, {"dump": DUMP})


@contextlib.asynccontextmanager
async def stream_nodes(directory: Path) -> AsyncIterator[tuple[Node, Node]]:
    """Two nodes, of which no program is left at the end."""
    source, target = Node(directory / "1"), Node(directory / "2")
    yield source, target
    for node in (source, target):
        for receives in (False, True):
            args = StreamArgs(instance_name=NAME, token="the token", receives=receives)
            await node.call(STREAM_END, args)
        await node.idle()
        await node.tasks.close()
