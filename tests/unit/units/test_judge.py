"""What is thought of a disk from what its nodes say; pure."""

import pytest

from ganeti.rpc.procedures.disks import DiskInfo, SyncStatus
from ganeti.units.mirrors.judge import DiskState, Seen, have_parted, judge, row


def sync(*generations: str, connected: bool = False, **fields: object) -> SyncStatus:
    given = {"up_to_date": True, "connected": connected, "generations": generations, **fields}
    return SyncStatus(**given)  # type: ignore[arg-type]  # a mixed table


def part(info: DiskInfo | None, *, primary: bool = True) -> Seen:
    return Seen(0, "node1" if primary else "node2", primary, info)


def there(status: SyncStatus | None = None, problem: str = "") -> DiskInfo:
    return DiskInfo(exists=True, path="/dev/drbd0", size=64, problem=problem, sync=status)


@pytest.mark.requirement("G13", "F22")
@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        (sync("A", "B"), sync("C", "B"), True),
        (sync("A", "B"), sync("B", "C"), False),
        (sync("B"), sync("A", "B"), False),
        (sync("A"), sync("A"), False),
        (sync("A", connected=True), sync("B", connected=True), False),
        (sync(), sync("B"), False),
    ],
)
def test_copies_have_parted_if_each_has_what_the_other_has_not(
    one: SyncStatus, other: SyncStatus, wanted: bool
) -> None:
    assert have_parted(one, other) is wanted
    assert have_parted(other, one) is wanted


@pytest.mark.requirement("S95", "S97")
@pytest.mark.parametrize(
    ("info", "wanted"),
    [
        (None, DiskState.UNKNOWN),
        (DiskInfo(exists=False), DiskState.MISSING),
        (DiskInfo(exists=False, problem="no such group"), DiskState.BROKEN),
        (there(problem="too small"), DiskState.BROKEN),
        (there(), DiskState.CLOSED),
        (there(sync("A", connected=True)), DiskState.OK),
        (there(sync("A")), DiskState.DEGRADED),
        (there(sync("A", connected=True, percent=3.0)), DiskState.SYNCING),
    ],
)
def test_the_state_of_a_part(info: DiskInfo | None, wanted: DiskState) -> None:
    assert judge([part(info)], mirrored=True) == [wanted]


def test_a_split_brain_is_that_of_both_parts() -> None:
    parts = [part(there(sync("A", "O"))), part(there(sync("B", "O")), primary=False)]
    assert judge(parts, mirrored=True) == [DiskState.SPLIT_BRAIN] * 2
    assert judge([part(there())], mirrored=False) == [DiskState.OK]


def test_a_row_says_all() -> None:
    status = sync("A", connected=True, percent=50.0, seconds_left=9.0, rate=100, state="words")
    assert row(part(there(status)), DiskState.SYNCING) == {
        "disk": 0,
        "node": "node1",
        "primary": True,
        "status": "syncing",
        "path": "/dev/drbd0",
        "size": 64,
        "percent": 50.0,
        "seconds_left": 9.0,
        "rate": 100,
        "state": "words",
        "problem": "",
    }
    silent = Seen(1, "node2", False, None, "no answer")
    assert row(silent, DiskState.UNKNOWN)["problem"] == "no answer"
