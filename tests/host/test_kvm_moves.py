"""Moves between two real QEMU processes: encrypted, with the disks or without, and broken off."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import msgspec
import pytest

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.model.instance_spec import InstanceSpec
from tests.support.kvm_nodes import Node, accept, boot, nothing_is_left, send
from tests.support.node_certificates import Authority
from tests.support.tiny_guest import (
    are_consecutive,
    disk_heartbeats,
    heartbeats,
    install,
    make_disk,
    tiny_instance,
)

pytestmark = [pytest.mark.host, pytest.mark.timeout(180), pytest.mark.requirement("G5")]


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


async def finish(node: Node, instance: InstanceSpec, *, is_source: bool, success: bool) -> None:
    await node.driver.finish_migration(instance, is_source=is_source, success=success)


def holds_all(disk: Path, shown: list[int]) -> bool:
    """Whether every heartbeat that a console has shown is on the disk, in one row without a hole."""
    written = sorted(disk_heartbeats(disk))
    return are_consecutive(written) and set(shown) <= set(written)


@pytest.mark.parametrize("live", [True, False])
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
    await finish(there, instance, is_source=False, success=True)
    await finish(here, instance, is_source=True, success=True)
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
        assert (await send(here, instance, incoming)).status == "completed"
        await finish(there, instance, is_source=False, success=is_last)
        await finish(here, instance, is_source=True, success=is_last)
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
    sending = asyncio.ensure_future(send(here, slow, incoming))
    await asyncio.sleep(0.5)
    os.kill(there.record(instance).pid, signal.SIGKILL)
    result = await sending
    assert result.status == "failed"
    assert "disk 0 could not be sent" in result.error
    await finish(there, instance, is_source=False, success=False)
    await finish(here, instance, is_source=True, success=False)
    assert nothing_is_left(there, instance)
    await here.beats(instance)
    shown = heartbeats(here.console(instance))
    assert are_consecutive(shown), shown
    await here.driver.stop(instance, 60)
    assert holds_all(disk, shown)


@pytest.mark.requirement("A62")
async def test_strangers_are_refused_and_the_right_node_still_gets_through(
    nodes: list[Node], guest: Path, disk: Path, copy: Path, tmp_path: Path, authority: Authority
) -> None:
    here, there = nodes
    instance = await booted(here, guest, disk)
    info = await here.driver.migration_info(instance)
    incoming = await accept(there, instance, copy, info, copies_disks=True)
    for port in (incoming.port, incoming.disks_port):
        with pytest.raises(ConnectionRefusedError):  # nor at any other address of this host
            socket.create_connection(("127.0.0.2", port), timeout=5).close()
        with socket.create_connection(("127.0.0.1", port), timeout=5) as stranger:
            stranger.sendall(b"no TLS at all\n" * 100)

    # Another node of the same cluster: its certificate is good, but it is not the one.
    third = Node(Paths(tmp_path / "c"), KvmHypervisor(Paths(tmp_path / "c"), run))
    authority.equip(third.paths, "c.example.com")
    other = await third_guest(third, guest, tmp_path)
    try:
        result = await send(third, other, msgspec.structs.replace(incoming, disks_port=0))
        assert result.status == "failed"
        result = await send(third, other, incoming)
        assert result.status == "failed"
        assert await there.state(instance) == "incoming"
        # Nor does the right node send its guest to anybody else than it was told.
        impostor = msgspec.structs.replace(
            incoming, certificate=third.paths.node_certificate.read_text()
        )
        result = await send(here, instance, impostor)
        assert result.status == "failed"
    finally:
        await third.driver.stop(other, 0)
    for node in (here, there, third):  # no key stays where QEMU read it
        assert not list(node.paths.kvm_tls.glob("*"))
    assert (await send(here, instance, incoming)).status == "completed"
    assert disk.read_bytes() == copy.read_bytes()
    await finish(there, instance, is_source=False, success=True)
    await finish(here, instance, is_source=True, success=True)
    await there.beats(instance)
    for port in (incoming.port, incoming.disks_port):  # nobody listens any more
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5).close()


async def third_guest(node: Node, guest: Path, tmp_path: Path) -> InstanceSpec:
    disk = make_disk(tmp_path / "third-disk")
    instance = tiny_instance(guest, "web3.example.com", accelerator="tcg")
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    return instance


async def test_a_node_without_a_certificate_moves_nothing(
    nodes: list[Node], guest: Path, disk: Path, copy: Path
) -> None:
    here, there = nodes
    instance = await booted(here, guest, disk)
    info = await here.driver.migration_info(instance)
    with pytest.raises(HypervisorError, match="did not say who it is"):
        await accept(there, instance, copy, info | {"certificate": ""}, copies_disks=True)
    with pytest.raises(HypervisorError, match="of no use"):
        await accept(there, instance, copy, info | {"certificate": "no PEM"}, copies_disks=True)
    assert nothing_is_left(there, instance)
    here.paths.node_certificate.unlink()
    with pytest.raises(HypervisorError, match="over TLS only"):
        await here.driver.migration_info(instance)
