"""A machine with a real /dev/watchdog: what its process does when the lease is over, and when it is asked to end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.recovery.lease import DEVICE_S
from ganeti.recovery.times import RESET_S
from ganeti.vcluster.machine_image import make_disk
from tests.support.local_cluster import short_directory
from tests.support.node_vm import Images, NodeVm, build, running

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(900),
    pytest.mark.requirement("D7"),
]

BOOT_S = 400
LATE_S = 4.0
"""For a machine that shares its processor with other programs."""
DEVICES = {"": "Software Watchdog", "i6300esb": "i6300ESB timer"}
"""The name of the watchdog by QEMU's device."""
HELD = "watchdog=nowayout=1"
"""The watchdog process keeps the device also while nothing is protected."""
PROGRAM = """
import array, fcntl, json, os, signal, subprocess, sys, time
from pathlib import Path
from ganeti.base.clock import BootClock
from ganeti.base.paths import Paths
from ganeti.node.lease_record import LeaseRecord, boot_id, write_lease

paths, clock = Paths.from_environment(), BootClock()
paths.run.mkdir(parents=True, exist_ok=True)

def say(*words):
    print(*words, flush=True)

def lease(seconds, *protected):
    ends_at = clock.monotonic() + seconds
    write_lease(paths, LeaseRecord(boot_id(paths), ends_at, dict.fromkeys(protected, 0.0)))
    return ends_at

def guard():
    paths.guard_status.unlink(missing_ok=True)
    process = subprocess.Popen([sys.executable, "-m", "ganeti.daemons.guard"])
    end = clock.monotonic() + 200
    while not paths.guard_status.exists() and clock.monotonic() < end:
        time.sleep(0.1)
    device = Path("/sys/class/watchdog/watchdog0/identity").read_text().strip()
    why = json.loads(paths.guard_status.read_text())["why_unarmed"]
    say("GUARD", why or "armed, device:", device)
    return process

def lives(seconds, word):
    end = clock.monotonic() + seconds
    while clock.monotonic() < end:
        time.sleep(0.5)
    say(word)

def ticks(since):
    while True:
        say("TICK", round(clock.monotonic() - since, 1))
        time.sleep(0.5)

def held():
    lease(3600)
    process = guard()
    lease(0)
    lives(15, "NOTHING PROTECTED")
    process.terminate()
    lives(15, "HELD")
    process.terminate()
    since = clock.monotonic()
    say("GUARD ENDED", process.wait())
    ticks(since)

def guest(uuid):
    # A process with the record that KVM's driver writes.
    pid = os.fork()
    if not pid:
        log = os.open(f"/state/{uuid}", os.O_CREAT | os.O_WRONLY)
        while True:
            os.write(log, b"x")
            time.sleep(0.1)
    paths.kvm.mkdir(parents=True, exist_ok=True)
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    instance = {"uuid": uuid, "name": uuid}
    record = {"instance": instance, "boot_id": boot_id(paths), "pid": pid, "start_ticks": int(ticks), "argv": []}
    (paths.kvm / f"{uuid}.json").write_text(json.dumps(record))
    return pid

def ends(pid, since):
    os.waitpid(pid, 0)
    say("GUEST ENDED", round(clock.monotonic() - since, 1))

def freeze_state():
    # A process that writes there is in state D from now on: SIGKILL does not end it.
    state = os.open("/state", os.O_RDONLY)
    fcntl.ioctl(state, 0xC0045877, array.array("i", [0]))

def killed():
    lease(0)
    guard()
    pid = guest("first")
    ends(pid, lease(2, "first"))
    lives(20, "ALIVE")
    say("THE CASE IS OVER")
    time.sleep(3600)

def stuck():
    lease(0)
    guard()
    pid = guest("first")
    guest("second")
    os.kill(pid, signal.SIGSTOP)  # it is not in a write
    freeze_state()
    since = lease(2, "first", "second")
    ends(pid, since)
    ticks(since)

def stopped():
    lease(0)
    process = guard()
    os.kill(process.pid, signal.SIGSTOP)
    ticks(clock.monotonic())

def dead():
    lease(3600)
    guard()
    Path("/proc/sysrq-trigger").write_text("c")

cases = {"held": held, "killed": killed, "stuck": stuck, "stopped": stopped, "dead": dead}
words = dict(word.partition("=")[::2] for word in Path("/proc/cmdline").read_text().split())
try:
    cases[words["case"]]()
finally:
    say("THE PROGRAM HAS ENDED")
    time.sleep(1)
"""


@pytest.fixture(
    scope="module", params=["", pytest.param("i6300esb", marks=pytest.mark.soak)], ids=DEVICES.get
)
def images(request: pytest.FixtureRequest) -> Iterator[Images]:
    """A machine with a watchdog in software; with `make soak`, one with that of an Intel 6300ESB chip, too."""
    with short_directory() as directory:
        yield build(directory, PROGRAM, request.param)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    made = tmp_path / "state.ext4"
    make_disk(made, 32)
    return made


def armed(images: Images) -> str:
    """What a machine says whose watchdog process has the device."""
    return f"GUARD armed, device: {DEVICES[images.device]}"


def last_tick(machine: NodeVm) -> float:
    """When the machine was reset, in seconds of its own clock since what the case says."""
    said = machine.resets(60)
    assert not any("THE PROGRAM HAS ENDED" in line for line in said), "\n".join(said[-40:])
    ticks = [float(line.split()[1]) for line in said if line.startswith("TICK")]
    assert ticks, "\n".join(said[-40:])
    return ticks[-1]


def test_device_that_cannot_be_disarmed_is_held_until_the_second_request(
    images: Images, disk: Path
) -> None:
    with running(images, disk, Path("/state"), words_of_kernel=f"{HELD} case=held") as machine:
        machine.until(armed(images), BOOT_S)
        machine.until("NOTHING PROTECTED", 120)
        machine.until("HELD", 60)
        machine.until("GUARD ENDED 0", 60)
        assert last_tick(machine) < DEVICE_S + LATE_S


def test_protected_guest_is_killed_when_the_lease_is_over_and_the_machine_lives_on(
    images: Images, disk: Path
) -> None:
    with running(images, disk, Path("/state"), words_of_kernel=f"{HELD} case=killed") as machine:
        machine.until(armed(images), BOOT_S)
        ended = machine.until("GUEST ENDED", 60)
        assert 0 <= float(ended.split()[-1]) < LATE_S
        machine.until("ALIVE", 120)  # for longer than its device waits
        machine.until("THE CASE IS OVER", 60)


def test_guests_are_killed_first_and_the_machine_is_reset_for_one_that_survives(
    images: Images, disk: Path
) -> None:
    with running(images, disk, Path("/state"), words_of_kernel=f"{HELD} case=stuck") as machine:
        machine.until(armed(images), BOOT_S)
        ended = machine.until("GUEST ENDED", 60)
        assert 0 <= float(ended.split()[-1]) < LATE_S
        last = last_tick(machine)
    # The margin of D7 begins 15 s after the end of the lease.
    assert LATE_S < last < RESET_S + LATE_S


def test_machine_whose_watchdog_process_stands_still_is_reset_by_the_device(
    images: Images, disk: Path
) -> None:
    with running(images, disk, Path("/state"), words_of_kernel=f"{HELD} case=stopped") as machine:
        machine.until(armed(images), BOOT_S)
        assert last_tick(machine) < DEVICE_S + LATE_S


def test_only_a_device_of_hardware_resets_a_machine_whose_kernel_is_dead(
    images: Images, disk: Path
) -> None:
    words = f"{HELD} panic=0 case=dead"
    with running(images, disk, Path("/state"), words_of_kernel=words) as machine:
        machine.until(armed(images), BOOT_S)
        machine.until("Kernel panic", 60)
        assert not machine.ends_within(DEVICE_S - LATE_S)
        assert machine.ends_within(2 * LATE_S) == bool(images.device)
