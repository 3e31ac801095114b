"""Devices that come and go in a running guest, with real QEMU processes."""

import asyncio
import re
import secrets
import socket
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.hypervisor.hotplug import incoming_instance
from ganeti.hypervisor.kvm.acceleration import Acceleration
from ganeti.hypervisor.kvm.driver import KvmHypervisor, find_program
from ganeti.hypervisor.kvm.network import tap_name
from ganeti.hypervisor.kvm.runtime import GuestFiles, Record
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from tests.support.tiny_guest import (
    build_tiny_guest,
    heartbeats,
    install,
    make_disk,
    open_files,
    tiny_instance,
    wait_for_text,
)

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

READY = r"GANETI-TINY READY"


class Node:
    """One node's side: its files, and a driver."""

    def __init__(self, paths: Paths) -> None:
        self.paths, self.driver = paths, KvmHypervisor(paths, run)

    def files(self, instance: InstanceSpec) -> GuestFiles:
        return GuestFiles.of(self.paths, instance.uuid)

    def record(self, instance: InstanceSpec) -> Record:
        record = self.files(instance).read()
        assert record is not None
        return record

    async def boot(self, instance: InstanceSpec, *disks: Path) -> None:
        await self.driver.start(instance, [str(disk) for disk in disks])
        await wait_for_text(self.files(instance).console_log, READY)

    async def hear(self, instance: InstanceSpec, command: str) -> str:
        """What a command says inside the guest."""
        mark = secrets.token_hex(4)
        reader, writer = await asyncio.open_unix_connection(self.files(instance).console)
        try:
            writer.write(f"touch /run/quiet; {command}; echo {mark[:4]}''{mark[4:]}\n".encode())
            await writer.drain()
            async with asyncio.timeout(30):
                text = (await reader.readuntil(mark.encode())).decode(errors="replace")
        finally:
            writer.close()
            await writer.wait_closed()
        return text

    async def waits_for(self, instance: InstanceSpec, command: str, pattern: str) -> str:
        """Ask the guest until it says what is wanted."""
        text = ""
        for _ in range(60):
            text = await self.hear(instance, command)
            if re.search(pattern, text):
                return text
            await asyncio.sleep(0.1)
        raise AssertionError(f"{pattern!r} was not said: {text!r}")


@pytest.fixture(scope="module")
def guest() -> Path:
    return build_tiny_guest()


@pytest_asyncio.fixture
async def nodes(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[list[Node]]:
    probed = Paths(tmp_path_factory.getbasetemp() / "probe")
    await Acceleration(probed, run).kvm_works(find_program({}))
    known = probed.kvm / "acceleration"
    made = []
    for name in ("a", "b"):
        paths = Paths(tmp_path / name)
        paths.kvm.mkdir(parents=True)
        if known.exists():
            (paths.kvm / "acceleration").write_bytes(known.read_bytes())
        made.append(Node(paths))
    yield made
    for node in made:
        for one in await node.driver.running():
            record = GuestFiles.of(node.paths, one.uuid).read()
            assert record is not None
            await node.driver.stop(record.instance, 0)


@pytest_asyncio.fixture
async def bridge() -> AsyncIterator[str]:
    """A bridge of this host, on which nothing else is."""
    name = f"gt{secrets.token_hex(4)}"
    await run(["ip", "link", "add", name, "type", "bridge"])
    await run(["ip", "link", "set", name, "up"])
    yield name
    await run(["ip", "link", "delete", name])


def data_disk(index: int, size: int = 8) -> DiskSpec:
    return DiskSpec(
        uuid=str(uuid.uuid4()), index=index, size=size, template="sharedfile",
        logical_id=("loop", "/x"),
    )  # fmt: skip


async def migrate(source: Node, target: Node, wanted: InstanceSpec, paths: dict[str, Path]) -> None:
    """The steps of the master, in its order; `wanted` is what the configuration says."""
    info = await source.driver.migration_info(wanted)
    coming = incoming_instance(wanted, info)
    disks = [str(paths[disk.uuid]) for disk in coming.disks]
    place = await target.driver.accept(coming, disks, "127.0.0.1", info)
    result = await source.driver.migrate(wanted, place.address, place.port)
    assert (result.status, result.error) == ("completed", "")
    await target.driver.finish_migration(wanted, is_source=False, success=True)
    await source.driver.finish_migration(wanted, is_source=True, success=True)


def with_devices(
    instance: InstanceSpec, disks: tuple[DiskSpec, ...], nics: tuple[NicSpec, ...]
) -> InstanceSpec:
    return msgspec.structs.replace(instance, disks=disks, nics=nics)


async def pci_devices(node: Node, instance: InstanceSpec) -> list[str]:
    """What sits in which slot, as the guest sees it."""
    text = await node.hear(instance, "cd /sys/bus/pci/devices; grep . */device; cd /")
    return re.findall(r"0000:\S+", text)


@pytest.mark.requirement("S75")
async def test_disks_and_nics_come_grow_move_and_go_in_a_running_guest(
    nodes: list[Node], guest: Path, tmp_path: Path, bridge: str
) -> None:
    here, there = nodes
    instance = tiny_instance(guest, template="sharedfile")
    system = make_disk(tmp_path / "system")
    install(guest, system, instance.name)
    await here.boot(instance, system)
    hotplug = here.driver.hotplug
    assert await hotplug.obstacles(instance) == []

    first, second = data_disk(1), data_disk(1, 16)
    paths = {
        instance.disks[0].uuid: system,
        first.uuid: make_disk(tmp_path / "first", 8),
        second.uuid: make_disk(tmp_path / "second", 16),
    }
    nic = NicSpec(uuid=str(uuid.uuid4()), index=0, mac="aa:00:00:11:22:33", link=bridge)
    await hotplug.add_disk(instance, first, str(paths[first.uuid]))
    await hotplug.add_disk(instance, first, str(paths[first.uuid]))  # again
    await here.waits_for(instance, "cat /proc/partitions", r"8192 vdb\b")
    await hotplug.add_disk(instance, second, str(paths[second.uuid]))
    await here.waits_for(instance, "cat /proc/partitions", r"16384 vdc\b")
    await hotplug.add_nic(instance, nic)
    await hotplug.add_nic(instance, nic)
    await here.waits_for(instance, "cat /sys/class/net/eth0/address", nic.mac)
    ports = Path(f"/sys/class/net/{bridge}/brif")
    assert [path.name for path in ports.iterdir()] == [tap_name(here.paths.root, nic)]

    # The guest uses them, and what it writes is in the file.
    await here.hear(instance, "echo written-by-the-guest | dd of=/dev/vdc conv=fsync 2>/dev/null")
    assert paths[second.uuid].read_bytes().startswith(b"written-by-the-guest")
    assert here.record(instance).instance.disks[1].uuid == second.uuid  # added in the middle

    with paths[second.uuid].open("r+b") as data:
        data.truncate(24 * 1024 * 1024)
    second = msgspec.structs.replace(second, size=24)
    await hotplug.resize_disk(instance, second)
    await here.waits_for(instance, "cat /proc/partitions", r"24576 vdc\b")

    await hotplug.remove_disk(instance, first)
    await hotplug.remove_disk(instance, first)
    text = await here.hear(instance, "cat /proc/partitions")
    assert "vdb" not in text
    assert "vdc" in text
    pid = here.record(instance).pid
    assert str(paths[first.uuid]) not in open_files(pid)

    # The guest moves with what it has now, and its devices stay where it knows them.
    wanted = with_devices(instance, (instance.disks[0], second), (nic,))
    wanted = msgspec.structs.replace(wanted, memory=128, vcpus=2)  # for the next start only
    slots = await pci_devices(here, instance)
    await migrate(here, there, wanted, paths)
    assert await pci_devices(there, instance) == slots
    await there.waits_for(instance, "cat /proc/partitions", r"24576 vdc\b")
    await there.waits_for(instance, "cat /sys/class/net/eth0/address", nic.mac)
    assert there.record(instance).instance.vcpus == 1

    # On the other node everything can go on changing, and back it goes.
    await there.driver.hotplug.remove_nic(wanted, nic)
    await there.waits_for(instance, "ls /sys/class/net", r"lo\s")
    assert "eth0" not in await there.hear(instance, "ls /sys/class/net")
    assert tap_name(there.paths.root, nic) not in [name for _, name in socket.if_nameindex()]
    await there.driver.hotplug.add_disk(wanted, first, str(paths[first.uuid]))
    await there.waits_for(instance, "cat /proc/partitions", r"8192 vd\w\b")
    await migrate(there, here, wanted, paths)
    await here.waits_for(instance, "cat /proc/partitions", r"8192 vd\w\b")
    await here.hear(instance, "rm /run/quiet")
    shown = len(heartbeats(here.files(instance).console_log))
    await wait_for_text(here.files(instance).console_log, r"(HEARTBEAT \d+\s+){2}")
    assert len(heartbeats(here.files(instance).console_log)) > shown
