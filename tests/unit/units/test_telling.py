"""What a job shows of work that takes long: position, percent, rate and time left."""

import pytest

from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.instance import OpInstanceShutdown
from ganeti.model.opcodes.instance_changes import OpInstanceGrowDisk
from ganeti.model.opcodes.moving import OpInstanceMove
from ganeti.model.progress import Progress
from ganeti.units.telling import MIB, Pace, progress_words
from tests.support.slow_calls import Slow, check_shown
from tests.support.units_cluster import Master, said, succeeded
from tests.unit.units.opcodes import NAME, create, migrate, modify

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize(
    ("done", "total", "rate", "left", "words"),
    [
        (0, 3072, 0, None, "0.0% (0 of 3072 MiB), 0 KiB/s"),
        (1136, 3072, 85 * MIB, None, "37.0% (1136 of 3072 MiB), 85 MiB/s, 23s left"),
        (3000, 3072, 51200, None, "97.7% (3000 of 3072 MiB), 50 KiB/s, 24m35s left"),
        (100, 1 << 20, 10 * MIB, None, "0.0% (100 of 1048576 MiB), 10 MiB/s, 29h07m left"),
        (512, 1024, 0, 3666, "50.0% (512 of 1024 MiB), 0 KiB/s, 1h01m left"),
        (3073, 3072, 85 * MIB, None, "100.0% (3072 of 3072 MiB), 85 MiB/s"),
        (12, 0, 2 * MIB, None, "12 MiB, 2 MiB/s"),
    ],
)
def test_a_position_in_words(
    done: int, total: int, rate: float, left: float | None, words: str
) -> None:
    assert progress_words(Progress(done=done * MIB, total=total * MIB), rate, left) == words


def test_the_rate_is_that_since_the_last_look() -> None:
    pace = Pace("disk 0", 100.0)
    first = pace.step(Progress(done=50 * MIB, total=1000 * MIB), 105.0)[0]
    assert first == "disk 0: 5.0% (50 of 1000 MiB), 10 MiB/s, 1m35s left"
    second = pace.step(Progress(done=350 * MIB, total=1000 * MIB), 120.0)[0]
    assert second == "disk 0: 35.0% (350 of 1000 MiB), 20 MiB/s, 32s left"
    back = pace.step(Progress(done=340 * MIB, total=1000 * MIB), 130.0)[0]
    assert back == "disk 0: 34.0% (340 of 1000 MiB), 0 KiB/s"
    other = pace.step(Progress(done=30 * MIB, total=60 * MIB, part="memory"), 140.0)[0]
    assert other == "disk 0, memory: 50.0% (30 of 60 MiB), 3 MiB/s, 10s left"


async def test_a_creation_shows_how_far_it_clears_a_disk(master: Master) -> None:
    Slow(master, 1, "blockdev_create")
    view = await master.run(create(disks=[DiskRequest(size=1000)]))
    succeeded(view)
    check_shown(view, "zeros on disk 0 on node1.example.com")


async def test_a_grow_shows_how_far_it_clears_the_new_space(master: Master) -> None:
    succeeded(await master.run(create()))
    Slow(master, 1, "blockdev_grow")
    view = await master.run(OpInstanceGrowDisk(instance_name=NAME, disk=1, amount=1000))
    succeeded(view)
    check_shown(view, "new space of disk 1 on node1.example.com")


async def test_a_move_and_a_conversion_show_how_far_each_disk_is(master: Master) -> None:
    succeeded(await master.run(create(disk_template="file", disks=[DiskRequest(size=512)])))
    Slow(master, 1, "stream_send")
    target = "node2.example.com"
    view = await master.run(OpInstanceMove(instance_name=NAME, target_node=target, stop=True))
    succeeded(view)
    check_shown(view, "disk 0")
    Slow(master, 2, "stream_copy")
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    view = await master.run(modify(disk_template="sharedfile"))
    succeeded(view)
    check_shown(view, "disk 0")


async def test_a_migration_shows_how_far_the_memory_is(master: Master) -> None:
    succeeded(await master.run(create()))
    Slow(master, 1, "migration_run", "memory")
    view = await master.run(migrate())
    succeeded(view)
    check_shown(view, f"{NAME}, memory")


async def test_a_node_without_progress_reports_disturbs_nothing(master: Master) -> None:
    Slow(master, 1, "blockdev_create")
    del master.rpc.nodes["node1.example.com"]["call_progress"]
    view = await master.run(create(disks=[DiskRequest(size=1000)]))
    succeeded(view)
    assert "zeros on" not in said(view)


def test_progress_in_seconds_has_a_time_limit_and_no_rate() -> None:
    found = Progress(done=75, total=300, part="boot", is_time=True)
    words, bar = Pace("backup x", 0.0).step(found, 5.0)
    assert words == "backup x, boot: 1m15s of at most 5m00s"
    assert (bar.percent, bar.rate, bar.left_s) == (25.0, None, 225.0)
