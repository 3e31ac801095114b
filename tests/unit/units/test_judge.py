"""The state of a disk from what its nodes report, and the command that repairs it; pure."""

from typing import Any

import pytest

from ganeti.model.mirror_states import MirrorState
from ganeti.rpc.procedures.disks import DiskInfo, SyncStatus
from ganeti.units.mirrors.judge import (
    OFFLINE,
    Seen,
    Verdict,
    have_parted,
    judge,
    problem,
    row,
    why_no_source,
    why_not_alone,
    why_not_used,
)

WEB = "web1"


def sync(*generations: str, connected: bool = False, **fields: Any) -> SyncStatus:
    given: dict[str, Any] = {"up_to_date": True, "generations": generations, **fields}
    return SyncStatus(connected=connected, **given)


def part(info: DiskInfo | None, *, primary: bool = True, why: str = "") -> Seen:
    return Seen(0, "node1" if primary else "node2", primary, info, why)


def there(status: SyncStatus | None = None, problem: str = "") -> DiskInfo:
    return DiskInfo(exists=True, path="/dev/drbd0", size=64, problem=problem, sync=status)


def closed(*generations: str, **fields: Any) -> DiskInfo:
    return DiskInfo(exists=True, path="/dev/drbd0", size=64, at_rest=sync(*generations, **fields))


def both(one: DiskInfo | None, other: DiskInfo | None, why: str = "") -> Verdict:
    return judge([part(one, why=why), part(other, primary=False, why=why)], mirrored=True)


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
        (sync("A"), sync("4", consistent=False), False),
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
        (None, MirrorState.UNKNOWN),
        (DiskInfo(exists=False), MirrorState.MISSING),
        (DiskInfo(exists=False, problem="no such group"), MirrorState.BROKEN),
        (there(problem="too small"), MirrorState.BROKEN),
        (there(sync("A", attached=False)), MirrorState.BROKEN),
        (there(), MirrorState.CLOSED),
        (there(sync("A", connected=True)), MirrorState.OK),
        (there(sync("A")), MirrorState.CONNECTING),
        (there(sync("A", dropped=True)), MirrorState.DROPPED),
        (there(sync("A", up_to_date=False)), MirrorState.STALE),
        (there(sync("A", up_to_date=False, consistent=False)), MirrorState.INCOMPLETE),
        (there(sync("A", connected=True, percent=3.0)), MirrorState.SYNCING),
    ],
)
def test_the_state_of_a_part(info: DiskInfo | None, wanted: MirrorState) -> None:
    assert judge([part(info)], mirrored=True).states == (wanted,)


def test_a_split_brain_is_that_of_both_parts() -> None:
    for one in (there(sync("A", "O")), closed("A", "O")):
        assert both(one, there(sync("B", "O"))).states == (MirrorState.SPLIT_BRAIN,) * 2
    assert judge([part(there())], mirrored=False).states == (MirrorState.OK,)


def test_new_copies_that_no_guest_has_written_are_only_closed() -> None:
    new = closed("4", up_to_date=False, consistent=False)
    assert both(new, new).states == (MirrorState.CLOSED,) * 2


ACTIVATE = "gnt-instance activate-disks web1"


@pytest.mark.requirement("F22")
@pytest.mark.parametrize(
    ("one", "other", "state", "command"),
    [
        (there(sync("A")), there(sync("A")), MirrorState.CONNECTING, ""),
        (there(sync("A")), there(sync("A", dropped=True)), MirrorState.DROPPED, ACTIVATE),
        (there(sync("A", "O")), there(sync("O")), MirrorState.STALE, ""),
        (there(sync("A", "O")), closed("O"), MirrorState.STALE, ACTIVATE),
        (there(sync("A")), closed("A"), MirrorState.CONNECTING, ACTIVATE),
        (closed("A"), closed("A"), MirrorState.CLOSED, ACTIVATE),
        (
            *(there(sync("A", "O")), there(sync("B", "O")), MirrorState.SPLIT_BRAIN),
            "gnt-instance repair-disks --keep=NODE web1",
        ),
        (
            *(there(sync("A")), DiskInfo(exists=False), MirrorState.MISSING),
            "gnt-instance replace-disks -a web1",
        ),
        (
            *(DiskInfo(exists=False), DiskInfo(exists=False), MirrorState.MISSING),
            "gnt-instance recreate-disks web1",
        ),
        (
            *(there(problem="too small"), DiskInfo(exists=False), MirrorState.MISSING),
            "",
        ),
    ],
)
def test_each_state_has_one_command(
    one: DiskInfo, other: DiskInfo, state: MirrorState, command: str
) -> None:
    verdict = both(one, other)
    assert verdict.state is state
    found = problem(verdict, WEB, is_up=True)
    assert found is not None
    assert found.command == command
    assert f"disk/0 is {state}: the copy on node" in found.text


def test_a_disk_that_is_well_has_no_problem() -> None:
    good = there(sync("A", connected=True))
    assert problem(both(good, good), WEB, is_up=True) is None
    assert problem(both(closed("A"), closed("A")), WEB, is_up=False) is None


def test_a_copy_without_its_dead_peer_is_chosen_only_if_it_lacks_writes() -> None:
    stale = there(sync("A", up_to_date=False))
    found = problem(both(stale, None, OFFLINE), WEB, is_up=True)
    assert found is not None
    assert found.command == "gnt-instance repair-disks --keep=node1 web1"
    dead_primary = judge(
        [part(None, why=OFFLINE), part(stale, primary=False)],
        mirrored=True,
    )
    found = problem(dead_primary, WEB, is_up=True)
    assert found is not None
    assert found.command == "gnt-instance failover --ignore-consistency web1"
    for info, why in ((stale, "no answer"), (there(sync("A")), OFFLINE)):
        found = problem(both(info, None, why), WEB, is_up=True)
        assert found is not None
        assert found.command == ""


@pytest.mark.requirement("G13")
@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        (there(sync("A", connected=True)), there(sync("A", connected=True)), ""),
        (closed("A"), closed("A"), ""),
        (closed("O"), closed("A", "O"), ""),
        (DiskInfo(exists=False), there(sync("A")), ""),
        (there(sync("A")), there(sync("A")), "is not connected to that on node1"),
        (
            *(there(sync("A", "O", missed_kib=3000)), there(sync("A"))),
            "not connected to that on node1; the other copy lacks at most 3 MiB",
        ),
        (closed("A", "O"), closed("O"), "is older than the other copy"),
        (there(sync("A", "O")), there(sync("B", "O")), "split brain"),
        (there(sync("A")), DiskInfo(exists=False), "is missing"),
        (
            there(sync("A", connected=True, percent=1.0)),
            there(sync("B", connected=True, percent=1.0, up_to_date=False, consistent=False)),
            "is being synchronised",
        ),
    ],
)
def test_why_a_guest_does_not_go_to_the_other_copy(
    one: DiskInfo, other: DiskInfo, why: str
) -> None:
    found = why_not_used(both(one, other), "node2")
    assert why in found
    assert bool(why) == bool(found)


@pytest.mark.requirement("G13")
@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        (there(sync("A")), there(sync("A")), ""),
        (there(sync("A", "O")), there(sync("O")), ""),
        (there(sync("A", "O")), there(sync("O", up_to_date=False)), ""),
        (there(sync("A", "O")), there(sync("B", "O", up_to_date=False)), ""),
        (there(sync("A", "O")), there(sync("B", "O")), "split brain"),
        (there(sync("O")), there(sync("A", "O")), "is older than the other copy"),
        (there(sync("O")), there(sync("A", "O", up_to_date=False)), "is older than the other copy"),
        (there(sync("A", up_to_date=False)), there(sync("A")), "is older than the other copy"),
        (there(sync("A")), None, "cannot be compared"),
        (there(sync("A")), there(), "cannot be compared"),
        (there(sync("A")), closed("A"), "is not open"),
        (DiskInfo(exists=False), there(sync("A")), "is missing"),
    ],
)
def test_why_a_copy_is_not_opened_alone(one: DiskInfo, other: DiskInfo | None, why: str) -> None:
    found = why_not_alone(both(one, other))
    assert why in found
    assert bool(why) == bool(found)


def test_a_copy_that_is_being_filled_is_no_source() -> None:
    taking = there(sync("A", connected=True, percent=1.0, up_to_date=False, consistent=False))
    sending = there(sync("A", connected=True, percent=1.0))
    assert "is being synchronised" in why_no_source(both(taking, sending), "node1")
    assert why_no_source(both(sending, taking), "node1") == ""
    cut = both(there(sync("A")), there(sync("A")))
    assert why_no_source(cut, "node1") == ""
    assert "is not connected" in why_no_source(cut, "node2")
    new = closed("4", up_to_date=False, consistent=False)
    assert why_no_source(both(new, new), "node1") == why_not_used(both(new, new), "node2") == ""


def test_a_row_contains_all_columns() -> None:
    status = sync("A", connected=True, percent=50.0, seconds_left=9.0, rate=100, state="words")
    assert row(part(there(status)), MirrorState.SYNCING) == {
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
    assert row(silent, MirrorState.UNKNOWN)["problem"] == "no answer"
