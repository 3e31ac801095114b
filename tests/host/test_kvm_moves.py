"""Moves between two real QEMU processes: encrypted, with the disks or without, and broken off."""

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace

from ganeti.base import certificates
from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.hypervisor.kvm import migration
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.hypervisor.kvm.migration_tls import CREDENTIALS, SHARED_DIRECTORY
from ganeti.model.instance_spec import InstanceSpec
from ganeti.rpc.procedures.migration import MigrationEnd
from tests.support.kvm_nodes import Node, accept, boot, nothing_is_left, send
from tests.support.listening import listening_ports
from tests.support.node_certificates import Authority
from tests.support.tiny_guest import (
    are_consecutive,
    disk_heartbeats,
    heartbeats,
    install,
    make_disk,
    tiny_instance,
)

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(180),
    pytest.mark.requirement("G5"),
]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Where the disk goes to; what an earlier attempt left there must not show through."""
    path = make_disk(tmp_path / "copy")
    with path.open("r+b") as file:
        file.seek(50 << 20)
        file.write(os.urandom(1 << 20))
    return path


async def booted(node: Node, guest: Path, disk: Path) -> InstanceSpec:
    instance = tiny_instance(guest, migration_bandwidth=256)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    await node.beats(instance)
    return instance


async def finish(node: Node, instance: InstanceSpec, end: MigrationEnd) -> None:
    await node.driver.finish_migration(instance, end)


def holds_all(disk: Path, shown: list[int]) -> bool:
    """Whether every heartbeat that a console has shown is on the disk, in one row without a hole."""
    written = sorted(disk_heartbeats(disk))
    return are_consecutive(written) and set(shown) <= set(written)


@pytest.mark.parametrize("live", [True, pytest.param(False, marks=pytest.mark.soak)])
async def test_a_guest_takes_its_disk_along(
    nodes: list[Node], guest: Path, disk: Path, copy: Path, *, live: bool
) -> None:
    here, there = nodes
    instance = await booted(here, guest, disk)
    info = await here.driver.migration_info(instance)
    incoming = await accept(there, instance, copy, info, copies_disks=True)
    result = await send(here, instance, incoming, live=live)
    assert (result.status, result.error) == ("completed", "")
    assert disk.read_bytes() == copy.read_bytes()  # both stand still: no byte differs
    await finish(there, instance, MigrationEnd.RESUME_TARGET)
    await finish(here, instance, MigrationEnd.END_SOURCE)
    before = disk.read_bytes()
    await there.beats(instance)
    shown = heartbeats(here.console(instance), there.console(instance))
    assert are_consecutive(shown), shown
    await there.driver.stop(instance, 60)
    assert holds_all(copy, shown)
    assert disk.read_bytes() == before
    assert set(disk_heartbeats(copy).values()) == {1}  # one boot all the time


async def test_a_guest_with_its_disk_is_taken_back_and_can_try_again(
    nodes: list[Node], guest: Path, disk: Path, copy: Path
) -> None:
    here, there = nodes
    instance = await booted(here, guest, disk)
    for is_last in (False, True):
        info = await here.driver.migration_info(instance)
        incoming = await accept(there, instance, copy, info, copies_disks=True)
        result = await send(here, instance, incoming)
        assert (result.status, result.error) == ("completed", "")
        await finish(there, instance, MigrationEnd.of(is_source=False, success=is_last))
        await finish(here, instance, MigrationEnd.of(is_source=True, success=is_last))
        await (there if is_last else here).beats(instance)
    shown = heartbeats(here.console(instance), there.console(instance))
    assert are_consecutive(shown), shown
    await there.driver.stop(instance, 60)
    assert holds_all(copy, shown)


@pytest.mark.requirement("F20")
async def test_a_target_that_dies_while_the_disk_is_sent_leaves_the_guest_alone(
    nodes: list[Node], guest: Path, disk: Path, copy: Path
) -> None:
    here, there = nodes
    instance = await booted(here, guest, disk)
    with disk.open("r+b") as file:  # something to send
        file.seek(40 << 20)
        file.write(os.urandom(8 << 20))
    slow = msgspec.structs.replace(
        instance, hvparams=instance.hvparams | {"migration_bandwidth": 8}
    )
    info = await here.driver.migration_info(instance)
    incoming = await accept(there, instance, copy, info, copies_disks=True)
    kept = copy.stat().st_blocks
    sending = asyncio.ensure_future(send(here, slow, incoming))
    while copy.stat().st_blocks == kept:  # noqa: ASYNC110  # nobody tells that QEMU begins to send
        await asyncio.sleep(0.02)
    os.kill(there.record(instance).pid, signal.SIGKILL)
    result = await sending
    assert result.status == "failed"
    assert "disk 0 could not be copied" in result.error
    await finish(there, instance, MigrationEnd.END_TARGET)
    await finish(here, instance, MigrationEnd.RESUME_SOURCE)
    assert nothing_is_left(there, instance)
    await here.beats(instance)
    shown = heartbeats(here.console(instance))
    assert are_consecutive(shown), shown
    await here.driver.stop(instance, 60)
    assert holds_all(disk, shown)


@pytest.mark.requirement("A62")
async def test_foreign_callers_are_refused_and_the_right_node_accepted(
    nodes: list[Node], guest: Path, disk: Path, copy: Path, tmp_path: Path
) -> None:
    here, there = nodes
    instance = await booted(here, guest, disk)
    info = await here.driver.migration_info(instance)
    incoming = await accept(there, instance, copy, info, copies_disks=True)
    ports = {incoming.port, incoming.disks_port}
    assert listening_ports(there.record(instance).pid) == ports
    for port in ports:
        with pytest.raises(ConnectionRefusedError):  # nor at any other address of this host
            socket.create_connection(("127.0.0.2", port), timeout=5).close()
        with socket.create_connection(("127.0.0.1", port), timeout=5) as stranger:
            stranger.sendall(b"no TLS at all\n" * 100)

    # A guest of the same name on another node of the cluster: it has a key, but it is not the one.
    third = Node(Paths(tmp_path / "c"), KvmHypervisor(Paths(tmp_path / "c"), run))
    other = await third_guest(third, guest, tmp_path)
    try:
        await third.driver.migration_info(other)
        result = await send(third, other, msgspec.structs.replace(incoming, disks_port=0))
        assert result.status == "failed"
        result = await send(third, other, incoming)
        assert result.status == "failed"
        assert await there.state(instance) == "incoming"
        # Nor does the right node send its guest to anybody else than it was told.
        forged = certificates.for_migration(
            certificates.new_key(), "target", instance.uuid, time.time()
        )
        impostor = msgspec.structs.replace(incoming, certificate=forged.decode())
        result = await send(here, instance, impostor)
        assert result.status == "failed"
    finally:
        await third.driver.stop(other, 0)
    assert not list(SHARED_DIRECTORY.glob("*"))  # no key stays where QEMU read it
    assert (await send(here, instance, incoming)).status == "completed"
    assert disk.read_bytes() == copy.read_bytes()
    await finish(there, instance, MigrationEnd.RESUME_TARGET)
    await finish(here, instance, MigrationEnd.END_SOURCE)
    await there.beats(instance)
    assert not listening_ports(there.record(instance).pid)


async def third_guest(node: Node, guest: Path, tmp_path: Path) -> InstanceSpec:
    disk = make_disk(tmp_path / "third-disk")
    instance = tiny_instance(guest, accelerator="tcg")
    install(guest, disk, instance.name)
    await node.driver.start(instance, [str(disk)])
    return instance


async def test_silent_caller_is_not_awaited(
    nodes: list[Node], guest: Path, disk: Path, copy: Path
) -> None:
    here, there = nodes
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    await here.driver.start(instance, [str(disk)])
    info = await here.driver.migration_info(instance)
    with pytest.raises(HypervisorError, match="sent no certificate"):
        await accept(there, instance, copy, replace(info, certificate=""), copies_disks=True)
    with pytest.raises(HypervisorError, match="certificate is invalid"):
        await accept(there, instance, copy, replace(info, certificate="no PEM"), copies_disks=True)
    assert nothing_is_left(there, instance)


def memory(pid: int) -> Iterator[bytes]:
    """All that a process has in memory and can read, in pieces that overlap a little."""
    size, overlap = 16 << 20, 4096
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", 0) as mem:
        for line in maps:
            area, rights, *_ = line.split()
            if not rights.startswith("r") or "[v" in line:
                continue
            at, end = (int(number, 16) for number in area.split("-"))
            while at < end:
                with contextlib.suppress(OSError):
                    mem.seek(at)
                    yield mem.read(min(size, end - at))
                at += size - overlap


def private_numbers(pem: bytes) -> list[bytes]:
    """The forms in which a process may hold a private key: both byte orders, and the file."""
    key = serialization.load_pem_private_key(pem, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    number = key.private_numbers().private_value
    return [number.to_bytes(32, "big"), number.to_bytes(32, "little"), pem.splitlines()[1]]


def held(pid: int, *keys: list[bytes]) -> list[bool]:
    """Which of the keys a process has in memory, in any form; it is read once for all of them."""
    found = [False for _ in keys]
    for piece in memory(pid):
        found = [
            seen or any(form in piece for form in key)
            for seen, key in zip(found, keys, strict=True)
        ]
    return found


@pytest.mark.requirement("G22", "G23")
async def test_no_node_key_reaches_a_qemu_and_the_key_of_the_migration_leaves_it(
    nodes: list[Node],
    guest: Path,
    disk: Path,
    copy: Path,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, there = nodes
    for node in nodes:
        authority.equip(node.paths, "node.example.com")
    made: list[bytes] = []
    new_key = certificates.new_key

    def remembered() -> bytes:
        made.append(new_key())
        return made[-1]

    monkeypatch.setattr(certificates, "new_key", remembered)
    instance = await booted(here, guest, disk)
    info = await here.driver.migration_info(instance)
    incoming = await accept(there, instance, copy, info, copies_disks=True)
    slow = msgspec.structs.replace(
        instance, hvparams=instance.hvparams | {"migration_bandwidth": 8}
    )
    source, target = here.record(instance).pid, there.record(instance).pid
    own = [private_numbers(node.paths.node_key.read_bytes()) for node in nodes]
    of_source, of_target = (private_numbers(key) for key in made)

    def check(*, moves: bool) -> None:
        """The keys of the move are there while it lasts; that of a node never is."""
        for pid, key in ((source, of_source), (target, of_target)):
            assert held(pid, key, *own) == [moves, False, False]

    sending = asyncio.ensure_future(send(here, slow, incoming))
    for _ in range(600):
        objects = await here.ask(instance)("qom-list", {"path": "/objects"})
        if any(one["name"] == CREDENTIALS for one in objects):
            break
        await asyncio.sleep(0.05)
    check(moves=True)  # found where they are, so that not finding them later says something
    result = await sending
    assert (result.status, result.error) == ("completed", "")
    assert [*held(source, *own), *held(target, *own)] == 4 * [False]
    await finish(there, instance, MigrationEnd.RESUME_TARGET)
    check(moves=False)
    await finish(here, instance, MigrationEnd.END_SOURCE)
    await there.beats(instance)
    assert not list(SHARED_DIRECTORY.glob("*"))


@pytest.mark.requirement("G23")
async def test_the_key_of_a_migration_that_broke_off_leaves_the_process_with_the_next_daemon(
    nodes: list[Node], guest: Path, disk: Path
) -> None:
    here, there = nodes
    instance = await booted(here, guest, disk)
    info = await here.driver.migration_info(instance)
    incoming = await accept(there, instance, disk, info)
    sending = asyncio.ensure_future(send(here, instance, incoming))
    ask = here.ask(instance)

    async def names() -> set[str]:
        return {one["name"] for one in await ask("qom-list", {"path": "/objects"})}

    for _ in range(3000):
        if CREDENTIALS in await names():
            break
        await asyncio.sleep(0.01)
    sending.cancel()  # as if the daemon were killed: nothing of what it would do is done
    with contextlib.suppress(asyncio.CancelledError):
        await sending
    os.kill(there.record(instance).pid, signal.SIGKILL)
    await migration.stop_sending(ask)
    successor = Node(here.paths, KvmHypervisor(here.paths, run))
    await successor.driver.upkeep.warm_up()
    assert CREDENTIALS not in await names()
    assert await successor.state(instance) in ("running", "postmigrate")
