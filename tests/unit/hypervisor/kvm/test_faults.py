"""Guests that crashed, panicked or hang, with pretended processes and monitors."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.paths import Paths
from ganeti.hypervisor.abilities import Sighting
from ganeti.hypervisor.kvm.agents import Agents
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.hypervisor.kvm.faults import Faults
from ganeti.hypervisor.kvm.guests import Guest, Guests
from ganeti.hypervisor.kvm.rules import contradictions
from ganeti.model.hypervisor_params import hypervisor_defaults
from ganeti.model.params import Params
from ganeti.model.recovery import GuestFault
from tests.support.predictable import FrozenClock
from tests.unit.hypervisor.kvm.test_driver import INSTANCE, UUID, Host, no_commands

pytestmark = pytest.mark.virtual_time

RUNS = {UUID: Sighting("web1")}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr("ganeti.hypervisor.kvm.programs.Programs.find", lambda *_: "/usr/bin/qemu")
    return Host()


@pytest.fixture
def kvm(tmp_path: Path, host: Host) -> KvmHypervisor:
    return KvmHypervisor(Paths(tmp_path), no_commands, processes=host, monitor=host.monitor)


def failed(fault: GuestFault) -> dict[str, Sighting]:
    return {UUID: Sighting("web1", fault)}


async def start(kvm: KvmHypervisor, **hvparams: object) -> None:
    await kvm.start(replace(INSTANCE, hvparams={**INSTANCE.hvparams, **hvparams}), [])


async def test_killed_guest_has_crashed_until_it_runs_again(kvm: KvmHypervisor, host: Host) -> None:
    assert kvm.faults.seen([UUID]) == {}
    await start(kvm)
    assert kvm.faults.seen([UUID]) == RUNS
    host.alive.clear()
    assert kvm.faults.seen([UUID]) == failed(GuestFault.CRASHED)
    assert await kvm.running() == []  # removes the remains
    assert kvm.faults.seen([UUID]) == failed(GuestFault.CRASHED)
    await start(kvm)
    assert kvm.faults.seen([UUID]) == RUNS


async def test_stopped_guest_leaves_no_trace(kvm: KvmHypervisor, host: Host) -> None:
    await start(kvm)
    await kvm.stop(INSTANCE, 0)
    assert kvm.faults.seen([UUID]) == {}
    await start(kvm)
    host.alive.clear()
    await kvm.running()
    await kvm.stop(INSTANCE, 0)
    assert kvm.faults.seen([UUID]) == {}


async def test_crash_of_an_instance_that_need_not_run_is_forgotten(
    kvm: KvmHypervisor, host: Host
) -> None:
    await start(kvm)
    host.alive.clear()
    await kvm.running()
    assert kvm.faults.seen([]) == {}
    assert kvm.faults.seen([UUID]) == {}


async def test_guest_shut_down_by_its_user_has_not_failed(kvm: KvmHypervisor, host: Host) -> None:
    await start(kvm, user_shutdown=True, pvpanic=True)
    host.state = "shutdown"
    await kvm.faults.look([UUID])
    assert kvm.faults.seen([UUID]) == RUNS


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        ("guest-panicked", GuestFault.PANICKED),
        ("watchdog", GuestFault.HUNG),
        ("internal-error", GuestFault.HUNG),
    ],
)
async def test_guest_paused_by_its_devices_has_failed_until_it_is_reset(
    kvm: KvmHypervisor, host: Host, state: str, fault: GuestFault
) -> None:
    await start(kvm, pvpanic=True)
    host.state = state
    await kvm.faults.look([UUID])
    assert kvm.faults.seen([UUID]) == failed(fault)
    await kvm.reboot(INSTANCE, soft=False, timeout_s=1)
    assert kvm.faults.seen([UUID]) == RUNS


async def test_guest_without_devices_that_report_is_not_asked(
    kvm: KvmHypervisor, host: Host
) -> None:
    await start(kvm)
    host.asked.clear()
    await kvm.faults.look([UUID])
    assert host.asked == []


async def test_guest_that_a_job_works_on_is_not_asked(
    kvm: KvmHypervisor, host: Host, tmp_path: Path
) -> None:
    await start(kvm, pvpanic=True)
    host.state = "guest-panicked"
    guests = kvm._guests
    async with guests.lock(guests.files(UUID)):
        await kvm.faults.look([UUID])
    assert kvm.faults.seen([UUID]) == RUNS


class Pinged(Agents):
    """An agent that answers if `answer` says so."""

    answer = False
    pings = 0

    async def answers(self, guest: Guest) -> bool:
        self.pings += 1
        return self.answer


async def test_agent_that_answered_and_is_silent_for_its_timeout_means_a_hung_guest(
    tmp_path: Path, host: Host, kvm: KvmHypervisor
) -> None:
    await start(kvm, use_guest_agent=True, guest_agent_timeout=60)
    guests = Guests(Paths(tmp_path), no_commands, host, host.monitor)
    agents, clock = Pinged(guests), FrozenClock()
    faults = Faults(guests, agents, clock.monotonic)

    async def pass_time(seconds: int) -> dict[str, Sighting]:
        for _ in range(seconds // 2):
            clock.advance(2)
            await faults.look([UUID])
        return faults.seen([UUID])

    assert await pass_time(200) == RUNS  # it has never answered: it boots, or there is none
    agents.answer = True
    assert await pass_time(20) == RUNS
    agents.answer, agents.pings = False, 0
    assert await pass_time(40) == RUNS
    assert agents.pings <= 3
    assert await pass_time(40) == failed(GuestFault.HUNG)
    agents.answer = True
    assert await pass_time(20) == RUNS


def test_agent_timeout_needs_an_agent() -> None:
    hvparams: Params = {**hypervisor_defaults("kvm"), "guest_agent_timeout": 60}
    assert contradictions(hvparams) == ["guest_agent_timeout: needs use_guest_agent"]
