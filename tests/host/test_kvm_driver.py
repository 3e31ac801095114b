"""The KVM driver with real QEMU processes and the small test guest."""

import asyncio
import os
import re
import signal
import socket
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganeti.base import process_table
from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.daemons.guard import GuardProcess
from ganeti.hypervisor.kvm.acceleration import Acceleration
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.hypervisor.kvm.network import tap_name
from ganeti.hypervisor.kvm.programs import Programs
from ganeti.model.data_collectors import KVM_MEMORY, KVM_STATUS, collecting
from ganeti.model.instance_spec import InstanceSpec, NicSpec
from ganeti.model.wire import encode
from ganeti.monitoring.collectors import DESCRIPTIONS, Collectors, Host
from ganeti.node.lease_record import LeaseRecord, boot_id, write_lease
from ganeti.rpc.procedures.migration import MigrationEnd
from tests.support.kvm_nodes import (
    READY,
    Node,
    accept,
    boot,
    migrate,
    nothing_is_left,
    send,
)
from tests.support.patience import patience
from tests.support.predictable import FrozenClock
from tests.support.tiny_guest import (
    are_consecutive,
    disk_heartbeats,
    heartbeats,
    install,
    make_disk,
    open_files,
    tiny_instance,
    wait_for_text,
)

NOBODY = 65534
MIB = 1 << 20

pytestmark = [pytest.mark.host, pytest.mark.timeout(180)]


async def test_a_guest_boots_from_what_was_installed_beats_and_powers_off(
    node: Node, guest: Path, disk: Path
) -> None:
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    found = await wait_for_text(node.console(instance), READY)
    assert found.groups() == ("web1.example.com", "1", "0")
    await node.beats(instance)
    [listed] = await node.driver.running()
    assert (listed.name, listed.state, listed.memory) == (instance.name, "running", 96)
    assert listed.cpu_time_s > 0

    await node.driver.stop(instance, 60)
    assert "GANETI-TINY POWERDOWN" in node.console(instance).read_text()
    assert await node.driver.running() == []
    assert nothing_is_left(node, instance)
    shown = heartbeats(node.console(instance))
    assert are_consecutive(shown)
    assert set(shown) <= set(disk_heartbeats(disk))
    await node.driver.stop(instance, 60)  # what is down stays down

    await boot(node, instance, disk)
    found = await wait_for_text(node.console(instance), READY)
    assert found[2] == "2"
    assert int(found[3]) >= shown[-1]
    await reboots(node, instance, soft=False)


async def reboots(node: Node, instance: InstanceSpec, *, soft: bool) -> None:
    """A guest that runs is told to boot again, and does, in the same process."""
    await node.beats(instance, 2)
    log, pid = node.console(instance), node.record(instance).pid
    earlier = log.read_text()
    boots = len(re.findall(READY, earlier))
    await node.driver.reboot(instance, soft=soft, timeout_s=60)
    await wait_for_text(log, rf"(?s)(READY hostname.*){{{boots + 1}}}")
    ends = log.read_text().count("POWERDOWN") - earlier.count("POWERDOWN")
    assert ends == (1 if soft else 0)
    assert node.record(instance).pid == pid
    assert await node.state(instance) == "running"


@contextmanager
def without_rights() -> Iterator[None]:
    """As a user that owns nothing, like the service user of the monitoring daemon."""
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


async def stands_still(pid: int) -> None:
    """Return when a stop signal has reached the process."""
    async with asyncio.timeout(30 * patience()):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def answers_on_its_console(node: Node, instance: InstanceSpec) -> None:
    """What is typed reaches the guest, and what it says comes back."""
    info = await node.driver.console(instance)
    assert info.kind == "socket"
    reader, writer = await asyncio.open_unix_connection(info.path)
    writer.write(b"touch /run/quiet; echo answer=$((6 * 7))\n")
    await writer.drain()
    async with asyncio.timeout(30 * patience()):
        answer = await reader.readuntil(b"answer=42\r\n")
    assert answer
    writer.close()
    await writer.wait_closed()


async def told(node: Node, name: str) -> Any:
    """What a collector says, who has no right."""
    every = collecting({}, {})
    await asyncio.to_thread(int)  # what it imports may lie where only root can read
    collectors = Collectors(Host(node.paths), lambda: every)
    with without_rights():
        report = await collectors.report(DESCRIPTIONS[name])
    return report["data"]


async def test_console_collectors_and_a_new_node_daemon_know_the_guest(
    node: Node, guest: Path, disk: Path
) -> None:
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    await answers_on_its_console(node, instance)

    [one] = (await told(node, KVM_STATUS))["instances"]
    assert (one["name"], one["uuid"], one["actualState"]) == (instance.name, instance.uuid, "up")
    assert one["uptime"].startswith("0:0")
    pages = (await told(node, KVM_MEMORY))[instance.name]
    assert 32 * MIB < pages * os.sysconf("SC_PAGE_SIZE") < 1024 * MIB
    pid = node.record(instance).pid
    os.kill(pid, signal.SIGSTOP)
    try:
        await stands_still(pid)
        found = await told(node, KVM_STATUS)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert found["status"]["message"] == f"stopped: {instance.name}"

    # As if the daemon had died between starting QEMU and writing down its process id.
    record = node.record(instance)
    node.files(instance).write(msgspec.structs.replace(record, pid=0, start_ticks=0))
    successor = KvmHypervisor(node.paths, run)
    [listed] = await successor.running()
    assert listed.state == "running"
    await successor.stop(instance, 60)
    assert nothing_is_left(node, instance)
    assert (await told(node, KVM_STATUS))["instances"] == []
    assert await told(node, KVM_MEMORY) == {}


@pytest.mark.requirement("A63", "A66")
async def test_sockets_and_descriptors_are_for_root_and_for_qemu_alone(
    node: Node, guest: Path, disk: Path
) -> None:
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        await node.driver.start(instance, [str(disk)])
        record = node.record(instance)
        pipes = [name for name in open_files(record.pid) if name.startswith("pipe:")]
        assert pipes == []
        assert os.getsid(record.pid) == record.pid
    finally:
        os.close(reader)
        os.close(writer)
    files = node.files(instance)
    unasked = {files.guest_agent, files.tpm, files.moment}
    assert not any(path.exists() for path in unasked)
    sockets = (path for path in files.sockets if path not in unasked)
    for path in (*sockets, files.record, files.console_log, files.qemu_log):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(files.directory.stat().st_mode) == 0o700


async def test_starting_twice_keeps_the_one_process(node: Node, guest: Path, disk: Path) -> None:
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    await node.driver.start(instance, [str(disk)], paused=True)
    pid = node.record(instance).pid
    assert await node.state(instance) == "paused"
    await node.driver.start(instance, [str(disk)])
    assert node.record(instance).pid == pid
    assert await node.state(instance) == "running"


@pytest.mark.soak
async def test_a_guest_that_ignores_the_power_button_is_ended_by_force(
    node: Node, guest: Path, disk: Path
) -> None:
    instance = tiny_instance(guest)
    install(guest, disk, instance.name, ignore_acpi="yes")
    await boot(node, instance, disk)
    await node.beats(instance, 1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await node.driver.stop(instance, 3)
    assert 3 <= loop.time() - began < 20 * patience()
    assert nothing_is_left(node, instance)
    assert "POWERDOWN" not in node.console(instance).read_text()


async def test_a_hung_qemu_counts_as_running_and_is_killed_and_one_that_was_killed_is_not_listed(
    node: Node, guest: Path, disk: Path
) -> None:
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    await node.driver.start(instance, [str(disk)])
    os.kill(node.record(instance).pid, signal.SIGSTOP)
    assert await node.state(instance) == "running"
    await node.driver.stop(instance, 1)
    assert nothing_is_left(node, instance)

    await node.driver.start(instance, [str(disk)])
    os.kill(node.record(instance).pid, signal.SIGKILL)
    for _ in range(200):
        if await node.state(instance) is None:
            break
        await asyncio.sleep(0.05)
    assert nothing_is_left(node, instance)
    await node.driver.start(instance, [str(disk)])
    assert await node.state(instance) == "running"


async def test_a_qemu_that_dies_at_start_leaves_nothing_and_its_words_are_in_the_error(
    node: Node, guest: Path, disk: Path
) -> None:
    instance = tiny_instance(guest, machine_version="no-such,machine")
    install(guest, disk, instance.name)
    with pytest.raises(HypervisorError, match="unsupported machine type"):
        await node.driver.start(instance, [str(disk)])
    assert nothing_is_left(node, instance)
    assert await node.driver.running() == []
    with pytest.raises(HypervisorError, match="cannot be opened"):
        await node.driver.start(instance, [str(disk.with_name("gone"))])
    assert nothing_is_left(node, instance)


@pytest.mark.requirement("G5")
async def test_a_second_instance_on_the_same_disk_is_refused_by_its_lock(
    nodes: list[Node], guest: Path, disk: Path
) -> None:
    first, second = tiny_instance(guest), tiny_instance(guest)
    install(guest, disk, first.name)
    await nodes[0].driver.start(first, [str(disk)])
    with pytest.raises(HypervisorError, match="lock"):
        await nodes[1].driver.start(second, [str(disk)])
    assert nothing_is_left(nodes[1], second)
    assert await nodes[0].state(first) == "running"


@pytest.mark.soak
async def test_a_soft_reboot_ends_the_guest_in_order_and_boots_it_again(
    node: Node, guest: Path, disk: Path
) -> None:
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    await reboots(node, instance, soft=True)


@pytest.mark.requirement("G5")
async def test_live_migration_loses_no_heartbeat(
    nodes: list[Node], guest: Path, disk: Path
) -> None:
    here, there = nodes
    instance = tiny_instance(guest, template="sharedfile")
    install(guest, disk, instance.name)
    await boot(here, instance, disk)
    await here.beats(instance)

    await migrate(here, there, instance, disk)
    assert await here.state(instance) is None
    assert nothing_is_left(here, instance)
    assert await there.state(instance) == "running"
    await there.beats(instance)
    shown = heartbeats(here.console(instance), there.console(instance))
    assert are_consecutive(shown), shown
    # Asked once more, each step says the same.
    await there.driver.finish_migration(instance, MigrationEnd.RESUME_TARGET)
    await here.driver.finish_migration(instance, MigrationEnd.END_SOURCE)
    before_return = heartbeats(there.console(instance))

    await migrate(there, here, instance, disk)
    await here.beats(instance)
    shown = heartbeats(there.console(instance), here.console(instance))
    assert are_consecutive(shown), shown
    assert shown[: len(before_return)] == before_return
    await here.driver.stop(instance, 60)
    on_disk = disk_heartbeats(disk)
    assert are_consecutive(sorted(on_disk))
    assert max(on_disk) >= shown[-1]
    assert set(on_disk.values()) == {1}


@pytest.mark.requirement("F20", "G5")
async def test_a_guest_whose_target_dies_or_is_called_off_runs_on_and_moves_at_last(
    nodes: list[Node], guest: Path, disk: Path
) -> None:
    here, there = nodes
    instance = tiny_instance(guest, template="sharedfile")
    install(guest, disk, instance.name)
    await boot(here, instance, disk)
    with pytest.raises(HypervisorError, match="still runs"):
        await here.driver.finish_migration(instance, MigrationEnd.END_SOURCE)
    await the_target_dies(here, there, instance, disk)
    await it_is_taken_back(here, there, instance, disk)
    # And the next one works; neither end is ended against what it sees.
    await migrate(here, there, instance, disk)
    with pytest.raises(HypervisorError, match="not ended"):
        await there.driver.finish_migration(instance, MigrationEnd.END_TARGET)
    assert await there.state(instance) == "running"


async def the_target_dies(here: Node, there: Node, instance: InstanceSpec, disk: Path) -> None:
    """While the memory is sent, slowly."""
    slow = msgspec.structs.replace(
        instance, hvparams=instance.hvparams | {"migration_bandwidth": 1}
    )
    incoming = await accept(there, slow, disk, await here.driver.migration_info(slow))
    sending = asyncio.ensure_future(send(here, slow, incoming))
    await asyncio.sleep(0.5)
    os.kill(there.record(instance).pid, signal.SIGKILL)
    result = await sending
    assert result.status == "failed"
    assert result.error
    await goes_on(here, there, instance)


async def it_is_taken_back(here: Node, there: Node, instance: InstanceSpec, disk: Path) -> None:
    """Until the target is told to go on."""
    info = await here.driver.migration_info(instance)
    incoming = await accept(there, instance, disk, info)
    again = await accept(there, instance, disk, info)
    assert again == incoming
    await send(here, instance, incoming)
    assert await there.state(instance) == "incoming"
    assert await here.state(instance) == "postmigrate"
    for node in (here, there):
        with pytest.raises(HypervisorError, match="migration"):
            await node.driver.start(instance, [str(disk)])
    await goes_on(here, there, instance)


async def goes_on(here: Node, there: Node, instance: InstanceSpec) -> None:
    """The move is called off at both ends: the guest runs where it was."""
    await there.driver.finish_migration(instance, MigrationEnd.END_TARGET)
    await here.driver.finish_migration(instance, MigrationEnd.RESUME_SOURCE)
    assert nothing_is_left(there, instance)
    assert await here.state(instance) == "running"
    await here.beats(instance)
    assert are_consecutive(heartbeats(here.console(instance)))


async def test_a_guest_is_not_accepted_by_other_acceleration_or_older_qemu(
    nodes: list[Node], guest: Path, disk: Path
) -> None:
    here, there = nodes
    instance = tiny_instance(guest, template="sharedfile", accelerator="tcg")
    install(guest, disk, instance.name)
    await here.driver.start(instance, [str(disk)])
    info = await here.driver.migration_info(instance)
    assert info.machine.startswith("pc-i440fx-")
    replace = msgspec.structs.replace
    for wrong in (replace(info, accelerator="kvm"), replace(info, qemu_version="99.0.0")):
        with pytest.raises(HypervisorError):
            await accept(there, instance, disk, wrong)
        assert nothing_is_left(there, instance)


async def test_a_taken_migration_port_is_replaced_by_a_free_one(
    nodes: list[Node], guest: Path, disk: Path
) -> None:
    here, there = nodes
    instance = tiny_instance(guest, template="sharedfile")
    install(guest, disk, instance.name)
    await here.driver.start(instance, [str(disk)])
    info = await here.driver.migration_info(instance)
    listener = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0)
    taken = listener.sockets[0].getsockname()[1]
    instance = msgspec.structs.replace(
        instance, hvparams=instance.hvparams | {"migration_port": taken}
    )
    incoming = await accept(there, instance, disk, info)
    assert incoming.port != taken
    listener.close()
    await listener.wait_closed()
    with pytest.raises(HypervisorError):
        await accept(here, instance, disk, info)


async def test_the_counting_guest_ends_under_emulation_and_the_choice_is_remembered(
    tmp_path: Path,
) -> None:
    paths = Paths(tmp_path)
    probe = Acceleration(paths, run)
    program = Programs.find({})
    assert await probe.runs_to_its_end(program, "tcg")
    works = await probe.kvm_works(program)
    assert await probe.choose("auto", program) == ("kvm" if works else "tcg")
    assert not (paths.kvm / "probe.rom").exists()

    async def never(*_args: object, **_more: object) -> None:
        raise AssertionError("asked again")

    remembering = Acceleration(paths, never)  # type: ignore[arg-type] # it must not be called
    assert await remembering.kvm_works(program) is works


async def test_parameters_that_this_node_cannot_meet_are_named(node: Node, guest: Path) -> None:
    good = tiny_instance(guest).hvparams
    assert await node.driver.validate(good) == []
    bad = good | {"initrd_path": "/nowhere/initrd", "machine_version": "pdp11"}
    problems = await node.driver.validate(bad)
    assert [problem.split(":")[0] for problem in problems] == ["initrd_path", "machine_version"]
    assert await node.driver.verify() == []
    assert await node.driver.version() >= "7"


async def test_a_bridge_that_is_missing_is_named_and_no_tap_device_stays(
    node: Node, guest: Path, disk: Path
) -> None:
    nic = NicSpec(uuid=str(uuid.uuid4()), index=0, mac="aa:00:00:11:22:33", link="nosuchbr0")
    instance = msgspec.structs.replace(tiny_instance(guest), nics=(nic,))
    install(guest, disk, instance.name)
    with pytest.raises(HypervisorError, match="nosuchbr0"):
        await node.driver.start(instance, [str(disk)])
    assert tap_name(node.paths.root, nic) not in [name for _, name in socket.if_nameindex()]
    assert nothing_is_left(node, instance)


@pytest.mark.requirement("D7")
@pytest.mark.parametrize("is_recorded", [True, False])
async def test_a_guest_is_killed_when_the_lease_of_its_node_is_over(
    node: Node, guest: Path, disk: Path, *, is_recorded: bool
) -> None:
    """Also if the node daemon died before it had recorded the process."""
    clock = FrozenClock()
    instance, other = tiny_instance(guest), tiny_instance(guest, "other")
    for one, path in ((instance, disk), (other, make_disk(disk.with_name("other")))):
        await node.driver.start(one, [str(path)], paused=True)
    record = node.record(instance)
    if not is_recorded:
        started = msgspec.structs.replace(record, pid=0, start_ticks=0)
        node.files(instance).record.write_bytes(encode(started))
    lease = LeaseRecord(boot_id(node.paths), clock.now + 10, {instance.uuid: clock.now})
    write_lease(node.paths, lease)
    guard = GuardProcess(node.paths, clock)
    assert guard.step()
    assert await node.state(instance)
    clock.advance(10.0)
    assert guard.step()
    assert not process_table.is_alive(record.process)
    assert not await node.state(instance)
    assert await node.state(other)
