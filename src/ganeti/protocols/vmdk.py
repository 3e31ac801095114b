"""Writer of a disk as a VMDK image of the kind `streamOptimized`, the format in an OVA; pure.

    header   descriptor   grains, each compressed, with their numbers   grain tables   directory   footer   end

Source: Virtual Disk Format 5.0. It is written sequentially, so it goes straight into an archive.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator

SECTOR = 512
GRAIN = 64 * 1024
_GRAIN_SECTORS = GRAIN // SECTOR
_ENTRIES = 512
_HEADER = struct.Struct("<4sIIQQQQIQQQBccccH")
_GRAIN_HEADER = struct.Struct("<QI")
_MARKER = struct.Struct("<QII")
_END, _TABLE, _DIRECTORY, _FOOTER = range(4)
_OVERHEAD = 128
_DESCRIPTOR_SECTORS = 20
_FLAGS = 1 | 1 << 16 | 1 << 17  # line ends can be checked, compressed grains, markers
_VERSION = 3
_LEVEL = 1
_DESCRIPTOR = """# Disk DescriptorFile
version=1
CID={cid:08x}
parentCID=ffffffff
createType="streamOptimized"

# Extent description
RW {sectors} SPARSE "{name}"

# The Disk Data Base
#DDB

ddb.virtualHWVersion = "4"
ddb.geometry.cylinders = "{cylinders}"
ddb.geometry.heads = "255"
ddb.geometry.sectors = "63"
ddb.adapterType = "lsilogic"
"""


def stream_optimized(pieces: Iterable[tuple[int, bytes]], size: int, name: str) -> Iterator[bytes]:
    """Yield the image of a disk of `size` bytes: `pieces` are numbers of grains with GRAIN bytes, ascending.

    Omitted grains read as zeros. `name` is a plain file name.
    """
    sectors = -(-size // SECTOR)
    written = 0
    tables: dict[int, dict[int, int]] = {}

    def count(data: bytes) -> bytes:
        nonlocal written
        written += len(data) // SECTOR
        return data

    cylinders = min(sectors // (255 * 63), 65535)
    text = _DESCRIPTOR.format(
        cid=zlib.crc32(f"{name} {size}".encode()), sectors=sectors, name=name, cylinders=cylinders
    )
    yield count(_header(sectors, 2**64 - 1))
    yield count(
        _padded(text.encode()[: _DESCRIPTOR_SECTORS * SECTOR], _DESCRIPTOR_SECTORS * SECTOR)
    )
    yield count(bytes((_OVERHEAD - 1 - _DESCRIPTOR_SECTORS) * SECTOR))
    for number, data in pieces:
        packed = zlib.compress(data.ljust(GRAIN, b"\0"), _LEVEL)
        tables.setdefault(number // _ENTRIES, {})[number % _ENTRIES] = written
        yield count(_padded(_GRAIN_HEADER.pack(number * _GRAIN_SECTORS, len(packed)) + packed))
    places: dict[int, int] = {}
    for number, entries in sorted(tables.items()):
        yield count(_marker(_ENTRIES * 4 // SECTOR, _TABLE))
        places[number] = written
        yield count(_numbers([entries.get(one, 0) for one in range(_ENTRIES)]))
    length = -(-sectors // (_GRAIN_SECTORS * _ENTRIES))
    directory = _numbers([places.get(one, 0) for one in range(length)])
    yield count(_marker(len(directory) // SECTOR, _DIRECTORY))
    place = written
    yield count(directory)
    yield _marker(1, _FOOTER) + _header(sectors, place) + _marker(0, _END)


def _header(sectors: int, directory: int) -> bytes:
    return _padded(
        _HEADER.pack(
            b"KDMV", _VERSION, _FLAGS, sectors, _GRAIN_SECTORS, 1, _DESCRIPTOR_SECTORS, _ENTRIES,
            0, directory, _OVERHEAD, 0, b"\n", b" ", b"\r", b"\n", 1,
        )
    )  # fmt: skip


def _marker(sectors: int, kind: int) -> bytes:
    return _padded(_MARKER.pack(sectors, 0, kind))


def _numbers(values: list[int]) -> bytes:
    return _padded(struct.pack(f"<{len(values)}I", *values))


def _padded(data: bytes, size: int = 0) -> bytes:
    return data.ljust(size or -(-len(data) // SECTOR) * SECTOR, b"\0")
