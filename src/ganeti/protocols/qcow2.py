"""The layout of qcow2 images: uncompressed clusters of 64 KiB.

Pure. Images are written from the beginning to the end: the header, data in the order of its arrival, the tables, the
reference counts. Those of backups may have a backing file in the same directory; only images of exactly this form are
read there, so a changed or hostile one names no other file. The images of disks were also written by QEMU, which puts
data and tables in any order.
Source: `docs/interop/qcow2.txt` of QEMU.
"""

import struct
import sys
from array import array
from collections.abc import Iterator, Mapping
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
_PACKED = 1 << 62
"""The flag of compressed clusters."""
_SUBCLUSTERS = 1 << 4
"""The feature by which entries of tables have another form."""
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


def parse_tables(first: bytes) -> tuple[int, int]:
    """Return the position and the number of entries of the table of tables of any image.

    `first` is its beginning. HostError unless the tables have the only form that is read; `inspect_image` has
    checked the rest of the header.
    """
    fields = _HEADER.unpack_from(first)
    version, cluster_bits, features = fields[1], fields[4], fields[13]
    if cluster_bits != CLUSTER_BITS:
        raise HostError(f"its clusters have {1 << cluster_bits} bytes instead of {CLUSTER}")
    if version == _VERSION and features & _SUBCLUSTERS:
        raise HostError("its clusters are divided (extended_l2)")
    count, at = fields[7:9]
    if at % CLUSTER or not at:
        raise HostError("its tables are outside of it")
    return at, count


def data_position(value: int, length: int) -> int | None:
    """Return the position of a cluster's data by its entry in a table; None if the cluster reads as zeros.

    HostError if the cluster is compressed, or not inside of the file, which has `length` bytes.
    """
    if value & _PACKED:
        raise HostError("it has compressed clusters")
    return None if value & ZERO else table_position(value, length)


def table_position(value: int, length: int) -> int | None:
    """Return the position of a table by its entry in the table of tables; None if there is none. HostError."""
    if value & ~(_OFFSET | _OWN):
        raise HostError("an entry of its tables is damaged")
    at = value & _OFFSET
    if at >= length:
        raise HostError("an entry of its tables leads outside of it")
    return at or None


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


def closing(
    end: int, size: int, tables: Mapping[int, Table], *, backing: str = "", unused: int = 0
) -> tuple[Iterator[bytes], bytes]:
    """Return the parts that follow the data of an image, which ends at `end`, and then its header.

    `tables` are those of the regions with data; `unused` clusters after the header belong to nothing.
    """
    directory = new_table() * clusters(clusters(size, REGION), ENTRIES)
    numbers = sorted(tables)
    for index, number in enumerate(numbers):
        directory[number] = entry(end + index * CLUSTER)
    tables_at = end + len(numbers) * CLUSTER
    counts_at = tables_at + len(directory) * 8
    counted, table_at = counts(counts_at // CLUSTER)
    counted = counted[:2] + bytes(2 * unused) + counted[2 * (1 + unused) :]
    layout = Layout(
        size=size,
        backing=backing,
        tables_at=tables_at,
        tables=clusters(size, REGION),
        counts_at=counts_at + table_at,
        counts_clusters=(len(counted) - table_at) // CLUSTER,
    )

    def parts() -> Iterator[bytes]:
        for number in numbers:
            yield packed(tables[number])
        yield packed(directory)
        yield counted

    return parts(), header(layout)
