"""The watchdog process: guests die at the end of the lease, or the machine is reset. Its device is a file here."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ganeti.base.clock import BootClock
from ganeti.base.files import is_locked
from ganeti.base.paths import Paths
from ganeti.base.pidfile import identity_of, pid_file, serving_process
from ganeti.daemons.guard import PROGRAM, GuardProcess
from ganeti.node.host_restart import TRIGGER
from ganeti.node.lease_record import LeaseRecord, boot_id, write_lease
from ganeti.node.watchdog_device import DEVICE, DISARMED, WatchdogDevice
from ganeti.recovery.times import RESET_S
from tests.support.predictable import FrozenClock

pytestmark = pytest.mark.requirement("D7")

WEB = "00000000-0000-4000-8000-00000000000a"
OTHER = "00000000-0000-4000-8000-00000000000b"
SOON_S = 10.0
"""For a loaded machine."""


@dataclass
class Node:
    paths: Paths

    @property
    def device(self) -> Path:
        return self.paths.below(DEVICE)

    @property
    def was_reset(self) -> bool:
        return self.paths.below(TRIGGER).read_bytes() != b""

    @property
    def pets(self) -> int:
        return self.device.read_bytes().count(b"\0")

    def lease(self, ends_at: float, *protected: str) -> None:
        record = LeaseRecord(boot_id(self.paths), ends_at, dict.fromkeys(protected, 0.0))
        write_lease(self.paths, record)

    def record(self, uuid: str, **more: object) -> Path:
        """What KVM's driver writes about a guest."""
        self.paths.kvm.mkdir(parents=True, exist_ok=True)
        path = self.paths.kvm / f"{uuid}.json"
        content = {"instance": {"uuid": uuid, "name": f"{uuid[-1]}.example.com"}, **more}
        path.write_text(json.dumps({"boot_id": boot_id(self.paths), "argv": [], **content}))
        return path

    def why_unarmed(self) -> str:
        return str(json.loads(self.paths.guard_status.read_bytes())["why_unarmed"])


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(Paths(tmp_path))
    made.paths.run.mkdir(parents=True)
    for name in (DEVICE, TRIGGER):
        made.paths.below(name).parent.mkdir(parents=True, exist_ok=True)
        made.paths.below(name).touch()
    return made


@pytest.fixture
def guests() -> Iterator[Callable[[], "subprocess.Popen[bytes]"]]:
    begun: list[subprocess.Popen[bytes]] = []

    def start() -> "subprocess.Popen[bytes]":
        begun.append(subprocess.Popen(["sleep", "600"]))
        return begun[-1]

    yield start
    for one in begun:
        one.kill()
        one.wait()


@pytest.fixture
def guard(node: Node) -> Iterator[Callable[[], "subprocess.Popen[bytes]"]]:
    begun: list[subprocess.Popen[bytes]] = []

    def start() -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "GANETI_ROOTDIR": str(node.paths.root)}
        words = [sys.executable, "-m", "ganeti.daemons.guard"]
        begun.append(subprocess.Popen(words, env=environment))
        wait_for(lambda: serving_process(pid_file(node.paths.run, PROGRAM)) is not None)
        return begun[-1]

    yield start
    for one in begun:
        one.kill()
        one.wait()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def process_of(guest: "subprocess.Popen[bytes]") -> dict[str, int]:
    identity = identity_of(guest.pid)
    assert identity is not None
    return {"pid": identity.pid, "start_ticks": identity.start_time}


def test_protected_guests_die_with_the_lease_and_no_others(
    node: Node,
    guests: Callable[[], "subprocess.Popen[bytes]"],
    guard: Callable[[], "subprocess.Popen[bytes]"],
) -> None:
    web, starting, other = guests(), guests(), guests()
    node.record(WEB, **process_of(web))
    node.record(OTHER, **process_of(other))
    now = BootClock().monotonic()
    node.lease(now + 600, WEB)
    process = guard()
    time.sleep(0.5)
    assert (web.poll(), node.why_unarmed()) == (None, "")
    # A guard goes by the latest end that it has read.
    other_guard_dies_first(process, node)
    end = BootClock().monotonic() + 1.0
    node.lease(end, WEB)
    guard()
    assert web.wait(timeout=SOON_S) == -signal.SIGKILL
    assert BootClock().monotonic() >= end
    assert BootClock().monotonic() < end + 2.0
    assert (starting.poll(), other.poll(), node.was_reset) == (None, None, False)
    pets = node.pets
    wait_for(lambda: node.pets > pets)  # nothing protected is alive


def other_guard_dies_first(process: "subprocess.Popen[bytes]", node: Node) -> None:
    """After SIGKILL nobody disarms the device."""
    process.kill()
    process.wait()
    assert not node.device.read_bytes().endswith(DISARMED)


def test_guard_ends_in_order_once_nothing_is_protected(
    node: Node, guard: Callable[[], "subprocess.Popen[bytes]"]
) -> None:
    node.lease(BootClock().monotonic(), WEB)
    process = guard()
    node.lease(BootClock().monotonic())
    assert process.wait(timeout=SOON_S) == 0
    assert node.device.read_bytes().endswith(DISARMED)
    assert not is_locked(pid_file(node.paths.run, PROGRAM))


def test_a_request_to_end_waits_for_the_end_of_the_guests(
    node: Node,
    guests: Callable[[], "subprocess.Popen[bytes]"],
    guard: Callable[[], "subprocess.Popen[bytes]"],
) -> None:
    web = guests()
    node.record(WEB, **process_of(web))
    node.lease(BootClock().monotonic() + 2.0, WEB)
    process = guard()
    process.terminate()
    time.sleep(0.5)
    assert (web.poll(), process.poll()) == (None, None)
    assert web.wait(timeout=SOON_S) == -signal.SIGKILL
    assert process.wait(timeout=SOON_S) == 0
    assert node.device.read_bytes().endswith(DISARMED)


class Steps:
    """A guard in this process, whose time a test moves."""

    def __init__(self, node: Node) -> None:
        self.clock = FrozenClock(1000.0)
        self.guard = GuardProcess(node.paths, self.clock)

    def until(self, moment: float, requests: int = 0) -> bool:
        is_on = True
        while is_on and self.clock.now < moment:
            self.clock.advance(0.25)
            is_on = self.guard.step(requests=requests)
        return is_on


@pytest.fixture
def steps(node: Node) -> Iterator[Steps]:
    made = Steps(node)
    yield made
    made.guard.close()


def test_the_machine_is_reset_if_the_guests_outlive_the_lease(node: Node, steps: Steps) -> None:
    node.record(WEB).write_text("{")  # nobody knows which process it is
    node.lease(1010.0, WEB)
    assert steps.until(1012.0)
    pets = node.pets
    assert pets > 10
    steps.until(1010.0 + RESET_S - 2)
    assert pets <= node.pets <= pets + 5, "the device would reset it in time by itself, too"
    assert not node.was_reset
    steps.until(1010.0 + RESET_S)
    assert node.was_reset


def test_a_node_that_stood_still_kills_its_guests_and_is_not_reset(
    node: Node, steps: Steps, guests: Callable[[], "subprocess.Popen[bytes]"]
) -> None:
    web = guests()
    node.record(WEB, **process_of(web))
    node.lease(1010.0, WEB)
    steps.until(1005.0)
    steps.clock.advance(600.0)
    steps.until(steps.clock.now + 1.0)
    assert identity_of(web.pid) is None
    assert not node.was_reset


def test_a_guest_whose_start_is_not_recorded_yet_is_found(node: Node, steps: Steps) -> None:
    words = ["sleep", f"600.{os.getpid()}"]
    with subprocess.Popen(words) as guest:
        try:
            node.record(WEB, argv=words)
            node.lease(1001.0, WEB)
            steps.until(1002.0)
            assert identity_of(guest.pid) is None
        finally:
            guest.kill()  # otherwise a failed test waits for its end


def test_simulated_guests_die_with_the_lease(node: Node, steps: Steps) -> None:
    node.paths.fake_hypervisor.mkdir(parents=True)
    files = {one: node.paths.fake_hypervisor / f"{one}.json" for one in (WEB, OTHER)}
    for uuid, file in files.items():
        file.write_text(json.dumps({"instance": {"uuid": uuid, "name": "web"}}))
    node.lease(1001.0, WEB)
    steps.until(1002.0)
    assert [one.exists() for one in files.values()] == [False, True]


def test_without_a_device_guests_are_killed_still(
    node: Node, steps: Steps, guests: Callable[[], "subprocess.Popen[bytes]"]
) -> None:
    node.device.unlink()
    web = guests()
    node.record(WEB, **process_of(web))
    node.lease(1001.0, WEB)
    steps.until(1002.0)
    assert identity_of(web.pid) is None
    assert "load the driver of a watchdog, for example with 'modprobe softdog'" in (
        node.why_unarmed()
    )
    node.device.touch()
    steps.until(1010.0)
    assert (node.why_unarmed(), node.pets > 0) == ("", True)


def test_a_damaged_or_missing_record_changes_nothing(node: Node, steps: Steps) -> None:
    node.lease(1010.0, WEB)
    assert steps.until(1001.0)
    node.paths.lease.write_text("{")
    assert steps.until(1002.0)
    node.paths.lease.unlink()
    assert steps.until(1020.0), "what was protected is so still"


def test_a_device_with_no_way_out_is_held(
    node: Node, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WatchdogDevice, "is_disarmable", False, raising=False)
    monkeypatch.setattr(WatchdogDevice, "__setattr__", _ignoring_is_disarmable)
    node.lease(1001.0)
    assert steps.until(1020.0)
    assert not node.device.read_bytes().endswith(DISARMED)
    petted = len(node.device.read_bytes())
    assert steps.until(1030.0, requests=1), "the machine would be reset"
    assert len(node.device.read_bytes()) > petted + 5
    assert not steps.until(1031.0, requests=2), "the machine goes down anyway"


def _ignoring_is_disarmable(device: object, name: str, value: object) -> None:
    if name != "is_disarmable":
        object.__setattr__(device, name, value)


@pytest.mark.parametrize("module", ["asyncio", "ssl", "msgspec", "subprocess"])
def test_guard_loads_little(module: str) -> None:
    program = f"import sys, ganeti.daemons.guard; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
