"""What a run does on each node: pause, daemons, health, the administrator's programs; and its options."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti import ssconf
from ganeti.base.errors import HostError, HypervisorError
from ganeti.base.files import exclusive_file
from ganeti.base.paths import Paths
from ganeti.base.pidfile import ProcessIdentity, identity_of, pid_file
from ganeti.bootstrap.daemons import Daemons, DaemonStatus
from ganeti.clients.confd import BestAnswer, NoAnswer
from ganeti.hypervisor.interface import Hypervisor
from ganeti.model.instance_spec import InstanceSpec
from ganeti.protocols.confd import Answer, NodeRole, QueryType
from ganeti.rpc.procedures.instances import RunningInstance
from ganeti.simulation.virtual_time import LoopClock
from ganeti.watcher import program
from ganeti.watcher.daemons import restart_daemons, wanted
from ganeti.watcher.facts import Memory
from ganeti.watcher.health import end_guests, is_to_be_empty
from ganeti.watcher.program import is_paused, main, parser, run_hooks
from ganeti.watcher.records import memory_text, read_memory
from tests.support.node_certificates import Authority

NAME = "node1.example.com"
CANDIDATE = f"uuid-of-{NAME}={'ab' * 32}"
OWN = identity_of(os.getpid())


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path)
    for directory in (paths.data, paths.run, paths.log, paths.hooks / "watcher"):
        directory.mkdir(parents=True)
        directory.chmod(0o755)
    Authority().equip(paths, NAME)
    return paths


def facts(paths: Paths, **values: str) -> None:
    ssconf.write_set(paths, 1, values)


class FakeDaemons(Daemons):
    """Daemons that run, start, or do not."""

    def __init__(
        self, paths: Paths, running: Sequence[str] = (), broken: Sequence[str] = ()
    ) -> None:
        super().__init__(paths)
        self.running, self.broken = list(running), broken
        self.started: list[str] = []

    def status(self, name: str) -> DaemonStatus:
        return DaemonStatus(name, OWN if name in self.running else None)

    async def stop(self, name: str) -> None:
        self.running.remove(name)

    async def start(self, name: str, arguments: Sequence[str] = ()) -> ProcessIdentity:
        self.started.append(name)
        if name in self.broken:
            raise HostError("no")
        assert OWN is not None
        return OWN


async def test_daemons_that_a_node_needs_are_started_again(paths: Paths) -> None:
    facts(paths, master_candidates_certs=CANDIDATE)
    assert wanted(paths) == ["ganeti-noded", "ganeti-masterd"]
    daemons = FakeDaemons(paths, running=["ganeti-masterd"])
    assert await restart_daemons(paths, daemons) == ["ganeti-noded was not running and was started"]
    assert daemons.started == ["ganeti-noded"]


async def test_one_daemon_that_cannot_be_started_does_not_hold_up_the_others(paths: Paths) -> None:
    facts(paths, master_candidates_certs=CANDIDATE)
    daemons = FakeDaemons(paths, broken=["ganeti-noded"])
    said = await restart_daemons(paths, daemons)
    assert "cannot be started: no" in said[0]
    assert daemons.started == ["ganeti-noded", "ganeti-masterd"]


@pytest.mark.requirement("G23")
async def test_node_without_a_candidates_role_loses_what_only_candidates_have(paths: Paths) -> None:
    facts(paths, master_candidates_certs=f"uuid-of-other={'ab' * 32}", offline_nodes="")
    for path in (paths.confd_key, paths.cluster_domain_secret, paths.rapi_certificate):
        path.write_text("secret")
    daemons = FakeDaemons(paths, running=["ganeti-noded", "ganeti-masterd"])
    said = await restart_daemons(paths, daemons)
    assert daemons.started == []
    assert daemons.running == ["ganeti-noded"]
    assert not paths.confd_key.exists()
    assert "ganeti-masterd was stopped: a regular node must not run it" in said


def test_other_daemons_are_started_if_they_have_died(paths: Paths) -> None:
    facts(paths, master_candidates_certs=f"uuid-of-other={'ab' * 32}")
    assert wanted(paths) == ["ganeti-noded"]
    pid_file(paths.run, "ganeti-mond").write_text("1\n")
    assert wanted(paths) == ["ganeti-noded", "ganeti-mond"]


class FakeDriver:
    """Two guests, of which one cannot be ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, float]] = []

    async def running(self) -> list[RunningInstance]:
        return [
            RunningInstance(
                name=name,
                uuid=name,
                hypervisor="fake",
                memory=1,
                vcpus=1,
                state="running",
                cpu_time_s=0,
            )
            for name in ("stuck", "web1")
        ]

    async def stop(self, instance: InstanceSpec, timeout_s: float) -> None:
        if instance.name == "stuck":
            raise HypervisorError("it does not end")
        self.ended.append((instance.name, timeout_s))


@pytest.mark.requirement("F20")
async def test_offline_node_ends_its_guests_if_configured(paths: Paths) -> None:
    assert not await is_to_be_empty(paths)
    for health, offline, empty in (
        ("False", NAME, False),
        ("True", "other", False),
        ("True", NAME, True),
    ):
        facts(paths, maintain_node_health=health, offline_nodes=offline)
        assert await is_to_be_empty(paths) is empty
    driver: Any = FakeDriver()
    drivers: dict[str, Hypervisor] = {"fake": driver}
    said: list[str] = []
    await end_guests(drivers, said.append)
    assert driver.ended == [("web1", 0.0)]
    assert [text.partition(" ")[0] for text in said] == ["stuck", "web1"]


class FakeCandidates:
    def __init__(self, role: NodeRole | None) -> None:
        self.role = role

    async def ask(self, kind: QueryType, query: str) -> BestAnswer:
        assert (kind, query) == (QueryType.NODE_ROLE_BY_NAME, NAME)
        if self.role is None:
            raise NoAnswer("none")
        return BestAnswer(Answer(protocol=1, status=0, serial=7, answer=int(self.role)), 1, 1)


@pytest.mark.requirement("F20")
async def test_what_candidates_say_counts_more_than_old_facts(paths: Paths) -> None:
    facts(paths, maintain_node_health="True", offline_nodes="")
    assert await is_to_be_empty(paths, FakeCandidates(NodeRole.OFFLINE))
    assert not await is_to_be_empty(paths, FakeCandidates(None))
    ssconf.write_set(paths, 2, {"maintain_node_health": "True", "offline_nodes": NAME})
    assert not await is_to_be_empty(paths, FakeCandidates(NodeRole.REGULAR))
    assert await is_to_be_empty(paths, FakeCandidates(None))
    ssconf.write_set(paths, 3, {"maintain_node_health": "False", "offline_nodes": NAME})
    assert not await is_to_be_empty(paths, FakeCandidates(NodeRole.OFFLINE))


async def test_the_administrators_programs_run(paths: Paths) -> None:
    place = paths.hooks / "watcher"
    for name, body in (("10-fails", "echo no; exit 1"), ("20-works", f"env >{paths.data}/env")):
        (place / name).write_text(f"#!/bin/sh\n{body}\n")
        (place / name).chmod(0o755)
    said: list[str] = []
    await run_hooks(paths, said.append)
    assert said == ["hook 10-fails failed (exit status 1): no"]
    assert f"GANETI_DATA_DIR={paths.data}" in (paths.data / "env").read_text()
    place.chmod(0o777)
    await run_hooks(paths, said.append)
    assert "cannot be trusted" in said[-1]


@pytest.mark.virtual_time
@pytest.mark.requirement("S37")
async def test_a_pause_ends_with_its_time(paths: Paths) -> None:
    clock = LoopClock()
    assert not is_paused(paths, clock)
    paths.watcher_pause.write_text(f"{clock.time() + 60:.0f}\n")
    assert is_paused(paths, clock)
    paths.watcher_pause.write_text(f"{clock.time() - 60:.0f}\n")
    assert not is_paused(paths, clock)
    paths.watcher_pause.write_text("until further notice\n")
    assert is_paused(paths, clock)


@pytest.mark.requirement("S37")
def test_a_paused_watcher_does_nothing(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANETI_ROOTDIR", str(paths.root))
    looked: list[int] = []

    async def look(*_args: object) -> int:
        looked.append(1)
        return 0

    monkeypatch.setattr(program, "_look_after_all", look)
    paths.watcher_pause.write_text("9999999999\n")
    assert (main([]), looked) == (0, [])
    assert (main(["--ignore-pause"]), looked) == (0, [1])
    with exclusive_file(paths.run / "watcher.lock"):
        assert (main(["--ignore-pause"]), looked) == (0, [1])
    paths.watcher_pause.unlink()
    assert (main([]), looked) == (0, [1, 1])


def test_on_a_host_of_no_cluster_there_is_nothing_to_look_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    assert main([]) == program.EXIT_NOT_A_NODE


@pytest.mark.parametrize(
    ("text", "age"), [("6h", 21600), ("30m", 1800), ("2d", 172800), ("90", 90), ("all", -1)]
)
def test_ages_of_jobs(text: str, age: int) -> None:
    assert parser().parse_args(["-A", text]).job_age == age


@pytest.mark.parametrize("text", ["", "h", "-1h", "1.5h", "٣h", "9999999999d", "x"])
def test_what_is_no_age(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args([f"--job-age={text}"])
    assert "is not an age" in capsys.readouterr().err


def test_a_memory_that_cannot_be_read_is_none() -> None:
    memory = Memory(starts={"web1": [1.5]}, jobs={"start web1": 7}, boot_ids={"node1": "a"})
    assert read_memory(memory_text(memory)) == memory
    for broken in ("", "{", "[]", "\udcff", '{"starts": 7}'):
        assert read_memory(broken) == Memory()
