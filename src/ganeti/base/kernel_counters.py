"""The kernel's counters of disks and network interfaces. Pure."""

from collections.abc import Iterable, Sequence

Counters = tuple[int, int, int, int]

_SECTOR = 512


def parse_disks(text: str) -> dict[str, Counters]:
    """Return read requests, bytes read, write requests and bytes written of each disk in a /proc/diskstats."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if (one := parse_disk(words[3:])) is not None:
            found[words[2]] = one
    return found


def parse_disk(figures: Sequence[str]) -> Counters | None:
    """Return the same from the figures of one disk, as its `stat` in sysfs has them; None if they are none."""
    try:
        reads, _, read, _, writes, _, written = (int(one) for one in figures[:7])
    except ValueError:
        return None
    return reads, read * _SECTOR, writes, written * _SECTOR


def parse_interfaces(text: str) -> dict[str, Counters]:
    """Return bytes and packets received, bytes and packets sent, of each interface in a /proc/net/dev."""
    found = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        try:
            received, packets, *_, sent, sent_packets = (int(one) for one in rest.split()[:10])
        except ValueError:
            continue
        if colon:
            found[name.strip()] = received, packets, sent, sent_packets
    return found


def sums(names: Sequence[str], rows: Iterable[Counters]) -> dict[str, float]:
    """Return the sum of each column by its name; nothing without rows."""
    columns = zip(*rows, strict=True)
    return {name: float(sum(column)) for name, column in zip(names, columns, strict=False)}
