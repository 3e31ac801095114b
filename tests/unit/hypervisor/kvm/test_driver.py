"""The driver's decisions, with pretended processes and monitors."""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganeti.base import certificates
from ganeti.base.errors import HypervisorError, StorageError
from ganeti.base.paths import Paths
from ganeti.base.process import Completed
from ganeti.base.process_table import ProcessId
from ganeti.hypervisor.kvm import agents as agents_module
from ganeti.hypervisor.kvm.agent import AgentSilent
from ganeti.hypervisor.kvm.confinement import SETPRIV
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.hypervisor.kvm.monitor import CommandRefused, MonitorGone, MonitorSilent, Talk
from ganeti.hypervisor.kvm.programs import Programs
from ganeti.hypervisor.kvm.runtime import GuestFiles, Record
from ganeti.model.instance_spec import InstanceSpec, NicSpec
from ganeti.model.names import Consistency
from ganeti.rpc.procedures.migration import IncomingArgs, MigrateArgs, MigrationEnd, MigrationInfo
from tests.support.single_questions import SingleQuestions

pytestmark = pytest.mark.virtual_time

UUID = "8dea39da-5dea-4e7c-9a63-1c2b3d4e5f60"
INSTANCE = InstanceSpec(
    name="web1",
    uuid=UUID,
    hypervisor="kvm",
    os="tiny",
    memory=96,
    vcpus=1,
    hvparams={"accelerator": "tcg"},
)


def executed(argv: Sequence[str]) -> Sequence[str]:
    """The words of a process once what only gives rights up has executed it."""
    return argv[argv.index("--") + 1 :] if argv[0] == SETPRIV else argv


class Host(SingleQuestions):
    """One pretended host: a process is a number, and each guest answers questions."""

    def __init__(self) -> None:
        self.alive: dict[ProcessId, Sequence[str]] = {}
        self.state = "prelaunch"
        self.asked: list[str] = []
        self.refuses: set[str] = set()
        self.hears_button = True
        self.is_silent = False
        self.dies_at_start = False
        self.survives_kill = False
        self.kept: list[int] = []

    # processes
    def spawn(self, argv: Sequence[str], log_path: Path, *, keep: Sequence[int] = ()) -> ProcessId:
        self.kept = list(keep)
        process = ProcessId(os.getpid(), 1 + len(self.asked))
        if self.dies_at_start:
            log_path.write_text("cannot set up guest memory")
        else:
            self.alive[process] = executed(argv)
        return process

    def is_alive(self, process: ProcessId) -> bool:
        return process in self.alive

    def find(self, argv: Sequence[str]) -> ProcessId | None:
        return next((one for one, words in self.alive.items() if list(words) == list(argv)), None)

    def kill(self, process: ProcessId) -> None:
        if not self.survives_kill:
            self.alive.pop(process, None)

    async def ended_within(self, process: ProcessId, timeout_s: float) -> bool:
        if process in self.alive:
            await asyncio.sleep(timeout_s)
        return process not in self.alive

    def cpu_time_s(self, process: ProcessId) -> float:
        return 1.5

    # monitors
    def monitor(self, path: Path) -> Talk:
        return self

    async def with_files(
        self, files: Sequence[int], commands: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> None:
        raise AssertionError("nobody plugs anything in here")

    async def __call__(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout_s: float = 20.0
    ) -> Any:
        if not self.alive:
            raise MonitorGone("nobody listens")
        if self.is_silent:
            await asyncio.sleep(timeout_s)
            raise MonitorSilent("no answer")
        self.asked.append(command)
        if command in self.refuses:
            raise CommandRefused(f"refused {command}")
        if command == "quit" or (command == "system_powerdown" and self.hears_button):
            self.alive.clear()
        if command in ("cont", "stop"):
            self.state = "running" if command == "cont" else "paused"
        return {
            "query-status": {"status": self.state},
            "query-version": {"qemu": {"major": 7, "minor": 2, "micro": 22}},
            "qom-get": "pc-i440fx-7.2-machine",
        }.get(command, {})


async def no_commands(
    argv: Sequence[str], *, timeout_s: float = 60.0, stdin: bytes | None = None,
    env: Mapping[str, str] | None = None, check: bool = True,
) -> Completed:  # fmt: skip
    text = b"QEMU emulator version 7.2.22 (Debian)\n" if argv[1:] == ["--version"] else b""
    return Completed(tuple(argv), 0, text, b"")


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(Programs, "find", lambda _self, _hvparams: "/usr/bin/qemu")
    return Host()


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


@pytest.fixture
def kvm(paths: Paths, host: Host) -> KvmHypervisor:
    return KvmHypervisor(paths, no_commands, processes=host, monitor=host.monitor)


def record(paths: Paths) -> Record | None:
    return GuestFiles.of(paths, UUID).read()


async def test_a_start_is_recorded_with_what_another_node_must_know(
    kvm: KvmHypervisor, paths: Paths
) -> None:
    await kvm.start(INSTANCE, [])
    kept = record(paths)
    assert kept is not None
    assert (kept.machine, kept.qemu_version, kept.accelerator) == ("pc-i440fx-7.2", "7.2.22", "tcg")
    info = await kvm.migration_info(INSTANCE)
    assert certificates.is_for_migration(info.certificate.encode(), "source", UUID)
    again = await kvm.migration_info(INSTANCE)
    assert again.certificate != info.certificate  # new each time
    assert info == MigrationInfo(
        instance=INSTANCE,
        machine="pc-i440fx-7.2",
        qemu_version="7.2.22",
        accelerator="tcg",
        running=True,
        mirrors_disks=True,
        certificate=info.certificate,
    )
    [listed] = await kvm.running()
    assert (listed.name, listed.state, listed.cpu_time_s) == ("web1", "running", 1.5)


async def test_a_qemu_that_ends_at_once_leaves_nothing_and_its_words_are_reported(
    kvm: KvmHypervisor, host: Host, paths: Paths
) -> None:
    host.dies_at_start = True
    with pytest.raises(HypervisorError, match="web1 ended at once: cannot set up guest memory"):
        await kvm.start(INSTANCE, [])
    assert record(paths) is None


@pytest.mark.parametrize("command", ["qom-get", "query-version", "cont"])
async def test_a_failure_at_any_step_of_a_start_leaves_no_process_and_no_record(
    kvm: KvmHypervisor, host: Host, paths: Paths, command: str
) -> None:
    host.refuses = {command}
    with pytest.raises(HypervisorError, match=command):
        await kvm.start(INSTANCE, [])
    assert host.alive == {}
    assert record(paths) is None
    host.refuses = set()
    await kvm.start(INSTANCE, [])
    assert len(host.alive) == 1


async def test_a_qemu_that_never_answers_is_ended(
    kvm: KvmHypervisor, host: Host, paths: Paths
) -> None:
    host.is_silent = True
    with pytest.raises(HypervisorError, match="did not answer within 30 s"):
        await kvm.start(INSTANCE, [])
    assert host.alive == {}
    assert record(paths) is None


async def test_a_guest_without_a_process_id_is_found_by_its_words(
    kvm: KvmHypervisor, host: Host, paths: Paths
) -> None:
    await kvm.start(INSTANCE, [])
    kept = record(paths)
    assert kept is not None
    GuestFiles.of(paths, UUID).write(msgspec.structs.replace(kept, pid=0, start_ticks=0))
    successor = KvmHypervisor(paths, no_commands, processes=host, monitor=host.monitor)
    assert len(await successor.running()) == 1
    await successor.stop(INSTANCE, 0)
    assert host.alive == {}


async def test_a_record_of_an_earlier_boot_is_cleared_away(
    kvm: KvmHypervisor, paths: Paths
) -> None:
    await kvm.start(INSTANCE, [])
    kept = record(paths)
    assert kept is not None
    GuestFiles.of(paths, UUID).write(msgspec.structs.replace(kept, boot_id="before"))
    assert await kvm.running() == []
    assert record(paths) is None


async def test_a_damaged_record_is_a_problem_but_hides_no_other_guest(
    kvm: KvmHypervisor, paths: Paths
) -> None:
    await kvm.start(INSTANCE, [])
    (paths.kvm / "00000000-bad0.json").write_text("{")
    assert len(await kvm.running()) == 1
    [problem] = await kvm.verify()
    assert "00000000-bad0.json" in problem


async def test_a_guest_that_does_not_hear_is_asked_again_and_then_ended(
    kvm: KvmHypervisor, host: Host, paths: Paths
) -> None:
    await kvm.start(INSTANCE, [])
    host.hears_button = False
    began = asyncio.get_running_loop().time()
    await kvm.stop(INSTANCE, 12)
    assert host.asked.count("system_powerdown") == 3
    assert host.asked[-1] == "quit"
    assert asyncio.get_running_loop().time() - began == pytest.approx(12)
    assert record(paths) is None
    await kvm.stop(INSTANCE, 12)


async def test_a_guest_that_stands_still_is_not_asked(kvm: KvmHypervisor, host: Host) -> None:
    await kvm.start(INSTANCE, [], paused=True)
    await kvm.stop(INSTANCE, 100)
    assert "system_powerdown" not in host.asked
    assert host.alive == {}


async def test_a_process_that_survives_everything_keeps_its_record(
    kvm: KvmHypervisor, host: Host, paths: Paths
) -> None:
    await kvm.start(INSTANCE, [])
    host.is_silent = host.survives_kill = True
    with pytest.raises(HypervisorError, match="check the node's storage"):
        await kvm.stop(INSTANCE, 0)
    assert record(paths) is not None
    [listed] = await kvm.running()
    assert listed.state == "running"


@pytest.mark.requirement("G5")
@pytest.mark.parametrize("state", ["postmigrate", "finish-migrate", "inmigrate"])
async def test_a_guest_in_an_unfinished_migration_is_not_started(
    kvm: KvmHypervisor, host: Host, state: str
) -> None:
    await kvm.start(INSTANCE, [])
    host.state = state
    with pytest.raises(HypervisorError, match="unfinished"):
        await kvm.start(INSTANCE, [])
    assert host.asked.count("cont") == 1


async def test_what_does_not_run_here_cannot_be_asked_for(kvm: KvmHypervisor) -> None:
    for question in (
        kvm.console(INSTANCE),
        kvm.migration_info(INSTANCE),
        kvm.migrate(MigrateArgs(instance=INSTANCE, address="h", port=1)),
        kvm.reboot(INSTANCE, soft=False, timeout_s=0),
        kvm.finish_migration(INSTANCE, MigrationEnd.RESUME_SOURCE),
        kvm.finish_migration(INSTANCE, MigrationEnd.RESUME_TARGET),
    ):
        with pytest.raises(HypervisorError, match="web1"):
            await question
    await kvm.finish_migration(INSTANCE, MigrationEnd.END_SOURCE)
    await kvm.finish_migration(INSTANCE, MigrationEnd.END_TARGET)


async def test_an_accepting_node_that_cannot_listen_keeps_nothing(
    kvm: KvmHypervisor, host: Host, paths: Paths
) -> None:
    host.refuses = {"migrate-incoming"}
    key = certificates.new_key()
    info = MigrationInfo(
        instance=INSTANCE,
        running=True,
        accelerator="tcg",
        qemu_version="7.2.22",
        machine="pc-i440fx-7.2",
        certificate=certificates.for_migration(key, "source", UUID, time.time()).decode(),
    )
    assert await kvm.migration_obstacles(INSTANCE, info) == []
    newer = msgspec.structs.replace(info, qemu_version="9.0.0")
    (obstacle,) = await kvm.migration_obstacles(INSTANCE, newer)
    assert "QEMU is 7.2.22 here, and the guest was started by 9.0.0" in obstacle
    with pytest.raises(HypervisorError, match="migrate-incoming"):
        await kvm.accept(IncomingArgs(instance=INSTANCE, address="10.0.0.2", info=info), [])
    assert host.alive == {}
    assert record(paths) is None


async def test_an_instance_without_serial_console_reports_it(kvm: KvmHypervisor) -> None:
    instance = msgspec.structs.replace(
        INSTANCE, hvparams={"accelerator": "tcg", "serial_console": False}
    )
    await kvm.start(instance, [])
    info = await kvm.console(instance)
    assert info.kind == "msg"
    assert "serial_console=false" in info.message


def test_a_missing_qemu_is_named_with_the_remedy() -> None:
    with pytest.raises(HypervisorError, match=r"/nowhere/qemu.*install qemu-system-x86"):
        Programs.find({"kvm_path": "/nowhere/qemu"})


@pytest.mark.requirement("G11")
async def test_the_taps_are_known_before_they_are_made(paths: Paths, host: Host) -> None:
    known: list[tuple[str, ...]] = []

    async def run(
        argv: Sequence[str], *, timeout_s: float = 60.0, stdin: bytes | None = None,
        env: Mapping[str, str] | None = None, check: bool = True,
    ) -> Completed:  # fmt: skip
        if list(argv[:3]) == ["ip", "tuntap", "add"]:
            kept = record(paths)
            assert kept is not None, "a crash now would leave a tap that nobody knows of"
            known.append((argv[4], *kept.taps))
        return await no_commands(argv, env=env)

    kvm = KvmHypervisor(paths, run, processes=host, monitor=host.monitor)
    nic = NicSpec(uuid="n1", index=0, mac="aa:00:00:00:00:01", link="br0")
    await kvm.start(msgspec.structs.replace(INSTANCE, nics=(nic,)), [])
    [(made, recorded)] = known
    assert made == recorded


SHUTS_ITSELF_DOWN = msgspec.structs.replace(
    INSTANCE, hvparams={"accelerator": "tcg", "user_shutdown": True}
)


async def test_a_guest_that_shut_itself_down_is_started_in_a_new_process(
    kvm: KvmHypervisor, host: Host
) -> None:
    await kvm.start(SHUTS_ITSELF_DOWN, [])
    (first,) = host.alive
    host.state = "shutdown"
    assert [one.state for one in await kvm.running()] == ["shutdown"]
    await kvm.start(SHUTS_ITSELF_DOWN, [])
    assert len(host.alive) == 1
    assert first not in host.alive
    assert [one.state for one in await kvm.running()] == ["running"]


async def test_a_shutdown_that_we_ask_for_lets_qemu_end(kvm: KvmHypervisor, host: Host) -> None:
    await kvm.start(SHUTS_ITSELF_DOWN, [])
    host.asked.clear()
    await kvm.stop(SHUTS_ITSELF_DOWN, 10)
    assert host.asked == ["set-action", "query-status", "system_powerdown"]
    assert host.alive == {}


async def test_the_rest_of_a_guest_that_shut_itself_down_is_ended_at_once(
    kvm: KvmHypervisor, host: Host, paths: Paths
) -> None:
    await kvm.start(SHUTS_ITSELF_DOWN, [])
    host.state = "shutdown"
    host.asked.clear()
    await kvm.stop(SHUTS_ITSELF_DOWN, 120)
    assert "system_powerdown" not in host.asked
    assert record(paths) is None


async def test_a_silent_qemu_is_not_ended_by_a_start(kvm: KvmHypervisor, host: Host) -> None:
    await kvm.start(SHUTS_ITSELF_DOWN, [])
    alive = dict(host.alive)
    host.is_silent = True
    await kvm.start(SHUTS_ITSELF_DOWN, [])
    assert host.alive == alive


TALKS = msgspec.structs.replace(INSTANCE, hvparams={"accelerator": "tcg", "use_guest_agent": True})


@pytest.mark.parametrize("state", ["guest-panicked", "watchdog", "internal-error"])
async def test_a_guest_that_failed_is_started_in_a_new_process(
    kvm: KvmHypervisor, host: Host, state: str
) -> None:
    await kvm.start(INSTANCE, [])
    [first] = host.alive
    host.state = state
    await kvm.start(INSTANCE, [])
    assert first not in host.alive
    assert len(host.alive) == 1


class Agent:
    """What a guest's agent does, for one host."""

    host: Host
    frozen = 0
    is_silent = False

    def __init__(self, _path: Path) -> None:
        pass

    async def shutdown(self) -> None:
        self.host.alive.clear()

    async def ping(self) -> None:
        if self.is_silent:
            raise AgentSilent("no answer")

    async def freeze(self) -> int:
        type(self).frozen = 2
        return 2

    async def thaw(self) -> int:
        count, type(self).frozen = self.frozen, 0
        return count


@pytest.fixture
def agent(host: Host, monkeypatch: pytest.MonkeyPatch) -> type[Agent]:
    class Mine(Agent):
        pass

    Mine.host = host
    monkeypatch.setattr(agents_module, "GuestAgent", Mine)
    return Mine


async def test_a_guest_that_ignores_the_button_is_shut_down_by_its_agent(
    kvm: KvmHypervisor, host: Host, agent: type[Agent]
) -> None:
    await kvm.start(TALKS, [])
    host.hears_button = False
    await kvm.stop(TALKS, 120)
    assert host.asked.count("system_powerdown") == 2
    assert "quit" not in host.asked
    assert agent.host.alive == {}


@pytest.mark.requirement("F23")
async def test_a_frozen_guest_continues_in_time_whatever_becomes_of_the_daemon(
    kvm: KvmHypervisor,
    host: Host,
    paths: Paths,
    agent: type[Agent],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await kvm.start(TALKS, [])
    assert await kvm.agents.freeze(TALKS, 60) == 2
    assert await kvm.agents.thaw(TALKS) == 2
    assert await kvm.agents.thaw(TALKS) == 0
    assert await kvm.agents.freeze(TALKS, 60) == 2
    successor = KvmHypervisor(paths, no_commands, processes=host, monitor=host.monitor)
    await successor.upkeep.look_after()
    assert agent.frozen == 2
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 61)
    await successor.upkeep.look_after()
    assert agent.frozen == 0
    kept = record(paths)
    assert kept is not None
    assert kept.thaw_at == 0


async def test_a_held_guest_is_frozen_then_paused_and_continues_in_reverse_order(
    kvm: KvmHypervisor, host: Host, paths: Paths, agent: type[Agent]
) -> None:
    await kvm.start(TALKS, [])
    async with kvm.holding.held(TALKS, 60) as held:
        assert (agent.frozen, host.state) == (2, "paused")
        kept = record(paths)
        assert kept is not None
        assert kept.resume_at > time.time()
    assert (agent.frozen, host.state) == (0, "running")
    assert held.consistency is Consistency.AGENT
    kept = record(paths)
    assert kept is not None
    assert (kept.resume_at, kept.thaw_at) == (0, 0)
    agent.is_silent = True
    async with kvm.holding.held(TALKS, 60) as held:
        assert host.state == "paused"
    assert (host.state, held.consistency) == ("running", Consistency.CRASH)


async def test_a_guest_that_did_not_stay_frozen_is_only_as_after_a_loss_of_power(
    kvm: KvmHypervisor, agent: type[Agent]
) -> None:
    await kvm.start(TALKS, [])
    async with kvm.holding.held(TALKS, 60) as held:
        agent.frozen = 0
    assert held.consistency is Consistency.CRASH


async def test_a_guest_that_an_administrator_has_paused_stays_paused(
    kvm: KvmHypervisor, host: Host
) -> None:
    await kvm.start(INSTANCE, [], paused=True)
    host.state = "paused"
    async with kvm.holding.held(INSTANCE, 60) as held:
        assert host.state == "paused"
    assert (host.state, held.consistency) == ("paused", Consistency.CRASH)
    await kvm.stop(INSTANCE, 0)
    with pytest.raises(HypervisorError, match="does not run"):
        async with kvm.holding.held(INSTANCE, 60):
            raise AssertionError("nothing is held")


async def test_a_guest_continues_after_a_failure_while_it_is_held(
    kvm: KvmHypervisor, host: Host, agent: type[Agent]
) -> None:
    await kvm.start(TALKS, [])
    with pytest.raises(StorageError):
        async with kvm.holding.held(TALKS, 60):
            raise StorageError("no space")
    assert (agent.frozen, host.state) == (0, "running")


@pytest.mark.requirement("F23")
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_held_guest_continues_in_time_or_with_the_next_daemon(
    kvm: KvmHypervisor,
    host: Host,
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
    *,
    restarted: bool,
) -> None:
    await kvm.start(INSTANCE, [])
    guest = kvm.holding.guests.here(INSTANCE)
    kvm.holding.guests.change(guest, resume_at=time.time() + 60)
    host.state = "paused"  # the daemon died here
    successor = KvmHypervisor(paths, no_commands, processes=host, monitor=host.monitor)
    await successor.upkeep.look_after()
    assert host.state == "paused"
    if restarted:
        await successor.upkeep.holding.resume_in_time(guest.files, at_once=True)
    else:
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 61)
        await successor.upkeep.look_after()
    assert host.state == "running"
    kept = record(paths)
    assert kept is not None
    assert kept.resume_at == 0


async def test_a_guest_that_cannot_be_frozen_explains_why(
    kvm: KvmHypervisor, paths: Paths, agent: type[Agent]
) -> None:
    await kvm.start(INSTANCE, [])
    with pytest.raises(HypervisorError, match="modify -H use_guest_agent=true web1"):
        await kvm.agents.freeze(INSTANCE, 60)
    assert await kvm.agents.agent_info(INSTANCE) is None
    assert await kvm.agents.thaw(INSTANCE) == 0
    await kvm.stop(INSTANCE, 0)
    await kvm.start(TALKS, [])
    agent.is_silent = True
    with pytest.raises(AgentSilent):
        await kvm.agents.freeze(TALKS, 60)
    kept = record(paths)
    assert kept is not None
    assert kept.thaw_at == 0  # nothing is to be thawed in time, or asked for it
