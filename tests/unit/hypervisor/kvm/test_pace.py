"""Copies of a running guest's disks are slowed down while the guest uses them, and come to their end."""

import pytest

from ganeti.hypervisor.kvm.pace import LEAST_MIB_S, Pace, requests_of

MIB = 1024 * 1024


BUSY = 100
"""Requests a second of a guest that uses its disks."""


def test_copy_is_slowed_down_to_an_eighth_while_the_guest_uses_its_disks() -> None:
    pace = Pace(0, 10_000 * MIB)
    assert not pace.changed(1.0, 0, 0)
    assert pace.changed(2.0, 800 * MIB, BUSY)
    assert pace.speed == 100
    assert not pace.changed(3.0, 1000 * MIB, 2 * BUSY)
    assert pace.changed(4.0, 1200 * MIB, 2 * BUSY + 5)
    assert pace.speed == 0


def test_single_request_between_two_looks_is_no_use() -> None:
    pace = Pace(0, 10_000 * MIB)
    pace.changed(1.0, 0, 0)
    assert not pace.changed(1.01, 8 * MIB, 5)
    assert not pace.changed(1.3, 240 * MIB, 5)


def test_slow_copy_is_not_taken_for_the_full_speed() -> None:
    pace = Pace(0, 10_000 * MIB)
    for second, done in enumerate((0, 800, 840, 880)):
        pace.changed(float(second), done * MIB, second * BUSY)
    assert pace.speed == 100


def test_first_pass_alone_is_slowed_down() -> None:
    pace = Pace(0, 1000 * MIB)
    pace.changed(1.0, 0, 0)
    assert pace.changed(2.0, 800 * MIB, BUSY)
    assert pace.changed(3.0, 1000 * MIB, 2 * BUSY)
    assert pace.speed == 0


@pytest.mark.parametrize(("limit", "speed"), [(0, LEAST_MIB_S), (100, LEAST_MIB_S), (20, 20)])
def test_slow_disk_and_the_administrators_limit(limit: int, speed: int) -> None:
    pace = Pace(limit, 1000 * MIB)
    pace.changed(1.0, 0, 0)
    pace.changed(2.0, 40 * MIB, BUSY)
    assert pace.speed == speed
    pace.changed(3.0, 70 * MIB, BUSY)
    assert pace.speed == limit


def test_copies_side_by_side_share_the_speed() -> None:
    pace = Pace(0, 10_000 * MIB, copies=2)
    pace.changed(1.0, 0, 0)
    pace.changed(2.0, 800 * MIB, BUSY)
    assert pace.speed == 50


def test_requests_of_the_moved_disks_count() -> None:
    answer = [
        {
            "qdev": f"/machine/peripheral/disk{number}/virtio-backend",
            "stats": {"rd_operations": 2, "wr_operations": number},
        }
        for number in (1, 10)
    ]
    assert requests_of([*answer, {"stats": {}}], {"disk10"}) == 12
