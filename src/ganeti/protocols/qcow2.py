"""The layout of the qcow2 images of backups: uncompressed clusters of 64 KiB, and a backing file in the same directory.

Pure. Images are written once, from the beginning to the end: the header, data in the order of its arrival, the tables,
the reference counts. Only images of exactly this form are read, so a changed or hostile one names no other file.
Source: `docs/interop/qcow2.txt` of QEMU.
"""

import struct
import sys
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ganeti.base.errors import HostError

CLUSTER_BITS = 16
CLUSTER = 1 << CLUSTER_BITS
ENTRIES = CLUSTER // 8
"""Entries of a table."""
REGION = ENTRIES * CLUSTER
"""Bytes of the disk that one table describes."""
ZERO = 1
"""The entry of a cluster that reads as zeros, whatever the backing file has."""

_MAGIC, _VERSION, _REFCOUNT_ORDER = b"QFI\xfb", 3, 4
_HEADER = struct.Struct(">4sIQIIQIIQQIIQQQQII")
_EXTENSION = struct.Struct(">II")
_BACKING_FORMAT, _FORMAT = 0xE2792ACA, b"qcow2\0\0\0"
_FORMAT_LENGTH = 5
_OWN = 1 << 63
"""The flag of clusters with one reference."""
_OFFSET = _OWN - CLUSTER & ((1 << 56) - 1)
_PER_BLOCK = CLUSTER // 2
"""Counts of two bytes in a block."""

if TYPE_CHECKING:
    Table = array[int]
else:
    Table = array


@dataclass(frozen=True)
class Layout:
    """The position of the tables in an image, in bytes."""

    size: int
    """Bytes of the disk."""
    backing: str
    """Name of the backing file; '' for none."""
    tables_at: int
    """Position of the table of tables."""
    tables: int
    """Number of its entries."""
    counts_at: int
    counts_clusters: int


def clusters(count: int, unit: int) -> int:
    """Return how many units hold `count`."""
    return -(-count // unit)


def header(layout: Layout) -> bytes:
    """Return the first cluster of an image."""
    name = layout.backing.encode("ascii")
    extensions = b""
    if name:
        extensions += _EXTENSION.pack(_BACKING_FORMAT, _FORMAT_LENGTH) + _FORMAT
    extensions += _EXTENSION.pack(0, 0)
    name_at = _HEADER.size + len(extensions) if name else 0
    fields = _HEADER.pack(
        *(_MAGIC, _VERSION, name_at, len(name), CLUSTER_BITS, layout.size, 0, layout.tables),
        *(layout.tables_at, layout.counts_at, layout.counts_clusters, 0, 0, 0, 0, 0),
        *(_REFCOUNT_ORDER, _HEADER.size),
    )
    return (fields + extensions + name).ljust(CLUSTER, b"\0")


def parse_header(first: bytes, length: int) -> Layout:
    """Return the layout of an image of `length` bytes; HostError unless it is exactly one that `header` makes."""
    if len(first) != CLUSTER:
        raise HostError("it is shorter than a header")
    fields = _HEADER.unpack_from(first)
    size, tables, tables_at, counts_at, counts_clusters = (*fields[5:6], *fields[7:11])
    at, name_length = fields[2:4]
    if at + name_length > CLUSTER:
        raise HostError("its header is damaged")
    name = first[at : at + name_length].decode("ascii", "replace") if at else ""
    layout = Layout(size, name, tables_at, tables, counts_at, counts_clusters)
    if not name.isascii() or header(layout) != first:
        raise HostError("its header is not that of a backup")
    if tables != clusters(size, REGION):
        raise HostError("its tables do not fit its size")
    if not _is_inside(tables_at, clusters(tables * 8, CLUSTER) * CLUSTER, length):
        raise HostError("its tables are outside of it")
    return layout


def _is_inside(at: int, size: int, length: int) -> bool:
    return at % CLUSTER == 0 and CLUSTER <= at <= length - size


def entry(at: int) -> int:
    """Return the entry of a table for a cluster at this position."""
    return at | _OWN


def position(value: int, length: int) -> int:
    """Return the position of an entry that is neither 0 nor ZERO; HostError if it is not a cluster of the image."""
    at = value & _OFFSET
    if value != entry(at) or not _is_inside(at, CLUSTER, length):
        raise HostError("an entry of its tables leads outside of it")
    return at


def new_table() -> Table:
    """Return a table without clusters."""
    return array("Q", bytes(CLUSTER))


def packed(table: Table) -> bytes:
    """Return a table as it is stored."""
    if sys.byteorder == "big":
        return table.tobytes()
    other = array("Q", table)
    other.byteswap()
    return other.tobytes()


def unpacked(data: bytes) -> Table:
    """Return a stored table."""
    table = array("Q", data)
    if sys.byteorder == "little":
        table.byteswap()
    return table


def counts(used: int) -> tuple[bytes, int]:
    """Return the reference counts of an image with `used` clusters and then these counts; and the table's position.

    The position is counted from the beginning of the counts, in bytes.
    """
    blocks, table = 0, 0
    while True:
        need = clusters(used + blocks + table, _PER_BLOCK)
        if need <= blocks and clusters(need * 8, CLUSTER) <= table:
            break
        blocks, table = max(blocks, need), max(table, clusters(need * 8, CLUSTER))
    ones = (b"\0\1" * (used + blocks + table)).ljust(blocks * CLUSTER, b"\0")
    where = array("Q", [(used + number) * CLUSTER for number in range(blocks)])
    return ones + packed(where).ljust(table * CLUSTER, b"\0"), blocks * CLUSTER
