"""The kernel's counters of disks and networks."""

from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.kernel_counters import parse_disk, parse_disks, parse_interfaces, sums

DISKS = """\
   7       0 loop0 1 0 8 0 0 0 0 0 0 0 0
 253       0 vda 100 5 2000 7 50 6 400 9 0 1 2 3 4 5 6 7 8
 broken
"""
NETWORKS = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:  42       2    0    0    0     0          0         0       42       2    0    0    0     0       0          0
gnt0a1b: 1000      10    0    0    0     0          0         0     5000      20    0    0    0     0       0          0
bad: 1 2
"""


def test_disks_have_requests_and_bytes() -> None:
    assert parse_disks(DISKS) == {"loop0": (1, 4096, 0, 0), "vda": (100, 1_024_000, 50, 204_800)}
    assert parse_disk(["100", "5", "2000", "7", "50", "6", "400", "9"]) == (
        100,
        1_024_000,
        50,
        204_800,
    )
    assert parse_disk([]) is None


def test_interfaces_have_bytes_and_packets() -> None:
    assert parse_interfaces(NETWORKS) == {"lo": (42, 2, 42, 2), "gnt0a1b": (1000, 10, 5000, 20)}


def test_sums_are_by_column_and_absent_without_rows() -> None:
    assert sums(("a", "b", "c", "d"), [(1, 2, 3, 4), (10, 20, 30, 40)]) == {
        "a": 11.0, "b": 22.0, "c": 33.0, "d": 44.0,
    }  # fmt: skip
    assert sums(("a", "b", "c", "d"), []) == {}


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    parse_disks(text)
    parse_interfaces(text)
