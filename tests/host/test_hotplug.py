"""Devices that come and go in a running guest, with real QEMU processes."""

import asyncio
import contextlib
import os
import pwd
import re
import secrets
import socket
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.hypervisor.hotplug import incoming_instance
from ganeti.hypervisor.kvm import devices, memory, processors
from ganeti.hypervisor.kvm.acceleration import Acceleration
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.hypervisor.kvm.network import tap_name
from ganeti.hypervisor.kvm.programs import Programs
from ganeti.hypervisor.kvm.runtime import GuestFiles, Record
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.node.instance_locks import InstanceLocks
from ganeti.node.memory_policy import MemoryPolicy
from ganeti.rpc.procedures.migration import IncomingArgs, MigrateArgs, MigrationEnd
from tests.support.node_certificates import Authority
from tests.support.patience import patience
from tests.support.tiny_guest import (
    build_tiny_guest,
    install,
    make_disk,
    open_files,
    tiny_instance,
    wait_for_text,
)

pytestmark = [pytest.mark.host, pytest.mark.in_turn, pytest.mark.timeout(300)]

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
            async with asyncio.timeout(30 * patience()):
                text = (await reader.readuntil(mark.encode())).decode(errors="replace")
        finally:
            writer.close()
            await writer.wait_closed()
        return text

    async def waits_for(self, instance: InstanceSpec, command: str, pattern: str) -> str:
        """Ask the guest until it says what is wanted."""
        text = ""
        for _ in range(150):
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
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[Node]]:
    for name in ("BALLOON_S", "PLUG_S"):  # emulated guests beside other tests take their time
        monkeypatch.setattr(memory, name, 4 * getattr(memory, name) * patience())
    probed = Paths(tmp_path_factory.getbasetemp() / "probe")
    await Acceleration(probed, run).kvm_works(Programs.find({}))
    known = probed.kvm / "acceleration"
    made, authority = [], Authority()
    for name in ("a", "b"):
        paths = Paths(tmp_path / name)
        paths.kvm.mkdir(parents=True)
        if known.exists():
            (paths.kvm / "acceleration").write_bytes(known.read_bytes())
        authority.equip(paths, f"{name}.example.com")
        made.append(Node(paths))
    yield made
    for node in made:
        for one in await node.driver.running():
            record = GuestFiles.of(node.paths, one.uuid).read()
            assert record is not None
            await node.driver.stop(record.instance, 0)


@contextlib.asynccontextmanager
async def a_bridge() -> AsyncIterator[str]:
    """A bridge of this host, on which nothing else is."""
    name = f"gt{secrets.token_hex(4)}"
    await run(["ip", "link", "add", name, "type", "bridge"])
    try:
        await run(["ip", "link", "set", name, "up"])
        yield name
    finally:
        await run(["ip", "link", "delete", name])


@pytest_asyncio.fixture
async def bridge() -> AsyncIterator[str]:
    async with a_bridge() as name:
        yield name


@pytest_asyncio.fixture
async def other_bridge() -> AsyncIterator[str]:
    """A second one."""
    async with a_bridge() as name:
        yield name


def taps_on(bridge: str) -> list[str]:
    """What is connected to a bridge."""
    return sorted(path.name for path in Path(f"/sys/class/net/{bridge}/brif").iterdir())


def installed(guest: Path, tmp_path: Path, **hvparams: object) -> tuple[InstanceSpec, Path]:
    """An instance, and its disk with the small guest on it."""
    plain = tiny_instance(guest, template="sharedfile")
    instance = msgspec.structs.replace(plain, hvparams={**plain.hvparams, **hvparams})
    system = make_disk(tmp_path / "system")
    install(guest, system, instance.name)
    return instance, system


def data_disk(directory: Path, index: int, size: int) -> tuple[DiskSpec, Path]:
    """An empty disk, and its file."""
    disk = DiskSpec(
        uuid=str(uuid.uuid4()), index=index, size=size, template="sharedfile",
        logical_id=("loop", "/x"),
    )  # fmt: skip
    return disk, make_disk(directory / disk.uuid, size)


async def migrate(
    source: Node, target: Node, wanted: InstanceSpec, paths: dict[str, Path], *, live: bool = True
) -> None:
    """The steps of the master, in its order; `wanted` is what the configuration says."""
    info = await source.driver.migration_info(wanted)
    coming = incoming_instance(wanted, info.instance)
    disks = [str(paths[disk.uuid]) for disk in coming.disks]
    place = await target.driver.accept(
        IncomingArgs(instance=coming, address="127.0.0.1", info=info), disks
    )
    result = await source.driver.migrate(
        MigrateArgs(
            instance=wanted,
            address=place.address,
            port=place.port,
            certificate=place.certificate,
            live=live,
        )
    )
    assert (result.status, result.error) == ("completed", "")
    await target.driver.finish_migration(wanted, MigrationEnd.RESUME_TARGET)
    await source.driver.finish_migration(wanted, MigrationEnd.END_SOURCE)


async def pci_devices(node: Node, instance: InstanceSpec) -> list[str]:
    """What sits in which slot, as the guest sees it."""
    text = await node.hear(instance, "cd /sys/bus/pci/devices; grep . */device; cd /")
    return re.findall(r"0000:\S+", text)


@pytest.mark.requirement("S75")
@pytest.mark.parametrize("machine", [pytest.param("pc", marks=pytest.mark.soak), "q35"])
async def test_disks_and_nics_come_grow_and_go_in_a_running_guest(
    nodes: list[Node], guest: Path, tmp_path: Path, bridge: str, machine: str
) -> None:
    node = nodes[0]
    instance, system = installed(guest, tmp_path, machine_version=machine)
    await node.boot(instance, system)
    hotplug = node.driver.hotplug
    assert await hotplug.obstacles(instance) == []
    first, first_file = data_disk(tmp_path, 1, 8)
    second, second_file = data_disk(tmp_path, 1, 16)
    nic = NicSpec(uuid=str(uuid.uuid4()), index=0, mac="aa:00:00:11:22:33", link=bridge)
    for _ in range(2):  # each one again
        await hotplug.add_disk(instance, first, str(first_file))
        await node.waits_for(instance, "cat /proc/partitions", r"8192 vdb\b")
        await hotplug.add_nic(instance, nic)
        await node.waits_for(instance, "cat /sys/class/net/eth0/address", nic.mac)
    await hotplug.add_disk(instance, second, str(second_file))
    await node.waits_for(instance, "cat /proc/partitions", r"16384 vdc\b")
    assert taps_on(bridge) == [tap_name(node.paths.root, nic)]
    assert node.record(instance).instance.disks[1].uuid == second.uuid  # put in the middle

    await node.hear(instance, "echo written-by-the-guest | dd of=/dev/vdc conv=fsync 2>/dev/null")
    assert second_file.read_bytes().startswith(b"written-by-the-guest")
    os.truncate(second_file, 24 * 1024 * 1024)
    await hotplug.resize_disk(instance, msgspec.structs.replace(second, size=24))
    await node.waits_for(instance, "cat /proc/partitions", r"24576 vdc\b")

    for _ in range(2):
        await hotplug.remove_disk(instance, first)
        await hotplug.remove_nic(instance, nic)
    text = await node.hear(instance, "cat /proc/partitions; ls /sys/class/net")
    assert ("vdb" in text, "vdc" in text, "eth0" in text) == (False, True, False)
    record = node.record(instance)
    assert str(first_file) not in open_files(record.pid)
    assert (taps_on(bridge), record.taps, len(record.slots)) == ([], (), 2)
    # A slot that became free is used again.
    await hotplug.add_disk(instance, first, str(first_file))
    await node.waits_for(instance, "cat /proc/partitions", r"8192 vd\w\b")


@pytest.mark.parametrize("machine", ["pc", pytest.param("q35", marks=pytest.mark.soak)])
async def test_a_guest_moves_with_the_devices_that_it_has_and_changes_there(
    nodes: list[Node], guest: Path, tmp_path: Path, bridge: str, machine: str
) -> None:
    here, there = nodes
    instance, system = installed(guest, tmp_path, machine_version=machine)
    await here.boot(instance, system)
    first, first_file = data_disk(tmp_path, 1, 8)
    second, second_file = data_disk(tmp_path, 2, 16)
    paths = {instance.disks[0].uuid: system, first.uuid: first_file, second.uuid: second_file}
    nic = NicSpec(uuid=str(uuid.uuid4()), index=0, mac="aa:00:00:11:22:33", link=bridge)
    await here.driver.hotplug.add_disk(instance, first, str(first_file))
    await here.waits_for(instance, "cat /proc/partitions", r"8192 vdb\b")  # its name is taken
    await here.driver.hotplug.add_disk(instance, second, str(second_file))
    await here.driver.hotplug.add_nic(instance, nic)
    await here.driver.hotplug.remove_disk(instance, first)
    await here.waits_for(instance, "cat /proc/partitions", r"16384 vdc\b")

    # What the configuration has for the next start only does not matter.
    second = msgspec.structs.replace(second, index=1)
    wanted = msgspec.structs.replace(
        instance, disks=(instance.disks[0], second), nics=(nic,), memory=128, vcpus=2
    )
    slots = await pci_devices(here, instance)
    await migrate(here, there, wanted, paths)
    assert await pci_devices(there, instance) == slots
    assert (there.record(instance).instance.vcpus, there.record(instance).instance.memory) == (
        1,
        96,
    )
    await there.waits_for(instance, "cat /proc/partitions", r"16384 vdc\b")
    await there.waits_for(instance, "cat /sys/class/net/eth0/address", nic.mac)
    await there.hear(instance, "echo moved | dd of=/dev/vdc conv=fsync 2>/dev/null")
    assert second_file.read_bytes().startswith(b"moved")

    await there.driver.hotplug.remove_nic(wanted, nic)
    assert "eth0" not in await there.hear(instance, "ls /sys/class/net")
    assert tap_name(there.paths.root, nic) not in [name for _, name in socket.if_nameindex()]
    await there.driver.hotplug.add_disk(wanted, first, str(first_file))
    await there.waits_for(instance, "cat /proc/partitions", r"8192 vd\w\b")
    await migrate(there, here, wanted, paths)
    await here.waits_for(instance, "cat /proc/partitions", r"8192 vd\w\b")
    await here.hear(instance, "rm /run/quiet")
    await wait_for_text(here.files(instance).console_log, r"(HEARTBEAT \d+\s+){2}")


async def test_a_scsi_disk_is_plugged_in_and_a_read_only_one_takes_no_writes(
    nodes: list[Node], guest: Path, tmp_path: Path
) -> None:
    node = nodes[0]
    instance, system = installed(guest, tmp_path, disk_type="scsi", root_path="/dev/sda")
    await node.boot(instance, system)
    disk, file = data_disk(tmp_path, 1, 8)
    disk = msgspec.structs.replace(disk, mode="ro")
    await node.driver.hotplug.add_disk(instance, disk, str(file))
    await node.waits_for(instance, "cat /proc/partitions", r"8192 sdb\b")
    assert "1" in await node.hear(instance, "cat /sys/block/sdb/ro")
    await node.hear(instance, "echo written | dd of=/dev/sdb conv=fsync 2>/dev/null")
    assert file.read_bytes()[:7] == bytes(7)
    await node.driver.hotplug.remove_disk(instance, disk)
    assert "sdb" not in await node.hear(instance, "cat /proc/partitions")


@pytest.mark.requirement("S75", "S76")
async def test_a_nic_is_connected_elsewhere_and_gets_another_address_while_the_guest_runs(
    nodes: list[Node], guest: Path, tmp_path: Path, bridge: str, other_bridge: str
) -> None:
    node = nodes[0]
    nic = NicSpec(uuid=str(uuid.uuid4()), index=0, mac="aa:00:00:11:22:33", link=bridge)
    plain, system = installed(guest, tmp_path)
    instance = msgspec.structs.replace(plain, nics=(nic,))
    await node.boot(instance, system)
    hotplug, tap = node.driver.hotplug, tap_name(node.paths.root, nic)
    assert taps_on(bridge) == [tap]
    moved = msgspec.structs.replace(nic, link=other_bridge)
    await hotplug.change_nic(instance, moved)
    assert (taps_on(bridge), taps_on(other_bridge)) == ([], [tap])
    # The route is one of this host, where other runs of tests have theirs.
    address = f"198.18.{secrets.randbelow(256)}.{secrets.randbelow(256)}"
    routed = msgspec.structs.replace(nic, mode="routed", link="", ip=address)
    await hotplug.change_nic(instance, routed)
    assert taps_on(other_bridge) == []
    assert tap in (await run(["ip", "route", "show", address])).text
    await hotplug.change_nic(instance, nic)
    assert (await run(["ip", "route", "show", address])).text == ""
    assert taps_on(bridge) == [tap]

    renamed = msgspec.structs.replace(nic, mac="aa:00:00:99:99:99")
    await hotplug.change_nic(instance, renamed)
    await node.waits_for(instance, "cat /sys/class/net/eth*/address", renamed.mac)
    assert node.record(instance).instance.nics == (renamed,)
    assert node.record(instance).taps == (tap,)
    await node.driver.stop(instance, 0)
    assert tap not in [name for _, name in socket.if_nameindex()]


ENABLE = "for cpu in /sys/devices/system/cpu/cpu[1-9]/online; do echo 1 >$cpu; done"
ONLINE = "echo online=$(cat /sys/devices/system/cpu/online)"


@pytest.mark.parametrize("machine", ["pc", pytest.param("q35", marks=pytest.mark.soak)])
async def test_processors_come_and_move_with_the_guest(
    nodes: list[Node], guest: Path, tmp_path: Path, machine: str
) -> None:
    """A guest with two processors gets two more; disks have as many queues as it had processors at its start."""
    here, there = nodes
    plain, system = installed(guest, tmp_path, machine_version=machine, max_vcpus=4)
    instance = msgspec.structs.replace(plain, vcpus=2)
    await here.boot(instance, system)
    assert await here.driver.hotplug.set_vcpus(instance, 3) == 3
    await here.waits_for(instance, f"{ENABLE}; {ONLINE}", "online=0-2")
    with pytest.raises(HypervisorError, match="can have 2 to 4 processors"):
        await here.driver.hotplug.set_vcpus(instance, 1)

    wanted = msgspec.structs.replace(instance, vcpus=3)
    await migrate(here, there, wanted, {instance.disks[0].uuid: system})
    assert [one.vcpus for one in await there.driver.running()] == [3]
    await there.waits_for(instance, ONLINE, "online=0-2")
    assert await there.driver.hotplug.set_vcpus(wanted, 4) == 4
    await there.waits_for(instance, f"{ENABLE}; {ONLINE}", "online=0-3")
    await migrate(there, here, wanted, {instance.disks[0].uuid: system})
    assert [one.vcpus for one in await here.driver.running()] == [4]
    await here.waits_for(instance, ONLINE, "online=0-3")


async def test_processors_go_from_a_running_guest(
    nodes: list[Node], guest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = nodes[0]
    instance, system = installed(guest, tmp_path, max_vcpus=3)
    await node.boot(instance, system)
    assert await node.driver.hotplug.set_vcpus(instance, 3) == 3
    await node.waits_for(instance, f"{ENABLE}; {ONLINE}", "online=0-2")
    if node.record(instance).accelerator in processors.NOT_REMOVED_FROM:
        with pytest.raises(HypervisorError, match="keeps its 3 processors until its next start"):
            await node.driver.hotplug.set_vcpus(instance, 1)
        monkeypatch.setattr(processors, "NOT_REMOVED_FROM", ())
    assert await node.driver.hotplug.set_vcpus(instance, 1) == 1
    await node.waits_for(instance, ONLINE, r"online=0\r")
    assert node.record(instance).added_cpus == ()


@pytest.mark.soak
async def test_a_confined_guest_gets_a_processor(
    nodes: list[Node], guest: Path, tmp_path: Path
) -> None:
    node = nodes[0]
    confined = {"security_model": "user", "security_domain": "nobody", "use_chroot": True}
    instance, system = installed(guest, tmp_path, **confined, max_vcpus=2, cpu_mask="0")
    await node.boot(instance, system)
    assert await node.driver.hotplug.set_vcpus(instance, 2) == 2
    await node.waits_for(instance, f"{ENABLE}; {ONLINE}", "online=0-1")
    tasks = Path(f"/proc/{node.record(instance).pid}/task").iterdir()
    assert {frozenset(os.sched_getaffinity(int(task.name))) for task in tasks} == {frozenset((0,))}


@pytest.mark.soak
async def test_a_guest_that_keeps_its_processor_keeps_it_in_the_record(
    nodes: list[Node], guest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel has no ACPI, so it sees no request."""
    monkeypatch.setattr(devices, "LET_GO_S", 3.0)
    monkeypatch.setattr(processors, "NOT_REMOVED_FROM", ())
    here, there = nodes
    instance, system = installed(guest, tmp_path, max_vcpus=3)
    args = f"{instance.hvparams['kernel_args']} acpi=off"
    instance = msgspec.structs.replace(
        instance, hvparams={**instance.hvparams, "kernel_args": args}
    )
    await here.boot(instance, system)
    hotplug = here.driver.hotplug
    assert await hotplug.set_vcpus(instance, 3) == 3
    record = here.record(instance)
    with pytest.raises(HypervisorError, match="did not release processor 2 within"):
        await hotplug.set_vcpus(instance, 1)
    assert here.record(instance) == record
    assert [one.vcpus for one in await here.driver.running()] == [3]
    await migrate(here, there, instance, {instance.disks[0].uuid: system})
    assert there.record(instance).added_cpus == (1, 2)
    await there.waits_for(instance, "echo alive", "alive")


async def test_the_guest_gives_memory_back_and_takes_that_with_it(
    nodes: list[Node], guest: Path, tmp_path: Path
) -> None:
    here, there = nodes
    instance, system = installed(guest, tmp_path)
    await here.boot(instance, system)
    assert await here.driver.hotplug.set_memory(instance, 80) == 80
    [listed] = await here.driver.running()
    assert listed.memory == 80
    await migrate(here, there, instance, {instance.disks[0].uuid: system})
    [listed] = await there.driver.running()
    assert listed.memory == 80
    assert await there.driver.hotplug.set_memory(instance, 90) == 90


async def total(node: Node, instance: InstanceSpec, least: int = 0) -> int:
    """The MiB that a guest uses, once that is enough: it takes a moment to use what it got."""
    for _ in range(150):
        text = await node.hear(instance, "grep MemTotal /proc/meminfo")
        found = int(re.findall(r"MemTotal:\s+(\d+) kB", text)[-1]) // 1024
        if found > least:
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"the guest uses {found} MiB, not more than {least}")


@pytest.mark.parametrize("machine", [pytest.param("pc", marks=pytest.mark.soak), "q35"])
async def test_memory_beyond_the_start_comes_moves_with_the_guest_and_goes(
    nodes: list[Node], guest: Path, tmp_path: Path, machine: str
) -> None:
    here, there = nodes
    confined = {"security_model": "user", "security_domain": "nobody", "use_chroot": True}
    instance, system = installed(
        guest, tmp_path, **confined, machine_version=machine, max_memory=352
    )
    await here.boot(instance, system)
    at_start = await total(here, instance)
    assert await here.driver.hotplug.set_memory(instance, 224) == 224
    grown = await total(here, instance, at_start + 110)
    assert grown <= at_start + 128
    [listed] = await here.driver.running()
    assert listed.memory == 224
    paths = {instance.disks[0].uuid: system}
    is_live = here.record(instance).accelerator != "tcg"
    if not is_live:
        with pytest.raises(HypervisorError, match="128 MiB of added memory"):
            await migrate(here, there, instance, paths)
        await there.driver.finish_migration(instance, MigrationEnd.END_TARGET)
        await here.driver.finish_migration(instance, MigrationEnd.RESUME_SOURCE)
    await migrate(here, there, instance, paths, live=is_live)
    [listed] = await there.driver.running()
    assert (listed.memory, await total(there, instance)) == (224, grown)
    assert await there.driver.hotplug.set_memory(instance, 352) == 352
    assert await total(there, instance, grown + 110) <= grown + 128
    assert await there.driver.hotplug.set_memory(instance, 90) <= 96
    await migrate(there, here, instance, paths)
    assert [one.memory for one in await here.driver.running()] < [97]


async def test_a_guest_without_the_driver_gets_no_memory(
    nodes: list[Node], guest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "PLUG_S", 3.0)
    node = nodes[0]
    instance, system = installed(guest, tmp_path, max_memory=224)
    await node.boot(instance, system)
    await node.hear(instance, "rmmod virtio_mem")
    with pytest.raises(HypervisorError, match="used 0 of 64 MiB"):
        await node.driver.hotplug.set_memory(instance, 160)
    assert [one.memory for one in await node.driver.running()] == [96]
    assert await node.driver.hotplug.set_memory(instance, 90) == 90


async def test_a_node_takes_memory_that_a_guest_does_not_use_and_gives_it_back(
    nodes: list[Node], guest: Path, tmp_path: Path
) -> None:
    """The balloon driver reports what the guest uses; the guest moves with what it had."""
    here, there = nodes
    plain, system = installed(guest, tmp_path)
    instance = msgspec.structs.replace(plain, memory=192)
    await here.boot(instance, system)
    free = 500

    def policy_of(node: Node) -> MemoryPolicy:
        drivers = {"kvm": node.driver}
        return MemoryPolicy(
            node.paths, drivers, InstanceLocks(), node_name=lambda: "n", free_mib=lambda: free
        )

    def configure(node: Node, goal: int) -> None:
        node.paths.ssconf.mkdir(parents=True, exist_ok=True)
        (node.paths.ssconf / "ssconf_memory_goals").write_text(f"n {goal}\n")
        (node.paths.ssconf / "ssconf_memory_minimums").write_text(f"{instance.uuid} 64\n")

    configure(here, 700)
    used = None
    for _ in range(150):
        [amount] = await here.driver.shares.amounts(everyone=True)
        if (used := amount.used) is not None:
            break
        await asyncio.sleep(0.2)
    assert used is not None
    assert 10 < used < 150
    for _ in range(3):
        await policy_of(here).step()
    [listed] = await here.driver.running()
    assert max(64, used) <= listed.memory < 192
    assert listed.lowered is not None
    assert (listed.lowered.before, listed.lowered.goal) == (192, 700)
    await migrate(here, there, instance, {instance.disks[0].uuid: system})
    [moved] = await there.driver.running()
    assert (moved.memory, moved.lowered) == (listed.memory, listed.lowered)
    free = 2000
    configure(there, 700)
    for _ in range(10):
        await policy_of(there).step()
    [back] = await there.driver.running()
    assert (back.memory, back.lowered) == (192, None)


async def test_what_fails_leaves_the_guest_and_the_host_as_they_were(
    nodes: list[Node], guest: Path, tmp_path: Path, bridge: str
) -> None:
    node = nodes[0]
    instance, system = installed(guest, tmp_path)
    await node.boot(instance, system)
    record, hotplug = node.record(instance), node.driver.hotplug
    disk, file = data_disk(tmp_path, 1, 8)
    nic = NicSpec(uuid=str(uuid.uuid4()), index=0, mac="aa:00:00:11:22:33", link="nosuchbr0")
    with pytest.raises(HypervisorError, match="cannot be opened"):
        await hotplug.add_disk(instance, disk, str(tmp_path / "gone"))
    with pytest.raises(HypervisorError, match="nosuchbr0"):
        await hotplug.add_nic(instance, nic)
    with pytest.raises(HypervisorError, match="lock"):  # somebody else has it
        await hotplug.add_disk(instance, disk, str(system))
    bad = msgspec.structs.replace(nic, mac="not-a-mac", link=bridge)
    with pytest.raises(HypervisorError, match="refused device_add"):
        await hotplug.add_nic(instance, bad)
    assert node.record(instance) == record
    assert taps_on(bridge) == []
    await hotplug.add_disk(instance, disk, str(file))
    await node.waits_for(instance, "cat /proc/partitions", r"8192 vdb\b")
    # A guest that stands still cannot let anything go.
    await (monitor := Monitor(node.files(instance).people_monitor))("stop")
    with pytest.raises(HypervisorError, match="the guest is paused"):
        await hotplug.remove_disk(instance, disk)
    await monitor("cont")
    await hotplug.remove_disk(instance, disk)
    assert node.record(instance) == record


@pytest.mark.requirement("S229")
async def test_a_qemu_that_can_open_nothing_gets_disks_and_nics_all_the_same(
    nodes: list[Node], guest: Path, tmp_path: Path, bridge: str
) -> None:
    """As nobody, in an empty directory; and the disk's name leads to it in this process only."""
    node = nodes[0]
    confined = {"security_model": "user", "security_domain": "nobody", "use_chroot": True}
    instance, system = installed(guest, tmp_path, **confined)
    await node.boot(instance, system)
    nic = NicSpec(uuid=str(uuid.uuid4()), index=0, mac="aa:00:00:11:22:33", link=bridge)
    await node.driver.hotplug.add_nic(instance, nic)
    await node.waits_for(instance, "cat /sys/class/net/eth0/address", nic.mac)
    disk, file = data_disk(tmp_path, 1, 8)
    with file.open("r+b") as opened:
        await node.driver.hotplug.add_disk(instance, disk, f"/proc/self/fd/{opened.fileno()}")
    await node.waits_for(instance, "cat /proc/partitions", r"8192 vdb\b")
    pid = node.record(instance).pid
    assert str(file) in open_files(pid)
    assert Path(f"/proc/{pid}").stat().st_uid == pwd.getpwnam("nobody").pw_uid
    await node.driver.hotplug.resize_disk(instance, msgspec.structs.replace(disk, size=9))
    await node.waits_for(instance, "cat /proc/partitions", r"9216 vdb\b")
    await node.driver.hotplug.remove_disk(instance, disk)
    await node.driver.hotplug.remove_nic(instance, nic)


def with_cd(instance: InstanceSpec, image: object) -> InstanceSpec:
    given = {**instance.hvparams, "cdrom_image_path": str(image)}
    return msgspec.structs.replace(instance, hvparams=given)


async def medium(node: Node, instance: InstanceSpec) -> int:
    """How many bytes the CD has that QEMU has in the first drive; 0 without one."""
    [drive] = [
        one
        for one in await Monitor(node.files(instance).monitor)("query-block")
        if "cdrom0" in one.get("qdev", "")
    ]
    assert drive["tray_open"] is False
    return int(drive["inserted"]["image"]["virtual-size"]) if "inserted" in drive else 0


@pytest.mark.requirement("A45")
@pytest.mark.parametrize("kind", ["ide", "scsi"])
async def test_the_cd_of_a_running_guest_is_changed_and_only_for_an_image(
    nodes: list[Node], guest: Path, tmp_path: Path, kind: str
) -> None:
    """By a QEMU that can open nothing; then the guest moves with what it has."""
    node, images = nodes[0], tmp_path / "images"
    images.mkdir()
    for name, size in (("a.iso", 65536), ("b.iso", 131072), ("c.iso", 262144)):
        (images / name).write_bytes(bytes(size))
    (images / "link.iso").symlink_to("/etc/passwd")
    os.mkfifo(images / "pipe.iso")
    confined = {"security_model": "user", "security_domain": "nobody", "use_chroot": True}
    plain, system = installed(
        guest, tmp_path, **confined, cdrom_disk_type=kind, image_directories=str(images)
    )
    instance = with_cd(plain, images / "a.iso")
    await node.driver.start(instance, [str(system)])
    assert await medium(node, instance) == 65536
    pid = node.record(instance).pid
    hotplug = node.driver.hotplug
    for name, size in (("b.iso", 131072), ("c.iso", 262144), ("a.iso", 65536)):
        wanted = with_cd(plain, images / name)
        assert await hotplug.change_medium(wanted, "cdrom_image_path")
        assert await medium(node, instance) == size
        assert {one for one in open_files(pid) if one.endswith(".iso")} == {str(images / name)}
        assert node.record(instance).instance.hvparams["cdrom_image_path"] == str(images / name)
    for wrong in ("/etc/passwd", images / "link.iso", images / "pipe.iso", images / "none.iso"):
        with pytest.raises(HypervisorError, match="cdrom_image_path"):
            await hotplug.change_medium(with_cd(plain, wrong), "cdrom_image_path")
        assert await medium(node, instance) == 65536
    for _ in range(2):
        assert await hotplug.change_medium(with_cd(plain, ""), "cdrom_image_path")
        assert await medium(node, instance) == 0
    assert [one for one in open_files(pid) if one.endswith(".iso")] == []
    assert node.record(instance).instance.hvparams["cdrom_image_path"] == "empty"
    assert await hotplug.change_medium(with_cd(plain, images / "b.iso"), "cdrom_image_path")
    assert await medium(node, instance) == 131072
    assert not await hotplug.change_medium(instance, "cdrom2_image_path")


async def test_a_guest_whose_cd_was_taken_out_moves_with_its_empty_drive(
    nodes: list[Node], guest: Path, tmp_path: Path
) -> None:
    source, target = nodes
    images = tmp_path / "images"
    images.mkdir()
    (images / "a.iso").write_bytes(bytes(65536))
    plain, system = installed(guest, tmp_path, image_directories=str(images))
    instance = with_cd(plain, images / "a.iso")
    await source.boot(instance, system)
    assert await source.driver.hotplug.change_medium(with_cd(plain, ""), "cdrom_image_path")
    (images / "a.iso").unlink()
    await migrate(source, target, with_cd(plain, ""), {plain.disks[0].uuid: system})
    assert await medium(target, instance) == 0
    (images / "b.iso").write_bytes(bytes(131072))
    wanted = with_cd(plain, images / "b.iso")
    assert await target.driver.hotplug.change_medium(wanted, "cdrom_image_path")
    assert await medium(target, instance) == 131072
    await target.waits_for(instance, "echo alive", "alive")


async def test_of_a_guest_that_does_not_run_nothing_is_changed(
    nodes: list[Node], guest: Path, tmp_path: Path
) -> None:
    instance, system = installed(guest, tmp_path)
    hotplug = nodes[0].driver.hotplug
    await hotplug.add_disk(instance, instance.disks[0], str(system))
    await hotplug.remove_disk(instance, instance.disks[0])
    assert await hotplug.set_memory(instance, 10) == 0
    assert await nodes[0].driver.running() == []
