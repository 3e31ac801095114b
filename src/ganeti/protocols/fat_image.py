"""A small FAT file system with a few files, for the seed of a cloud image; pure.

FAT12 with one cluster a sector, long names, a label. Source: the FAT specification of ECMA-107 and
its long names. Nothing in it depends on the time.
"""

import struct
from collections.abc import Mapping

from ganeti.base.errors import InputError

SECTOR = 512
_ROOT_ENTRIES = 112
_ROOT_SECTORS = _ROOT_ENTRIES * 32 // SECTOR
_CLUSTERS_LIMIT = 4084
_LONG = 13
_END = 0xFFF
_LABEL, _LONG_NAME, _ARCHIVE, _LAST = 0x08, 0x0F, 0x20, 0x40


def fat_image(label: str, files: Mapping[str, bytes], sectors: int) -> bytes:
    """Return a file system of `sectors` sectors, at most FAT12's limit; InputError if the files do not fit."""
    sectors = min(sectors, _CLUSTERS_LIMIT)
    fat_sectors = -(-((sectors + 2) * 3 // 2 + 1) // SECTOR)
    first = 1 + 2 * fat_sectors + _ROOT_SECTORS
    needed = sum(-(-len(content) // SECTOR) for content in files.values())
    if first + needed > sectors:
        raise InputError(f"has {sectors} sectors but needs {first + needed}", "seed disk")
    table, root, data = [0xFF8, _END], [_entry(label.ljust(11).encode(), _LABEL, 0, 0)], b""
    for number, (name, content) in enumerate(files.items()):
        clusters = -(-len(content) // SECTOR)
        begin = len(table) if clusters else 0
        table += [one + 1 for one in range(begin, begin + clusters - 1)] + [_END] * bool(clusters)
        short = b"SEED%04dTXT" % number
        root += [*_long_entries(name, short), _entry(short, _ARCHIVE, begin, len(content))]
        data += content.ljust(clusters * SECTOR, b"\0")
    packed_table = _packed(table).ljust(fat_sectors * SECTOR, b"\0")
    packed_root = b"".join(root).ljust(_ROOT_SECTORS * SECTOR, b"\0")
    whole = _boot_sector(label, sectors, fat_sectors) + 2 * packed_table + packed_root + data
    return whole.ljust(sectors * SECTOR, b"\0")


def _boot_sector(label: str, sectors: int, fat_sectors: int) -> bytes:
    facts = struct.pack(
        "<3s8sHBHBHHBHHHIIBBBI11s8s",
        b"\xeb\x3c\x90", b"GANETI  ", SECTOR, 1, 1, 2, _ROOT_ENTRIES, sectors, 0xF8, fat_sectors,
        32, 64, 0, 0, 0x80, 0, 0x29, 0x47414E45, label.ljust(11).encode(), b"FAT12   ",
    )  # fmt: skip
    return facts.ljust(SECTOR - 2, b"\0") + b"\x55\xaa"


def _packed(table: list[int]) -> bytes:
    """Return numbers of twelve bits each, two in three bytes."""
    even = [*table, 0] if len(table) % 2 else table
    pairs = zip(even[::2], even[1::2], strict=True)
    return b"".join((low | high << 12).to_bytes(3, "little") for low, high in pairs)


def _entry(name: bytes, attributes: int, cluster: int, size: int) -> bytes:
    return struct.pack("<11sB14xHI", name, attributes, cluster, size)


def _long_entries(name: str, short: bytes) -> list[bytes]:
    """Return the parts of a long name, the last one first, each bound to the short name by its checksum."""
    total = 0
    for byte in short:
        total = ((total & 1) << 7 | total >> 1) + byte & 0xFF
    letters = [ord(one) for one in name]
    parts = [letters[at : at + _LONG] for at in range(0, len(letters), _LONG)]
    found = []
    for number, part in reversed(list(enumerate(parts, 1))):
        full = (part + [0] * (len(part) < _LONG)) + [0xFFFF] * _LONG
        packed = struct.pack(f"<{_LONG}H", *full[:_LONG])
        last = _LAST if number == len(parts) else 0
        found.append(
            bytes([number | last]) + packed[:10] + bytes([_LONG_NAME, 0, total])
            + packed[10:22] + b"\0\0" + packed[22:]
        )  # fmt: skip
    return found


def fat_files(image: bytes) -> dict[str, bytes]:
    """Return the files of an image made by `fat_image`, by their long names; InputError for any other."""
    if len(image) < SECTOR or image[3:11] != b"GANETI  " or image[510:512] != b"\x55\xaa":
        raise InputError("has no file system that this implementation wrote", "seed disk")
    fat_sectors = struct.unpack_from("<H", image, 22)[0]
    root = (1 + 2 * fat_sectors) * SECTOR
    data = root + _ROOT_SECTORS * SECTOR
    found, letters = {}, ""
    for at in range(root + 32, min(data, len(image) - 31), 32):
        entry = image[at : at + 32]
        if not entry[0]:
            break
        if entry[11] == _LONG_NAME:
            part = (entry[1:11] + entry[14:26] + entry[28:32]).decode("utf-16-le", "replace")
            letters = part.partition("\0")[0] + letters
            continue
        cluster, size = struct.unpack_from("<HI", entry, 26)
        begin = data + max(0, cluster - 2) * SECTOR
        found[letters], letters = image[begin : begin + size], ""
    return found
