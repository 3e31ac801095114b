"""The decisions of a migration, with a scripted QEMU and virtual time."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm import migration
from ganeti.hypervisor.kvm.migration import Destination, Limits
from ganeti.hypervisor.kvm.migration_tls import Link
from ganeti.hypervisor.kvm.monitor import CommandRefused
from ganeti.model.instance_spec import InstanceSpec
from ganeti.rpc.procedures.migration import MigrationInfo
from tests.support.single_questions import SingleQuestions

pytestmark = pytest.mark.virtual_time
LIMITS = Limits(bandwidth_mib_s=32, downtime_ms=30)
KNOWN = ("auto-converge", "late-block-activate", "pause-before-switchover", "xbzrle", "zero-blocks")
TO = Destination("h", 1)
LINK = Link("node2.example.com")
DONE = {"status": "completed", "total-time": 300, "downtime": 12, "ram": {"transferred": 5}}


class Qemu(SingleQuestions):
    """Says the next of its scripted answers to query-migrate; the last one for ever."""

    def __init__(self, *answers: Mapping[str, Any], state: str = "running") -> None:
        self.answers = list(answers) or [{}]
        self.state = state
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.busy_ports: set[str] = set()
        self.after_cont = "running"

    def commands(self) -> list[str]:
        return [name for name, _ in self.asked if not name.startswith("query-")]

    async def __call__(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout_s: float = 20.0
    ) -> Any:
        self.asked.append((command, arguments or {}))
        if command == "query-status":
            return {"status": self.state}
        if command == "query-migrate-capabilities":
            return [{"capability": name, "state": False} for name in KNOWN]
        if command == "cont":
            self.state = self.after_cont
        if command == "migrate_cancel":
            self.answers = [{"status": "cancelled"}]
        if command == "migrate-incoming" and (arguments or {})["uri"] in self.busy_ports:
            raise CommandRefused("QEMU refused migrate-incoming: Address already in use")
        if command == "query-migrate":
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {}


def listening(port: str) -> dict[str, Any]:
    return {"socket-address": [{"type": "inet", "host": "h", "port": port}]}


async def test_a_guest_is_sent_within_its_limits() -> None:
    qemu = Qemu({}, {"status": "active", "ram": {"transferred": 1}}, DONE)
    result = await migration.send(qemu, Destination("10.0.0.2", 8102, LINK), LIMITS)
    assert (result.status, result.total_ms, result.downtime_ms, result.transferred) == (
        "completed", 300, 12, 5,
    )  # fmt: skip
    assert qemu.commands() == ["migrate-set-capabilities", "migrate-set-parameters", "migrate"]
    parameters = dict(qemu.asked)["migrate-set-parameters"]
    assert parameters == {
        "max-bandwidth": 32 * 1024 * 1024,
        "downtime-limit": 30,
        "tls-creds": "migration-credentials",
        "tls-hostname": "node2.example.com",
    }
    assert dict(qemu.asked)["migrate"] == {"uri": "tcp:10.0.0.2:8102"}


async def test_the_call_shows_how_much_of_the_memory_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = list[tuple[Any, ...]]()
    monkeypatch.setattr(migration, "report", lambda *words: seen.append(words))
    active = [
        {"status": "active", "ram": {"transferred": 1, "remaining": left, "total": 500}}
        for left in (500, 120)
    ]
    await migration.send(Qemu({}, {"status": "setup"}, *active, DONE), TO, LIMITS)
    assert seen == [(0, 500, "memory"), (380, 500, "memory")]


async def test_figures_that_come_late_are_asked_for_again() -> None:
    qemu = Qemu({}, {"status": "completed"}, {"status": "completed"}, {"status": "completed"}, DONE)
    assert (await migration.send(qemu, TO, LIMITS)).total_ms == 300


@pytest.mark.parametrize(
    ("memory", "pause_s"),
    [
        ({}, migration.SHORTEST_LOOK_S),
        ({"remaining": 1 << 30, "mbps": 800.0}, migration.LOOK_EVERY_S),
        ({"remaining": 2_000_000, "mbps": 800.0}, 0.01),
        ({"remaining": 1000, "mbps": 800.0}, migration.SHORTEST_LOOK_S),
    ],
)
async def test_looks_become_frequent_near_the_end(memory: dict[str, Any], pause_s: float) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    qemu = Qemu({}, {"status": "active", "ram": memory}, DONE)
    await migration.send(qemu, TO, LIMITS)
    assert loop.time() - begun == pytest.approx(pause_s)


async def test_guest_that_arrives_a_moment_later_waits_for_a_moment_only() -> None:
    class Late(Qemu):
        looks = 0

        async def __call__(
            self,
            command: str,
            arguments: Mapping[str, Any] | None = None,
            *,
            timeout_s: float = 20.0,
        ) -> Any:
            if command == "query-status":
                self.looks += 1
                self.state = (
                    "inmigrate" if self.looks < 4 else self.state.replace("inmigrate", "paused")
                )
            return await super().__call__(command, arguments, timeout_s=timeout_s)

    loop = asyncio.get_running_loop()
    begun = loop.time()
    await migration.activate(Late({"status": "active"}, state="inmigrate"), resume=True)
    assert loop.time() - begun < migration.LOOK_EVERY_S / 5


async def test_a_migration_under_way_is_joined() -> None:
    qemu = Qemu({"status": "active"}, {"status": "active", "ram": {"transferred": 2}}, DONE)
    assert (await migration.send(qemu, TO, LIMITS)).status == "completed"
    assert qemu.commands() == []


async def test_a_guest_that_has_left_already_is_not_sent_again() -> None:
    qemu = Qemu(DONE, state="postmigrate")
    assert (await migration.send(qemu, TO, LIMITS)).status == "completed"
    assert qemu.commands() == []


async def test_the_arrival_of_a_guest_is_not_taken_for_its_departure() -> None:
    qemu = Qemu({"status": "completed"}, {"status": "active"}, DONE)
    await migration.send(qemu, TO, LIMITS)
    assert "migrate" in qemu.commands()


async def test_a_failed_migration_explains_why() -> None:
    qemu = Qemu({}, {"status": "failed", "error-desc": "Broken pipe"})
    result = await migration.send(qemu, TO, LIMITS)
    assert (result.status, result.error) == ("failed", "Broken pipe")


async def test_a_migration_without_progress_is_abandoned() -> None:
    qemu = Qemu({}, {"status": "active", "ram": {"transferred": 1, "remaining": 9}})
    result = await migration.send(qemu, TO, LIMITS)
    assert result.status == "cancelled"
    assert "reachable" in result.error
    assert qemu.commands()[-1] == "migrate_cancel"


async def test_a_guest_that_writes_faster_than_it_is_sent_is_abandoned_in_the_end() -> None:
    class Busy(Qemu):
        sent = 0

        async def __call__(
            self,
            command: str,
            arguments: Mapping[str, Any] | None = None,
            *,
            timeout_s: float = 20.0,
        ) -> Any:
            answer = await super().__call__(command, arguments, timeout_s=timeout_s)
            if command == "query-migrate" and answer.get("status") == "active":
                self.sent += 1
                return {
                    "status": "active",
                    "ram": {"transferred": self.sent, "dirty-sync-count": 99},
                }
            return answer

    result = await migration.send(Busy({}, {"status": "active"}), TO, LIMITS)
    assert "raise migration_bandwidth" in result.error


@pytest.mark.requirement("A62")
async def test_a_node_listens_on_the_given_address_only_and_takes_a_free_port_if_it_must() -> None:
    qemu = Qemu(listening("8102"))
    assert await migration.listen(qemu, "10.0.0.2", 8102, Link()) == 8102
    assert dict(qemu.asked)["migrate-incoming"] == {"uri": "tcp:10.0.0.2:8102"}
    parameters = dict(qemu.asked)["migrate-set-parameters"]
    assert parameters["tls-creds"] == "migration-credentials"
    qemu = Qemu(listening("40001"))
    qemu.busy_ports = {"tcp:[fd00::2]:8102"}
    assert await migration.listen(qemu, "fd00::2", 8102, Link()) == 40001
    with pytest.raises(HypervisorError, match="did not report"):
        await migration.listen(Qemu({}), "h", 1, Link())


@pytest.mark.requirement("G5", "F20")
async def test_a_target_continues_only_with_a_guest_that_has_arrived() -> None:
    qemu = Qemu({"status": "active"}, state="inmigrate")
    with pytest.raises(HypervisorError, match="finish it as failed"):
        await migration.activate(qemu, resume=True)
    assert qemu.commands() == []
    qemu = Qemu({}, state="inmigrate")
    with pytest.raises(HypervisorError, match="has not arrived"):
        await migration.activate(qemu, resume=True)


async def test_a_guest_continues_as_it_was() -> None:
    qemu = Qemu(DONE, state="paused")
    await migration.activate(qemu, resume=False)
    assert qemu.commands() == []
    await migration.activate(qemu, resume=True)
    assert qemu.commands() == ["cont"]
    await migration.activate(qemu, resume=True)
    assert qemu.commands() == ["cont"]


async def test_a_guest_that_does_not_continue_is_an_error() -> None:
    qemu = Qemu(DONE, state="paused")
    qemu.after_cont = "io-error"
    with pytest.raises(HypervisorError, match="io-error"):
        await migration.activate(qemu, resume=True)


async def test_a_guest_is_taken_back_only_if_it_had_left() -> None:
    qemu = Qemu(DONE, state="postmigrate")
    await migration.take_back(qemu, resume=True)
    assert qemu.commands() == ["cont"]
    qemu = Qemu({"status": "failed"}, state="running")
    await migration.take_back(qemu, resume=True)
    assert qemu.commands() == []
    qemu = Qemu({"status": "active"}, state="running")
    await migration.take_back(qemu, resume=True)
    assert qemu.commands() == ["migrate_cancel"]
    qemu = Qemu({"status": "failed"}, state="paused")
    await migration.take_back(qemu, resume=True)
    assert qemu.commands() == []
    await migration.take_back(qemu, resume=True, was_stopped=True)
    assert qemu.commands() == ["cont"]


async def test_work_that_needs_a_guest_to_stand_still_is_done_before_the_switchover() -> None:
    qemu = Qemu({}, {"status": "active"}, {"status": "pre-switchover"}, DONE)
    order: list[str] = []

    async def work() -> None:
        order.extend(qemu.commands())

    assert (await migration.send(qemu, TO, LIMITS, work)).status == "completed"
    assert order[-1] == "migrate"
    assert qemu.commands()[-1] == "migrate-continue"
    capabilities = dict(qemu.asked)["migrate-set-capabilities"]["capabilities"]
    assert {"capability": "pause-before-switchover", "state": True} in capabilities


async def test_switchover_is_ordered_once_however_long_qemu_says_that_it_waits() -> None:
    waits = {"status": "pre-switchover"}
    qemu, done = Qemu({}, {"status": "active"}, waits, waits, waits, DONE), list[str]()

    async def work() -> None:
        done.append("work")

    assert (await migration.send(qemu, TO, LIMITS, work)).status == "completed"
    assert done == ["work"]
    assert qemu.commands().count("migrate-continue") == 1


async def test_a_cancelled_migration_must_end() -> None:
    class Deaf(Qemu):
        async def __call__(
            self,
            command: str,
            arguments: Mapping[str, Any] | None = None,
            *,
            timeout_s: float = 20.0,
        ) -> Any:
            return {"status": "active"}

    with pytest.raises(HypervisorError, match="did not cancel"):
        await migration.cancel(Deaf())


def of_guest(**facts: str) -> MigrationInfo:
    instance = InstanceSpec(
        name="web1", uuid="u1", hypervisor="kvm", os="o", memory=128, vcpus=1, hvparams={}
    )
    return replace(MigrationInfo(instance=instance, running=True), **facts)


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({"accelerator": "kvm", "qemu_version": "7.2.22"}, "same acceleration"),
        ({}, "same acceleration"),
        ({"accelerator": "tcg", "qemu_version": "8.0.1"}, "older"),
    ],
)
def test_incompatible_guest_is_refused(info: dict[str, str], said: str) -> None:
    with pytest.raises(HypervisorError, match=said):
        migration.check_compatible(of_guest(**info), accelerator="tcg", version="7.2.22")


@pytest.mark.parametrize("version", ["7.2.1", "7.2.22", "8.0.0", "10.0.0"])
def test_guest_moves_to_the_same_or_a_newer_qemu_only(version: str) -> None:
    info = of_guest(accelerator="tcg", qemu_version="7.2.22")
    migration.check_compatible(info, accelerator="tcg", version=version)
    with pytest.raises(HypervisorError, match="older"):
        migration.check_compatible(info, accelerator="tcg", version="7.1.50")
