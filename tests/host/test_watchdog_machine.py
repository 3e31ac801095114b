"""A machine with a real /dev/watchdog that cannot be disarmed: its process is held until the second request."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.recovery.lease import DEVICE_S
from ganeti.vcluster.machine_image import make_disk
from tests.support.local_cluster import short_directory
from tests.support.node_vm import Images, NodeVm, build, running

pytestmark = [pytest.mark.host, pytest.mark.timeout(900), pytest.mark.requirement("D7")]

BOOT_S = 400
LATE_S = 4.0
"""For a machine that shares its processor with other programs."""
PROGRAM = """
import json, subprocess, sys, time
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
    say("GUARD", json.loads(paths.guard_status.read_text())["why_unarmed"] or "armed")
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

try:
    held()
finally:
    say("THE PROGRAM HAS ENDED")
    time.sleep(1)
"""


@pytest.fixture(scope="module")
def images() -> Iterator[Images]:
    with short_directory() as directory:
        yield build(directory, PROGRAM)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    made = tmp_path / "state.ext4"
    make_disk(made, 32)
    return made


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
    words = "watchdog=nowayout=1"
    with running(images, disk, Path("/state"), words_of_kernel=words) as machine:
        machine.until("GUARD armed", BOOT_S)
        machine.until("NOTHING PROTECTED", 120)
        machine.until("HELD", 60)
        machine.until("GUARD ENDED 0", 60)
        assert last_tick(machine) < DEVICE_S + LATE_S
