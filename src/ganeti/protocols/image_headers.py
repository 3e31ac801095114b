"""Headers of foreign disk images: raw, qcow2 and VMDK; pure (A51).

The header is examined before any tool reads the image, and only self-contained images are accepted: no backing file, no
external data file, no encryption, no excessive size.
Sources: `docs/interop/qcow2.txt` of QEMU, and the Virtual Disk Format 5.0.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from ganeti.base.errors import InputError

RAW, QCOW2, VMDK = "raw", "qcow2", "vmdk"
FORMATS = (RAW, QCOW2, VMDK)
SIZE_LIMIT = 64 << 40
"""The limit of a disk in bytes."""
SECTOR = 512

Read = Callable[[int, int], bytes]
"""Reads bytes at an offset; fewer at the end of the image."""

_QCOW2_MAGIC, _VMDK_MAGIC, _DESCRIPTOR_MAGIC = b"QFI\xfb", b"KDMV", b"# disk descriptorfile"
_QCOW2_HEADER = struct.Struct(">4sIQIIQIIQQIIQ")
_QCOW2_V3 = struct.Struct(">QQQII")
_QCOW2_FEATURES = {0: "dirty", 1: "marked as corrupt", 2: "its data in another file"}
_QCOW2_ALLOWED = 1 << 3 | 1 << 4  # a compression type, subclusters
_DATA_FILE_NAME = 0x44415441
_EXTENSIONS_LIMIT = 64
_CLUSTER_BITS = range(9, 22)
_VMDK_HEADER = struct.Struct("<4sIIQQQQIQQQBccccH")
_GD_AT_END = 2**64 - 1
_VMDK_VERSIONS = (1, 2, 3)
_DESCRIPTOR_SECTORS = 20
_NO_PARENT = "ffffffff"
_EXTENT_WORDS = ("RW", "RDONLY", "NOACCESS")

_OTHERS = (
    (b"\x1f\x8b", "compressed by gzip"),
    (b"BZh", "compressed by bzip2"),
    (b"\xfd7zXZ\0", "compressed by xz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"LUKS\xba\xbe", "encrypted by LUKS"),
    (b"QED\0", "a QED image"),
    (b"vhdxfile", "a VHDX image"),
    (b"conectix", "a VHD image"),
    (b"WithoutFreeSpace", "a Parallels image"),
    (b"WithouFreSpacExt", "a Parallels image"),
    (b"COWD", "a VMDK image of an old kind"),
    (b"\xbe\xba\xfe\xca", "a VMDK image of ESXi's own kind"),
)
_VDI_OFFSET, _VDI_MAGIC = 64, b"\x7f\x10\xda\xbe"
_TAR_OFFSET, _TAR_MAGIC = 257, b"ustar"


@dataclass(frozen=True)
class ImageFacts:
    """The format of an image, and the size in bytes of its disk."""

    format: str
    size: int


def inspect_image(read: Read, length: int, wanted: str = "") -> ImageFacts:
    """Return the facts of an image of `length` bytes; InputError says why it is not accepted.

    `wanted` is the required format; '' stands for that of the header, raw for none.
    """
    if wanted not in ("", *FORMATS):
        raise InputError(f"{wanted!r:.40} is none of {', '.join(FORMATS)}", "format")
    found = wanted or detect(read)
    if found == QCOW2:
        size = _qcow2(read)
    elif found == VMDK:
        size = _vmdk(read, length)
    else:
        size = length
    if not 0 < size <= SIZE_LIMIT:
        raise InputError(
            f"the disk in it has {size} bytes; accepted are 1 to {SIZE_LIMIT}", "image"
        )
    return ImageFacts(found, size)


def detect(read: Read) -> str:
    """Return the format of the header; InputError for a known format that is not accepted."""
    head = read(0, 2 * SECTOR)
    if head.startswith(_QCOW2_MAGIC):
        return QCOW2
    if head.startswith(_VMDK_MAGIC) or _is_descriptor(head):
        return VMDK
    for magic, what in _OTHERS:
        if head.startswith(magic):
            raise _refused(f"it is {what}: unpack or convert it to raw, qcow2 or VMDK first")
    if head[_VDI_OFFSET:].startswith(_VDI_MAGIC):
        raise _refused("it is a VDI image: convert it to raw, qcow2 or VMDK first")
    if head[_TAR_OFFSET:].startswith(_TAR_MAGIC):
        raise _refused("it is a tar archive; if it is an OVA, pass --format=ova")
    return RAW


def is_archive(read: Read) -> bool:
    """Return whether it is a tar archive, as an OVA is."""
    return read(0, SECTOR)[_TAR_OFFSET:].startswith(_TAR_MAGIC)


def _refused(why: str) -> InputError:
    return InputError(why, "image")


def _qcow2(read: Read) -> int:
    head = read(0, 4096)
    if len(head) < _QCOW2_HEADER.size or not head.startswith(_QCOW2_MAGIC):
        raise _refused("it has no header of qcow2")
    fields = _QCOW2_HEADER.unpack_from(head)
    version, backing, backing_length, cluster_bits, size, crypt = fields[1:7]
    if version not in (2, 3):
        raise _refused(f"it is version {version} of qcow2; accepted are 2 and 3")
    if backing or backing_length:
        raise _refused(
            "it has a backing file, which is not followed: flatten it first (qemu-img convert)"
        )
    if crypt:
        raise _refused("it is encrypted: decrypt it first (qemu-img convert)")
    if cluster_bits not in _CLUSTER_BITS:
        raise _refused(f"clusters of 2^{cluster_bits} bytes do not exist")
    header_length = 72
    if version == 3:  # noqa: PLR2004 - a version
        if len(head) < _QCOW2_HEADER.size + _QCOW2_V3.size:
            raise _refused("its header is truncated")
        features, _, _, _, header_length = _QCOW2_V3.unpack_from(head, _QCOW2_HEADER.size)
        _check_features(features)
    _check_extensions(head, header_length)
    return int(size)


def _check_features(features: int) -> None:
    for bit, what in _QCOW2_FEATURES.items():
        if features >> bit & 1 and bit:  # a dirty image is repaired in the copy
            raise _refused(
                f"it is or has {what}: convert it to a complete image first (qemu-img convert)"
            )
    if features & ~(_QCOW2_ALLOWED | 0b111):
        raise _refused(f"it requires unknown features ({features:#x})")


def _check_extensions(head: bytes, offset: int) -> None:
    for _ in range(_EXTENSIONS_LIMIT):
        if offset + 8 > len(head):
            return  # the next cluster; an external file must be marked in its features, too
        kind, length = struct.unpack_from(">II", head, offset)
        if kind == 0:
            return
        if kind == _DATA_FILE_NAME:
            raise _refused(
                "it names an external data file: convert it to a complete image first (qemu-img convert)"
            )
        offset += 8 + (length + 7) // 8 * 8
    raise _refused("it has more header extensions than any program writes")


def _is_descriptor(head: bytes) -> bool:
    return head.lstrip().lower().startswith(_DESCRIPTOR_MAGIC)


def _vmdk(read: Read, length: int) -> int:
    head = read(0, SECTOR)
    if _is_descriptor(head):
        raise _refused("it is only the description of a VMDK image, whose data is in other files:"
        " convert it to a complete image first (qemu-img convert)")  # fmt: skip
    capacity, descriptor, descriptor_sectors, directory = _vmdk_header(head)
    if directory == _GD_AT_END:
        footer = read(max(0, length - 2 * SECTOR), SECTOR)
        if _vmdk_header(footer)[0] != capacity:
            raise _refused("its footer contradicts its header")
    # The tool looks for a parent in the second sector, wherever the header puts the description.
    _check_descriptor(read(SECTOR, _DESCRIPTOR_SECTORS * SECTOR))
    if descriptor:
        sectors = min(max(descriptor_sectors, 1), 2048)
        _check_descriptor(read(descriptor * SECTOR, sectors * SECTOR))
    return capacity * SECTOR


def _vmdk_header(sector: bytes) -> tuple[int, int, int, int]:
    """Return capacity, offset and length of the description, and offset of the grain directory, in sectors."""
    if len(sector) < _VMDK_HEADER.size or not sector.startswith(_VMDK_MAGIC):
        raise _refused("it has no header of a sparse VMDK image")
    _, version, _, capacity, _, descriptor, size, _, _, directory, *_ = _VMDK_HEADER.unpack_from(
        sector
    )
    if version not in _VMDK_VERSIONS:
        raise _refused(f"it is version {version} of VMDK; accepted are 1 to 3")
    if capacity == 0:
        raise _refused("it has no data of its own (its data is in other files)")
    if descriptor > SIZE_LIMIT // SECTOR:
        raise _refused("its description is beyond its end")
    return capacity, descriptor, size, directory


def _check_descriptor(block: bytes) -> None:
    """Refuse a parent, and more than one extent, which is the file itself."""
    text = block.partition(b"\0")[0].decode("latin-1")
    if b"parentfilenamehint" in block.lower():
        raise _refused(
            "it has a parent image, which is not followed: convert it to a complete image first (qemu-img convert)"
        )
    extents = 0
    for line in text.splitlines():
        name, _, value = (part.strip() for part in line.partition("="))
        if name.lower() == "parentcid" and value.lower() != _NO_PARENT:
            raise _refused("it has a parent image, which is not followed")
        words = line.split()
        if words and words[0].upper() in _EXTENT_WORDS:
            extents += 1
            if len(words) < 3 or words[2].upper() != "SPARSE":  # noqa: PLR2004 - access, size, kind
                raise _refused(
                    "its data is in other files: convert it to a complete image first (qemu-img convert)"
                )
    if extents > 1:
        raise _refused(
            "its data is in several files: convert it to a complete image first (qemu-img convert)"
        )
