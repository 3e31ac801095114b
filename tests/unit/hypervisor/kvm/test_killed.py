"""The node daemon killed before and after each question to a monitor: a repeated call ends well.

A kill is not an error: no handler of the dead daemon has any effect. So at the fatal question all
files are copied, and put back once the dead driver has unwound; whatever it asks meanwhile is lost.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.process import Completed
from ganeti.base.process_table import ProcessId
from ganeti.hypervisor.kvm import hotplug as hotplug_module
from ganeti.hypervisor.kvm import migration_tls, processors
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.hypervisor.kvm.monitor import CommandRefused, MonitorGone, Talk
from ganeti.hypervisor.kvm.network import tap_add, tap_name, tap_remove
from ganeti.hypervisor.kvm.programs import Programs
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.rpc.procedures.migration import Incoming, IncomingArgs, MigrateArgs, MigrationEnd
from tests.support.single_questions import SingleQuestions
from tests.unit.hypervisor.kvm.test_driver import executed

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G5", "G11", "F20", "F23")]

UUID = "8dea39da-5dea-4e7c-9a63-1c2b3d4e5f60"
DISK = DiskSpec(uuid="d2" + UUID[2:], index=0, size=1, template="file", logical_id=("loop", "/1"))
INSTANCE = InstanceSpec(
    name="web1", uuid=UUID, hypervisor="kvm", os="tiny", memory=96, vcpus=1,
    hvparams={"accelerator": "tcg"},
)  # fmt: skip
NIC = NicSpec(uuid="a1" + UUID[2:], index=0, mac="aa:00:00:00:00:01", link="br0")
LIMIT = 60
"""More questions than any operation asks."""


class Killed(BaseException):
    """The node daemon, by SIGKILL."""


@dataclass
class Qemu:
    """One process, as far as these operations see it."""

    argv: Sequence[str]
    state: str = "prelaunch"
    migration: dict[str, Any] = field(default_factory=dict)
    port: int = 0
    objects: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)
    netdevs: set[str] = field(default_factory=set)
    below: dict[str, str] = field(default_factory=dict)
    direct: dict[str, bool] = field(default_factory=dict)
    """Block nodes that have had another one below, or beside: whether they bypass the host's cache."""
    """Upper node of a disk -> the lower node that it uses."""
    jobs: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Block job -> its state, and the node that it writes."""

    def answer(self, host: "Host", command: str, arguments: Mapping[str, Any]) -> Any:
        named = str(arguments.get("id") or arguments.get("node-name") or "")
        things = {
            "object": self.objects,
            "device": self.devices,
            "blockdev": self.nodes,
            "netdev": self.netdevs,
        }
        kind = command.replace("-", "_").partition("_")[0]
        match command:
            case "object-add" | "device_add" | "blockdev-add" | "netdev_add":
                if named in things[kind]:
                    raise CommandRefused(f"{named} is there already")
                things[kind].add(named)
                self.direct[named] = bool(arguments.get("cache", {}).get("direct"))
            case "object-del" | "device_del" | "blockdev-del" | "netdev_del":
                if named not in things[kind]:
                    raise CommandRefused(f"there is no {named}")
                self.check_unused(named)
                things[kind].remove(named)
            case "migrate-incoming":
                self.state, self.port = "inmigrate", 8102
            case "migrate":
                host.arrive()
                self.state, self.migration = "postmigrate", {"status": "completed"}
                self.migration |= {"total-time": 3, "downtime": 1}
            case "cont":
                self.state = "running"
            case "stop":
                self.state = "paused"
            case "quit" | "system_powerdown":
                host.end(self)
            case _:
                self.change_blocks(command, arguments)
        return self.told(command, arguments)

    def check_unused(self, node: str) -> None:
        if node in {*self.below.values(), *(target for _, target in self.jobs.values())}:
            raise CommandRefused(f"{node} is in use")

    def change_blocks(self, command: str, arguments: Mapping[str, Any]) -> None:
        match command:
            case "blockdev-mirror":
                self.jobs[arguments["job-id"]] = "ready", arguments["target"]
            case "block-job-cancel":
                job = arguments["device"]
                self.jobs[job] = "concluded", self.jobs[job][1]
            case "job-dismiss":
                del self.jobs[arguments["id"]]
            case "blockdev-reopen":
                self._reopen(arguments["options"])

    def _reopen(self, options: Sequence[Mapping[str, Any]]) -> None:
        self.below |= {one["node-name"]: one["file"] for one in options if "file" in one}
        self.direct |= {one["node-name"]: one["cache"]["direct"] for one in options}

    def told(self, command: str, arguments: Mapping[str, Any]) -> Any:
        listed = self.objects if arguments.get("path") == "/objects" else self.devices
        inet = [{"type": "inet", "host": "h", "port": str(self.port)}]
        return {
            "query-status": {"status": self.state},
            "query-version": {"qemu": {"major": 7, "minor": 2, "micro": 22}},
            "query-migrate": self.migration or ({"socket-address": inet} if self.port else {}),
            "query-migrate-capabilities": [],
            "query-jobs": [
                {"id": job, "status": state, "current-progress": 1, "total-progress": 1}
                for job, (state, _) in self.jobs.items()
            ],
            "query-named-block-nodes": [
                {
                    "node-name": name,
                    "cache": {"direct": self.direct.get(name, False)},
                    "image": {"virtual-size": 1},
                }
                for name in self.nodes
            ],
            "query-block-exports": [],
            "qom-list": [{"name": name} for name in sorted(listed)],
            "query-hotpluggable-cpus": [
                {"type": "qemu64-x86_64-cpu", "props": {"core-id": core}} for core in (3, 2, 1, 0)
            ],
            "qom-get": "pc-i440fx-7.2-machine",
        }.get(command, {})


class Host(SingleQuestions):
    """A node: its processes, its files, and a daemon that can be killed at a question."""

    def __init__(self, root: Path) -> None:
        self.paths = Paths(root)
        self.copy = root.with_name(f"{root.name}-copy")
        self.qemus: dict[ProcessId, Qemu] = {}
        self.taps: set[str] = set()
        self.asked = 0
        self.fatal: tuple[int, bool] | None = None
        self.was_killed = False
        self.target: Host | None = None
        self.driver = self.daemon()

    def daemon(self) -> KvmHypervisor:
        return KvmHypervisor(self.paths, self.run, processes=self, monitor=self.monitor)

    def kill_at(self, question: int, *, is_done: bool) -> None:
        self.fatal, self.asked = (question, is_done), 0

    def restart(self) -> None:
        """Another daemon, on the files as they were at the kill."""
        shutil.rmtree(self.paths.root)
        shutil.copytree(self.copy, self.paths.root)
        shutil.rmtree(self.copy)
        self.was_killed, self.fatal = False, None
        self.driver = self.daemon()

    async def after(self, act: Callable[["Host"], Awaitable[object]]) -> bool:
        """Do it, and begin anew if that killed the daemon; whether it did."""
        try:
            await act(self)
        except Killed:
            self.restart()
            return True
        self.fatal = None
        return False

    def _die(self) -> None:
        self.was_killed = True
        shutil.copytree(self.paths.root, self.copy)
        raise Killed

    def _check_alive(self) -> None:
        if self.was_killed:
            raise Killed

    # processes
    def spawn(self, argv: Sequence[str], log_path: Path, *, keep: Sequence[int] = ()) -> ProcessId:
        self._check_alive()
        process = ProcessId(os.getpid(), 1 + len(self.qemus) + self.asked)
        self.qemus[process] = Qemu(executed(argv))
        return process

    def is_alive(self, process: ProcessId) -> bool:
        return process in self.qemus

    def find(self, argv: Sequence[str]) -> ProcessId | None:
        return next(
            (one for one, qemu in self.qemus.items() if list(qemu.argv) == list(argv)), None
        )

    def kill(self, process: ProcessId) -> None:
        self._check_alive()
        self.qemus.pop(process, None)

    async def ended_within(self, process: ProcessId, timeout_s: float) -> bool:
        if process in self.qemus:
            await asyncio.sleep(timeout_s)
        return process not in self.qemus

    def cpu_time_s(self, process: ProcessId) -> float:
        return 1.5

    # commands
    async def run(
        self, argv: Sequence[str], *, timeout_s: float = 60.0, stdin: bytes | None = None,
        env: Mapping[str, str] | None = None, check: bool = True,
    ) -> Completed:  # fmt: skip
        self._check_alive()
        tap = tap_name(self.paths.root, NIC)
        if argv == tap_add(tap):
            assert tap not in self.taps
            self.taps.add(tap)
        elif argv == tap_remove(tap):
            self.taps.discard(tap)
        text = b"QEMU emulator version 7.2.22 (Debian)\n" if argv[1:] == ["--version"] else b""
        return Completed(tuple(argv), 0, text, b"")

    # monitors
    def monitor(self, path: Path) -> Talk:
        return self

    async def with_files(
        self, files: Sequence[int], commands: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> None:
        for command, arguments in commands:
            await self(command, arguments)

    async def __call__(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout_s: float = 20.0
    ) -> Any:
        self._check_alive()
        if not self.qemus:
            raise MonitorGone("nobody listens")
        self.asked += 1
        number, is_done = self.fatal or (0, False)
        if number == self.asked and not is_done:
            self._die()
        (qemu,) = self.qemus.values()
        try:
            return qemu.answer(self, command, arguments or {})
        finally:
            assert len(self.qemus) <= 1
            if number == self.asked:
                self._die()

    # what QEMU does
    def arrive(self) -> None:
        assert self.target is not None
        (there,) = self.target.qemus.values()
        assert there.state == "inmigrate"
        there.state = "paused"

    def end(self, qemu: Qemu) -> None:
        self.qemus = {process: one for process, one in self.qemus.items() if one is not qemu}

    @property
    def states(self) -> list[str]:
        return [qemu.state for qemu in self.qemus.values()]

    @property
    def has_record(self) -> bool:
        return GuestFiles.of(self.paths, UUID).record.exists()


@contextlib.contextmanager
def opened(*_tap: str, queues: int = 1, has_header: bool = True) -> Iterator[list[int]]:
    """A tap device that this host need not have."""
    yield list(range(queues))


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Programs, "find", lambda _self, _hvparams: "/usr/bin/qemu")
    monkeypatch.setattr(hotplug_module, "open_tap", opened)
    monkeypatch.setattr(migration_tls, "SHARED_DIRECTORY", tmp_path / "shared")


KILLS = [(number, is_done) for number in range(1, LIMIT) for is_done in (False, True)]


async def sweep(
    tmp_path: Path,
    scene: Callable[[Path], Awaitable[Host]],
    act: Callable[[Host], Awaitable[object]],
    check: Callable[[Host], Awaitable[None]],
) -> int:
    """Kill the daemon at each question of an act; how many kills there were. `check` repeats the act."""
    for count, (number, is_done) in enumerate(KILLS):
        host = await scene(tmp_path / str(count))
        host.kill_at(number, is_done=is_done)
        was_killed = await host.after(act)
        await check(host)
        if not was_killed:
            return count
    raise AssertionError("it asks for ever")


async def down(root: Path) -> Host:
    return Host(root)


async def up(root: Path) -> Host:
    host = Host(root)
    await host.driver.start(INSTANCE, [])
    return host


async def start(host: Host) -> None:
    await host.driver.start(INSTANCE, [])


async def stop(host: Host) -> None:
    await host.driver.stop(INSTANCE, 10)


async def test_a_start_that_was_killed_is_started(tmp_path: Path) -> None:
    async def check(host: Host) -> None:
        shown = [one.state for one in await host.driver.running()]
        assert shown == ["paused" if one == "prelaunch" else one for one in host.states]
        await start(host)
        assert host.states == ["running"]
        assert [one.state for one in await host.driver.running()] == ["running"]
        await stop(host)
        assert (host.states, host.has_record) == ([], False)

    assert await sweep(tmp_path, down, start, check) > 8


async def test_a_start_that_was_killed_can_be_stopped(tmp_path: Path) -> None:
    async def check(host: Host) -> None:
        await stop(host)
        assert (host.states, host.has_record) == ([], False)

    await sweep(tmp_path, down, start, check)


async def test_a_stop_that_was_killed_is_finished_or_undone(tmp_path: Path) -> None:
    async def check(host: Host) -> None:
        await stop(host)
        assert (host.states, host.has_record) == ([], False)
        await start(host)
        assert host.states == ["running"]

    assert await sweep(tmp_path, up, stop, check) > 2


@pytest.mark.parametrize("soft", [False, True])
async def test_a_reboot_that_was_killed_is_repeated(tmp_path: Path, *, soft: bool) -> None:
    async def reboot(host: Host) -> None:
        await host.driver.reboot(INSTANCE, soft=soft, timeout_s=0)

    async def check(host: Host) -> None:
        await reboot(host)
        assert host.states == ["running"]

    await sweep(tmp_path, up, reboot, check)


async def plug(host: Host) -> None:
    disk = host.paths.root / "disk"
    disk.write_bytes(bytes(1 << 20))
    await host.driver.hotplug.add_disk(INSTANCE, DISK, str(disk))


async def unplug(host: Host) -> None:
    await host.driver.hotplug.remove_disk(INSTANCE, DISK)


async def test_a_disk_that_was_half_plugged_in_comes_or_goes(tmp_path: Path) -> None:
    async def check(host: Host) -> None:
        await host.driver.migration_info(INSTANCE)  # which strikes out what is not there
        await plug(host)
        (qemu,) = host.qemus.values()
        assert len(qemu.devices) == 1
        await unplug(host)
        assert qemu.devices == qemu.nodes == set()

    assert await sweep(tmp_path, up, plug, check) > 10


async def test_a_disk_that_was_half_taken_out_goes(tmp_path: Path) -> None:
    async def plugged(root: Path) -> Host:
        host = await up(root)
        await plug(host)
        return host

    async def check(host: Host) -> None:
        await unplug(host)
        (qemu,) = host.qemus.values()
        assert qemu.devices == qemu.nodes == set()

    assert await sweep(tmp_path, plugged, unplug, check) > 6


async def plug_nic(host: Host) -> None:
    await host.driver.hotplug.add_nic(INSTANCE, NIC)


async def unplug_nic(host: Host) -> None:
    await host.driver.hotplug.remove_nic(INSTANCE, NIC)


def check_nic(host: Host, count: int) -> None:
    """The guest, the record and the host have it, or none of them has anything of it."""
    (qemu,) = host.qemus.values()
    record = GuestFiles.of(host.paths, UUID).read()
    assert record is not None
    counts = {
        len(qemu.devices), len(qemu.netdevs), len(host.taps), len(record.taps),
        len(record.instance.nics), len(record.slots),
    }  # fmt: skip
    assert counts == {count}


async def test_a_nic_that_was_half_plugged_in_comes_or_goes(tmp_path: Path) -> None:
    async def check(host: Host) -> None:
        await host.driver.migration_info(INSTANCE)  # which strikes out what is not there
        (qemu,) = host.qemus.values()
        check_nic(host, len(qemu.devices))
        await plug_nic(host)
        check_nic(host, 1)
        await unplug_nic(host)
        check_nic(host, 0)

    assert await sweep(tmp_path, up, plug_nic, check) > 6


async def plugged_nic(root: Path) -> Host:
    host = await up(root)
    await plug_nic(host)
    return host


async def test_a_nic_that_was_half_taken_out_goes(tmp_path: Path) -> None:
    async def check(host: Host) -> None:
        await unplug_nic(host)
        check_nic(host, 0)

    assert await sweep(tmp_path, plugged_nic, unplug_nic, check) > 4


async def test_a_nic_whose_exchange_was_killed_is_the_new_one_after_the_next(
    tmp_path: Path,
) -> None:
    other = replace(NIC, mac="aa:00:00:00:00:02")

    async def exchange(host: Host) -> None:
        await host.driver.hotplug.change_nic(INSTANCE, other)

    async def check(host: Host) -> None:
        await host.driver.migration_info(INSTANCE)
        await exchange(host)
        record = GuestFiles.of(host.paths, UUID).read()
        assert record is not None
        if record.instance.nics:  # else it was taken out, and comes with the next start
            assert record.instance.nics == (other,)
        check_nic(host, len(record.instance.nics))

    assert await sweep(tmp_path, plugged_nic, exchange, check) > 8


ROOMY = replace(INSTANCE, hvparams={**INSTANCE.hvparams, "max_vcpus": 4})


@pytest.fixture
def removable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulated guests lose processors, too."""
    monkeypatch.setattr(processors, "NOT_REMOVED_FROM", ())


async def up_with_room(root: Path) -> Host:
    host = Host(root)
    await host.driver.start(ROOMY, [])
    return host


def check_vcpus(host: Host, count: int) -> None:
    """The guest and its record have this number of processors."""
    (qemu,) = host.qemus.values()
    record = GuestFiles.of(host.paths, UUID).read()
    assert record is not None
    assert qemu.devices == {f"cpu_{position}" for position in record.added_cpus}
    assert len(record.added_cpus) + ROOMY.vcpus == count


@pytest.mark.usefixtures("removable")
async def test_processors_that_were_half_added_come_or_go(tmp_path: Path) -> None:
    async def add(host: Host) -> None:
        assert await host.driver.hotplug.set_vcpus(ROOMY, 3) == 3

    async def check(host: Host) -> None:
        await host.driver.migration_info(ROOMY)  # which strikes out what is not there
        (qemu,) = host.qemus.values()
        check_vcpus(host, ROOMY.vcpus + len(qemu.devices))
        await add(host)
        check_vcpus(host, 3)
        assert await host.driver.hotplug.set_vcpus(ROOMY, 1) == 1
        check_vcpus(host, 1)

    assert await sweep(tmp_path, up_with_room, add, check) > 8


@pytest.mark.usefixtures("removable")
async def test_processors_that_were_half_removed_go(tmp_path: Path) -> None:
    async def scene(root: Path) -> Host:
        host = await up_with_room(root)
        await host.driver.hotplug.set_vcpus(ROOMY, 4)
        return host

    async def remove(host: Host) -> None:
        assert await host.driver.hotplug.set_vcpus(ROOMY, 2) == 2

    async def check(host: Host) -> None:
        await remove(host)
        check_vcpus(host, 2)

    assert await sweep(tmp_path, scene, remove, check) > 6


async def two_nodes(root: Path) -> tuple[Host, Host]:
    source, target = Host(root / "a"), Host(root / "b")
    source.target = target
    await start(source)
    return source, target


async def finish(source: Host, target: Host, *, success: bool) -> None:
    """What the master does at the end, in its order."""
    await target.driver.finish_migration(
        INSTANCE, MigrationEnd.of(is_source=False, success=success)
    )
    await source.driver.finish_migration(INSTANCE, MigrationEnd.of(is_source=True, success=success))


async def accepted(source: Host, target: Host) -> Incoming:
    info = await source.driver.migration_info(INSTANCE)
    wanted = IncomingArgs(instance=INSTANCE, address="127.0.0.1", info=info)
    return await target.driver.accept(wanted, [])


async def sent(source: Host, incoming: Incoming, *, live: bool) -> str:
    result = await source.driver.migrate(
        MigrateArgs(
            instance=INSTANCE, address=incoming.address, port=incoming.port,
            certificate=incoming.certificate, live=live,
        )
    )  # fmt: skip
    return result.status


def one_runs(source: Host, target: Host) -> None:
    """The guest is in one place, and nothing of it in the other."""
    assert sorted(source.states + target.states) == ["running"]
    assert source.has_record != target.has_record
    for host in (source, target):
        for qemu in host.qemus.values():
            assert qemu.objects == set()


@pytest.mark.sampled(0)
@pytest.mark.parametrize("live", [True, False])
async def test_a_migration_whose_source_was_killed_is_done_or_tried_again(
    tmp_path: Path, *, live: bool
) -> None:
    outcomes = set()
    for count, (number, is_done) in enumerate(KILLS):
        source, target = await two_nodes(tmp_path / str(count))
        incoming = await accepted(source, target)
        source.kill_at(number, is_done=is_done)
        was_killed = await source.after(lambda host: sent(host, incoming, live=live))  # noqa: B023 - awaited
        assert source.states.count("running") + target.states.count("running") <= 1
        status = await sent(source, incoming, live=live)  # the same call again
        outcomes.add(status)
        await finish(source, target, success=status == "completed")
        one_runs(source, target)
        if status != "completed":
            assert await sent(source, await accepted(source, target), live=live) == "completed"
            await finish(source, target, success=True)
            one_runs(source, target)
        if not was_killed:
            break
    assert outcomes == {"completed", "failed"}


async def test_a_migration_whose_target_was_killed_while_it_made_ready_is_accepted_again(
    tmp_path: Path,
) -> None:
    for count, (number, is_done) in enumerate(KILLS):
        source, target = await two_nodes(tmp_path / str(count))
        target.kill_at(number, is_done=is_done)
        was_killed = await target.after(lambda host: accepted(source, host))  # noqa: B023 - awaited
        assert await sent(source, await accepted(source, target), live=True) == "completed"
        await finish(source, target, success=True)
        one_runs(source, target)
        if not was_killed:
            return
    raise AssertionError("it asks for ever")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("success", [True, False])
@pytest.mark.parametrize("end", ["source", "target"])
async def test_the_end_of_a_migration_that_was_killed_is_repeated(
    tmp_path: Path, end: str, *, success: bool
) -> None:
    for count, (number, is_done) in enumerate(KILLS):
        source, target = await two_nodes(tmp_path / str(count))
        assert await sent(source, await accepted(source, target), live=True) == "completed"
        dying = source if end == "source" else target
        dying.kill_at(number, is_done=is_done)
        try:
            await finish(source, target, success=success)
            was_killed, dying.fatal = False, None
        except Killed:
            dying.restart()
            was_killed = True
        assert source.states.count("running") + target.states.count("running") <= 1
        await finish(source, target, success=success)
        one_runs(source, target)
        if not was_killed:
            return
    raise AssertionError("it asks for ever")


async def test_a_guest_that_does_not_resume_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path / "node")
    await host.driver.start(INSTANCE, [], paused=True)
    (qemu,) = host.qemus.values()
    real = qemu.answer

    def broken(host: Host, command: str, arguments: Mapping[str, Any]) -> Any:
        answer = real(host, command, arguments)
        qemu.state = "io-error" if command == "cont" else qemu.state
        return answer

    monkeypatch.setattr(qemu, "answer", broken)
    with pytest.raises(HypervisorError, match="is stopped: QEMU reports io-error"):
        await start(host)
    assert [one.state for one in await host.driver.running()] == ["paused"]
