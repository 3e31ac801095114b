"""Guests saved with their memory, with a scripted QEMU: the daemon killed around each question, QEMU refusing or failing."""

import asyncio
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.base.process_table import ProcessId
from ganeti.hypervisor.kvm.agent import AgentSilent, GuestAgent
from ganeti.hypervisor.kvm.monitor import CommandRefused
from ganeti.hypervisor.kvm.programs import Programs
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.hypervisor.saved_guests import HEADER, SavedGuest, misfits
from ganeti.model.instance_spec import NicSpec
from tests.support.fast_files import fast_directory
from tests.unit.hypervisor.kvm import test_killed
from tests.unit.hypervisor.kvm.test_driver import executed
from tests.unit.hypervisor.kvm.test_killed import DISK, INSTANCE, UUID, Qemu, sweep

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G11")]

MIB = 1024 * 1024
STREAM = b"memory and devices"
CAPACITY = 400 * MIB


@dataclass
class SavingQemu(Qemu):
    """Writes its guest in two parts, the last one while it is paused; and reads it."""

    file: int = -1
    looks: int = 0
    first: bytes = STREAM[:6]
    total: int = 96 * MIB
    ends: str = "completed"
    is_stuck: bool = False
    read: bytes = b""
    asked: list[str] = field(default_factory=list)

    def answer(self, host: Any, command: str, arguments: Mapping[str, Any]) -> Any:
        self.asked.append(command)
        match command:
            case "migrate":
                os.write(self.file, self.first)
                self.migration, self.looks = {"status": "active"}, 0
            case "migrate-incoming":
                self.state, self.migration = "inmigrate", {"status": "active"}
            case "migrate-continue":
                os.write(self.file, STREAM[6:])
                self.migration, self.state = {"status": self.ends}, "postmigrate"
            case "migrate_cancel":
                self.migration, self.state = {"status": "cancelled"}, "running"
            case "query-migrate":
                self._go_on()
                return {**self.migration, "ram": {"total": self.total, "remaining": 1, "mbps": 8.0}}
            case _:
                return super().answer(host, command, arguments)
        return {}

    def _go_on(self) -> None:
        if self.migration.get("status") != "active" or self.is_stuck:
            return
        self.looks += 1
        if self.state == "inmigrate":
            self.read = os.read(self.file, len(STREAM))
            self.migration = {"status": "completed"}
            self.state = "paused" if self.read == STREAM else "internal-error"
            if self.read != STREAM:
                self.migration = {"status": "failed"}
        elif self.looks > 1:
            self.migration, self.state = {"status": "pre-switchover"}, "finish-migrate"


class Host(test_killed.Host):
    """A node with a file for the memory of its guest."""

    @property
    def memory(self) -> Path:
        return self.paths.root.with_name(f"{self.paths.root.name}.memory")

    @property
    def qemu(self) -> SavingQemu:
        (found,) = self.qemus.values()
        assert isinstance(found, SavingQemu)
        return found

    def spawn(self, argv: Sequence[str], log_path: Path, *, keep: Sequence[int] = ()) -> ProcessId:
        process = super().spawn(argv, log_path, keep=keep)
        self.qemus[process] = SavingQemu(executed(argv))
        return process

    async def with_files(
        self, files: Sequence[int], commands: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> None:
        self.qemu.file = os.dup(files[0])
        descriptors.append(self.qemu.file)
        await super().with_files(files, commands)


descriptors: list[int] = []


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory: these tests wait for nothing but files."""
    with tempfile.TemporaryDirectory(prefix="gnt-", dir=fast_directory()) as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Programs, "find", lambda _self, _hvparams: "/usr/bin/qemu")
    monkeypatch.setattr("ganeti.hypervisor.kvm.driver.problems_here", _no_problems)
    yield
    while descriptors:
        os.close(descriptors.pop())


async def _no_problems(*_facts: object) -> list[str]:
    return []


async def up(root: Path) -> Host:
    host = Host(root)
    host.memory.write_bytes(bytes(HEADER * 2))
    await host.driver.start(INSTANCE, [])
    return host


async def save(host: Host, capacity: int = CAPACITY) -> SavedGuest:
    taken: list[str] = []

    async def take_disks() -> None:
        taken.append(host.qemu.state)

    found = await host.driver.saved.save(INSTANCE, host.memory, capacity, take_disks)
    assert taken in (["finish-migrate"], ["paused"])
    return found


async def restore(host: Host, saved: SavedGuest) -> None:
    await host.driver.saved.restore(INSTANCE, [], host.memory, saved)


def is_saved(host: Host) -> bool:
    record = GuestFiles.of(host.paths, UUID).read()
    assert record is not None
    return record.is_saved


async def test_a_saved_guest_continues_and_its_file_is_read_back(tmp_path: Path) -> None:
    host = await up(tmp_path / "node")
    saved = await save(host)
    assert (host.qemu.state, is_saved(host)) == ("running", False)
    content = host.memory.read_bytes()[: saved.length]
    assert content[HEADER:] == STREAM
    assert saved.sha256 == hashlib.sha256(content).hexdigest()
    await host.driver.stop(INSTANCE, 0)
    await restore(host, saved)
    assert host.qemu.read == STREAM
    assert "-incoming" in host.qemu.argv
    [listed] = await host.driver.running()
    assert listed.state == "paused"
    await host.driver.start(INSTANCE, [])
    assert host.states == ["running"]
    with pytest.raises(HypervisorError, match="is on this node already"):
        await restore(host, saved)


async def test_a_daemon_that_is_killed_leaves_a_guest_that_continues(tmp_path: Path) -> None:
    async def check(host: Any) -> None:
        await host.driver.upkeep.warm_up()
        assert (host.states, is_saved(host)) == (["running"], False)
        saved = await save(host)
        assert host.states == ["running"]
        await host.driver.stop(INSTANCE, 0)
        await restore(host, saved)

    assert await sweep(tmp_path, up, save, check) > 20  # type: ignore[arg-type]  # its own host


async def test_a_restore_whose_daemon_is_killed_can_be_repeated(tmp_path: Path) -> None:
    saved: list[SavedGuest] = []

    async def down(root: Path) -> Host:
        host = await up(root)
        saved[:] = [await save(host)]
        await host.driver.stop(INSTANCE, 0)
        return host

    async def check(host: Any) -> None:
        await host.driver.upkeep.warm_up()
        assert host.states in ([], ["prelaunch"], ["inmigrate"], ["paused"])
        await host.driver.stop(INSTANCE, 0)
        await restore(host, saved[0])
        assert host.states == ["paused"]

    act = lambda host: restore(host, saved[0])  # noqa: E731 - as short as its use
    assert await sweep(tmp_path, down, act, check) > 10


async def test_bitmaps_of_backups_are_not_saved_with_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await up(tmp_path / "node")
    real, states = SavingQemu.answer, dict[str, bool]()

    def answer(qemu: SavingQemu, there: Any, asked: str, arguments: Mapping[str, Any]) -> Any:
        if asked == "migrate-set-capabilities":
            states.update({one["capability"]: one["state"] for one in arguments["capabilities"]})
        return real(qemu, there, asked, arguments)

    monkeypatch.setattr(SavingQemu, "answer", answer)
    await save(host)
    assert not states["dirty-bitmaps"]


@pytest.mark.parametrize(
    "command",
    ["migrate-set-capabilities", "migrate-set-parameters", "getfd", "migrate", "migrate-continue"],
)
async def test_a_command_that_qemu_refuses_leaves_the_guest_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    host = await up(tmp_path / "node")
    real = SavingQemu.answer

    def answer(qemu: SavingQemu, there: Any, asked: str, arguments: Mapping[str, Any]) -> Any:
        if asked == command:
            raise CommandRefused(f"QEMU refused {asked}")
        return real(qemu, there, asked, arguments)

    with monkeypatch.context() as patched:
        patched.setattr(SavingQemu, "answer", answer)
        with pytest.raises(HypervisorError, match=f"refused {command}"):
            await save(host)
    assert (host.states, is_saved(host)) == (["running"], False)
    await save(host)


async def test_a_failure_of_qemu_or_of_the_disks_leaves_the_guest_running(tmp_path: Path) -> None:
    host = await up(tmp_path / "node")
    host.qemu.ends = "failed"
    with pytest.raises(HypervisorError, match="was not saved: QEMU reports failed"):
        await save(host)
    assert (host.states, is_saved(host)) == (["running"], False)
    host.qemu.ends = "completed"

    async def fail() -> None:
        raise HypervisorError("no space")

    async def hang() -> None:
        await asyncio.sleep(3600)

    for take_disks, why in ((fail, "no space"), (hang, "took more than 60 s")):
        with pytest.raises(HypervisorError, match=why):
            await host.driver.saved.save(INSTANCE, host.memory, CAPACITY, take_disks)
        assert (host.states, is_saved(host)) == (["running"], False)


async def test_a_storage_that_takes_nothing_ends_the_saving(tmp_path: Path) -> None:
    host = await up(tmp_path / "node")
    host.qemu.is_stuck = True
    with pytest.raises(HypervisorError, match="took nothing for 30 s"):
        await save(host)
    assert (host.states, is_saved(host)) == (["running"], False)
    host.qemu.is_stuck, host.qemu.ends = False, "pre-switchover"  # for ever, with the disks taken
    with pytest.raises(HypervisorError, match="took nothing for 30 s"):
        await save(host)
    assert (host.states, is_saved(host)) == (["running"], False)


async def test_a_guest_is_paused_before_its_memory_could_exceed_the_file(tmp_path: Path) -> None:
    host = await up(tmp_path / "node")
    await save(host)
    assert "stop" not in host.qemu.asked
    await save(host, capacity=96 * MIB)
    assert "stop" in host.qemu.asked
    assert host.states == ["running"]
    host.qemu.asked.clear()
    host.qemu.total = 2**40  # of which the guest has only its own
    await save(host)
    assert "stop" not in host.qemu.asked


async def test_only_a_running_guest_is_saved(tmp_path: Path) -> None:
    host = await up(tmp_path / "node")
    host.qemu.state = "paused"
    with pytest.raises(HypervisorError, match="does not run"):
        await save(host)


async def test_a_damaged_file_starts_nothing(tmp_path: Path) -> None:
    host = await up(tmp_path / "node")
    saved = await save(host)
    await host.driver.stop(INSTANCE, 0)
    whole = host.memory.read_bytes()
    for content, why in (
        (whole[:HEADER] + b"M" + whole[HEADER + 1 :], "SHA-256"),
        (whole[: HEADER - 10], "SHA-256"),
    ):
        host.memory.write_bytes(content)
        with pytest.raises(HypervisorError, match=why):
            await restore(host, saved)
    host.memory.write_bytes(bytes(HEADER))
    empty = SavedGuest(HEADER, hashlib.sha256(bytes(HEADER)).hexdigest())
    with pytest.raises(HypervisorError, match="does not contain the memory of a guest"):
        await restore(host, empty)
    host.memory.unlink()
    with pytest.raises(HypervisorError, match="cannot open"):
        await restore(host, saved)
    assert host.states == []


async def test_memory_that_qemu_does_not_accept_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await up(tmp_path / "node")
    saved = await save(host)
    await host.driver.stop(INSTANCE, 0)
    monkeypatch.setattr("tests.unit.hypervisor.kvm.test_saved_guests.STREAM", b"another")
    with pytest.raises(HypervisorError, match="does not continue web1 from its saved memory"):
        await restore(host, saved)
    assert host.states == []
    assert not host.has_record


async def test_another_machine_is_refused_with_the_reasons(tmp_path: Path) -> None:
    host = await up(tmp_path / "node")
    saved = await save(host)
    now = replace(INSTANCE, vcpus=2, hvparams={**INSTANCE.hvparams, "cpu_type": "host"})
    found = await host.driver.saved.misfits(now, host.memory)
    assert found == [
        "vcpus was 1 and is 2",
        "hypervisor parameter cpu_type was '' and is 'host'",
    ]
    assert await host.driver.saved.misfits(INSTANCE, host.memory) == []
    await host.driver.stop(INSTANCE, 0)
    with pytest.raises(HypervisorError, match="vcpus was 1 and is 2"):
        await host.driver.saved.restore(now, [], host.memory, saved)


def test_misfits_are_those_that_the_guest_would_see() -> None:
    nic = NicSpec(uuid="n", index=0, mac="aa:00:00:00:00:01")
    assert misfits(INSTANCE, replace(INSTANCE, tags=("t",), name="web2")) == []
    moved = {**INSTANCE.hvparams, "migration_bandwidth": 5}
    assert misfits(INSTANCE, replace(INSTANCE, hvparams=moved)) == []
    assert misfits(INSTANCE, replace(INSTANCE, memory=128)) == ["memory in MiB was 96 and is 128"]
    assert "0 disks" in misfits(INSTANCE, replace(INSTANCE, disks=(DISK,)))[0]
    assert "0 network interfaces" in misfits(INSTANCE, replace(INSTANCE, nics=(nic,)))[0]


@pytest.mark.parametrize("is_silent", [False, True])
async def test_the_clock_of_a_restored_guest_is_set_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_silent: bool
) -> None:
    set_to: list[float] = []

    async def set_time(_agent: GuestAgent, seconds: float) -> None:
        set_to.append(seconds)
        if is_silent:
            raise AgentSilent("the guest's agent did not answer")

    monkeypatch.setattr(GuestAgent, "set_time", set_time)
    talks = replace(INSTANCE, hvparams={**INSTANCE.hvparams, "use_guest_agent": True})
    host = Host(tmp_path / "node")
    host.memory.write_bytes(bytes(HEADER * 2))
    await host.driver.start(talks, [])

    async def nothing() -> None:
        pass

    saved = await host.driver.saved.save(talks, host.memory, CAPACITY, nothing)
    await host.driver.stop(talks, 0)
    assert set_to == []
    await host.driver.saved.restore(talks, [], host.memory, saved)
    for _ in range(2):
        await host.driver.start(talks, [])
    assert host.states == ["running"]
    assert set_to == [pytest.approx(time.time(), abs=60)]
    host.qemu.state = "paused"
    await host.driver.start(talks, [])
    assert len(set_to) == 1
