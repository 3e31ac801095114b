"""The node's part of a live restore, with the real programs and a small driver in the place of QEMU."""

import asyncio
import contextlib
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base import tls
from ganeti.base.clock import SystemClock
from ganeti.base.errors import GanetiError, HostError, HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.disk_moves import DiskMove, DiskMoveRecords
from ganeti.hypervisor.live_restores import StartsAbove
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.node.backups.live import LiveRestores, handlers
from ganeti.node.backups.nbd import ALLOCATION, NbdReader
from ganeti.node.carrier.keys import TransferKeys
from ganeti.node.instance_locks import InstanceLocks
from ganeti.node.tasks import Tasks
from ganeti.protocols import nbd
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.live_restores import (
    LIVE_END,
    LIVE_SERVE,
    LIVE_SERVE_END,
    LIVE_START,
    LiveEndArgs,
    LiveServerArgs,
    LiveStartArgs,
    ServePointArgs,
)
from tests.support.backup_store import BLOCK, DISK, BackupStore, instance_keys, keyring
from tests.unit.node.backups.test_directory import flip, with_three

pytestmark = pytest.mark.requirement("G1", "G11", "G24", "A42", "A51")

TARGET, NAME = "/srv/ganeti/backup", "web1.example.com"
UUID = "22222222-0000-4000-8000-000000000000"
SPEC = InstanceSpec(
    name=NAME, uuid=UUID, hypervisor="kvm", os="tiny", memory=128, vcpus=1, hvparams={}, disk_template="file",
    disks=(DiskSpec(uuid=DISK, index=0, size=8, template="file", logical_id=("file", "x")),),
)  # fmt: skip


@dataclass
class Driver(StartsAbove):
    """It starts guests that do nothing."""

    sockets: list[Path] = field(default_factory=list)
    runs: bool = False
    fails: bool = False

    @property
    def options(self) -> Any:
        return SimpleNamespace(live_restores=self)

    async def one_running(self, _uuid: str) -> object:
        return object() if self.runs else None

    async def start(
        self,
        instance: InstanceSpec,
        disk_paths: Sequence[str],
        overlays: Sequence[Path],
        socket: Path,
    ) -> None:
        assert (instance, list(disk_paths)) == (SPEC, ["/x"])
        assert [one.read_bytes()[:4] for one in overlays] == [b"QFI\xfb"]
        if self.fails:
            raise HypervisorError("no memory")
        self.runs = True
        self.sockets.append(socket)


class Node:
    def __init__(self, root: Path) -> None:
        self.paths, self.driver = Paths(root), Driver()
        for directory in (self.paths.data, self.paths.run, self.paths.below(TARGET) / NAME):
            directory.mkdir(parents=True)
        self.tasks = Tasks(self.paths.tasks, SystemClock())
        hypervisors: Any = {"kvm": self.driver}
        device: Any = lambda *_: SimpleNamespace(image="/x")  # noqa: E731 - of any type
        self.parts = LiveRestores(
            self.paths, self.tasks, hypervisors, device,
            InstanceLocks(), TransferKeys(self.paths.transfer_keys, SystemClock()),
        )  # fmt: skip
        self.calls = 0

    async def call(self, procedure: Any, args: Any, key: str = "") -> Any:
        self.calls += 1
        return await handlers(self.parts)[procedure.name](
            args, Call(key=key or f"7/{self.calls}/{procedure.name}")
        )

    @property
    def store(self) -> BackupStore:
        return BackupStore(self.paths.below(TARGET) / NAME, self.paths.data)


@pytest.fixture
async def nodes() -> AsyncIterator[tuple[Node, Node]]:
    with tempfile.TemporaryDirectory(prefix="gnt-") as short:  # for the names of sockets
        found = (Node(Path(short) / "a"), Node(Path(short) / "b"))
        yield found
        for node in found:
            for key in node.tasks.running():
                await node.tasks.end(key)
            await node.tasks.close()


def serving(point: str, **fields: Any) -> ServePointArgs:
    given = {
        "target": TARGET,
        "instance_name": NAME,
        "token": "t",
        "disks": [DISK],
        "owner": NAME,
        "owner_uuid": UUID,
    }
    return ServePointArgs(point=point, **{**given, **fields})


START = LiveStartArgs(instance=SPEC, token="t")
END = LiveEndArgs(instance=SPEC, token="t")


def read(path: Path, size: int) -> bytes:
    reader = NbdReader(str(path), DISK, ALLOCATION, size, forgets=False)
    try:
        found = bytearray(size)
        reader.read(0, memoryview(found))
    finally:
        reader.close()
    return bytes(found)


async def test_backup_is_read_through_tls_by_the_expected_node_only(
    nodes: tuple[Node, Node],
) -> None:
    guest, backup = nodes
    store = backup.store
    with_three(store)
    (point, data) = list(store.expected.items())[-1]
    keys = ["x509-00000001", "x509-00000002"]
    own, theirs = (node.parts.keys.create(key, NAME) for node, key in zip(nodes, keys, strict=True))
    wanted = serving(point, address="127.0.0.1", key_name=keys[1], peer=own)
    served = await backup.call(LIVE_SERVE, wanted, "k")
    assert await backup.call(LIVE_SERVE, wanted, "k") == served, "a repeated call finds its program"
    start = replace(START, address="127.0.0.1", port=served.port, key_name=keys[0], peer=theirs)
    assert not (await guest.call(LIVE_START, start)).is_moved
    [path] = guest.driver.sockets
    assert await asyncio.to_thread(read, path, len(data)) == data
    # Another key of the same kind, and no TLS at all.
    other = guest.parts.keys.create("x509-00000003", NAME)
    order = guest.parts._file("t", "live-relay")
    wrong = guest.parts.keys.files("x509-00000003", NAME, theirs, order.with_name("other"))
    assert other
    context = tls.client_context(wrong.certificate, wrong.key, wrong.peer)
    for secure in (context.wrap_socket, lambda plain: plain):
        with socket.create_connection(("127.0.0.1", served.port), timeout=0.5) as plain:
            try:
                with secure(plain) as stream:
                    assert stream.recv(16) != nbd.GREETING_MAGIC + nbd.OPTION_MAGIC
            except (ssl.SSLError, ConnectionError, TimeoutError):
                pass
    guest.driver.runs = False
    await guest.call(LIVE_END, END)
    await backup.call(LIVE_SERVE_END, LiveServerArgs(token="t"))
    for node in nodes:
        assert node.tasks.running() == []
    assert not path.exists()


@pytest.mark.requirement("G23")
async def test_encrypted_backup_is_served_and_its_key_is_in_no_file(
    nodes: tuple[Node, Node],
) -> None:
    guest, _ = nodes
    store = guest.store
    store.keys = keyring(instance=NAME)
    with_three(store)
    (point, data) = list(store.expected.items())[-1]
    with pytest.raises(HostError, match="which is not here"):
        await guest.call(LIVE_SERVE, serving(point))
    keys = instance_keys(instance=NAME)
    await guest.call(LIVE_SERVE, serving(point, keys=keys))
    await guest.call(LIVE_START, START)
    assert await asyncio.to_thread(read, guest.driver.sockets[0], len(data)) == data
    [secret] = keys.keys.values()
    for file in guest.paths.root.rglob("*"):
        if file.is_file():
            assert secret.encode() not in file.read_bytes(), file
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                assert secret.encode() not in (process / name).read_bytes()


async def test_overlays_are_kept_until_the_guests_own_disks_have_everything(
    nodes: tuple[Node, Node],
) -> None:
    guest, _ = nodes
    store = guest.store
    with_three(store)
    point = guest.store.names()[-1]
    directory = guest.paths.live_restore(UUID)
    await guest.call(LIVE_SERVE, serving(point))
    guest.driver.fails = True
    with pytest.raises(HypervisorError, match="no memory"):
        await guest.call(LIVE_START, START)
    assert not (await guest.call(LIVE_END, replace(END, keep_used=True))).is_kept
    assert not directory.exists()
    guest.driver.fails = False
    await guest.call(LIVE_START, START)
    image = directory / f"{DISK}.qcow2"
    image.write_bytes(image.read_bytes() + b"written")
    assert (await guest.call(LIVE_END, replace(END, keep_used=True))).is_kept
    with pytest.raises(HostError, match="shut it down first"):
        await guest.call(LIVE_END, END)
    guest.driver.runs = False
    await guest.call(LIVE_START, START)
    assert image.read_bytes().endswith(b"written")
    move = DiskMove(token="t", disks=SPEC.disks, paths=("/x",), is_moved=True)
    DiskMoveRecords(guest.paths).write(UUID, move)
    assert (await guest.call(LIVE_START, START)).is_moved
    for _ in range(2):
        assert not (await guest.call(LIVE_END, END)).is_kept
        assert not directory.exists()


async def test_damaged_backup_is_refused_or_an_error_of_the_read(
    nodes: tuple[Node, Node],
) -> None:
    guest, _ = nodes
    store = guest.store
    point = store.save(bytes(range(256)) * (BLOCK // 256) * 200)
    with pytest.raises(HostError, match="it does not exist"):
        await guest.call(LIVE_SERVE, serving("20200101-000000"))
    (image,) = store.path.glob("*.qcow2")
    flip(image, 6 << 20)
    await guest.call(LIVE_SERVE, serving(point, token="u"))
    await guest.call(LIVE_START, START)
    with pytest.raises(HostError):
        await asyncio.to_thread(read, guest.driver.sockets[0], BLOCK * 200)
    flip(image, 100)
    with pytest.raises(HostError, match="not what was written"):
        await guest.call(LIVE_SERVE, serving(point, token="v"))


@pytest.mark.parametrize(
    "fields",
    [{"instance_name": "../x"}, {"point": "../x"}, {"target": "/etc"}, {"token": ""}, {"owner_uuid": "../x"}],
)  # fmt: skip
async def test_names_that_lead_elsewhere_are_refused(
    nodes: tuple[Node, Node], fields: dict[str, str]
) -> None:
    guest, _ = nodes
    point = guest.store.save(bytes(BLOCK))
    with pytest.raises(GanetiError):
        await guest.call(LIVE_SERVE, replace(serving(point), **fields))
    assert guest.tasks.running() == []
