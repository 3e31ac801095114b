"""What images claim to be, and all that is refused before any tool sees them."""

import struct
from collections.abc import Callable

import pytest

from ganeti.base.errors import InputError
from ganeti.protocols.image_headers import SIZE_LIMIT, ImageFacts, inspect_image
from ganeti.protocols.vmdk import GRAIN, stream_optimized

MIB = 1 << 20


def facts(image: bytes, wanted: str = "") -> ImageFacts:
    return inspect_image(lambda at, length: image[at : at + length], len(image), wanted)


def qcow2(**fields: int) -> bytes:
    """The header of an image; `extension` is the type of one header extension."""
    given = {
        "version": 3,
        "backing": 0,
        "backing_length": 0,
        "bits": 16,
        "size": 4 * MIB,
        "crypt": 0,
    }
    one = {**given, "features": 0, "extension": 0, **fields}
    head = struct.pack(
        ">4sIQIIQIIQQIIQ", b"QFI\xfb", one["version"], one["backing"], one["backing_length"],
        one["bits"], one["size"], one["crypt"], 1, 0x30000, 0x10000, 1, 0, 0,
    )  # fmt: skip
    if one["version"] == 3:
        head += struct.pack(">QQQII", one["features"], 0, 0, 4, 104)
    return (head + struct.pack(">II", one["extension"], 0)).ljust(65536, b"\0")


def vmdk(text: str = "", **fields: int) -> bytes:
    one = {"version": 1, "capacity": 8192, "directory": 21, "descriptor": 1, **fields}
    head = struct.pack(
        "<4sIIQQQQIQQQB", b"KDMV", one["version"], 3, one["capacity"], 128, one["descriptor"], 20, 512,
        0, one["directory"], 128, 0,
    )  # fmt: skip
    return (head.ljust(512, b"\0") + text.encode()).ljust(64 * 512, b"\0")


def test_whole_images_are_taken() -> None:
    assert facts(qcow2()) == ImageFacts("qcow2", 4 * MIB)
    assert facts(qcow2(version=2)) == ImageFacts("qcow2", 4 * MIB)
    assert facts(qcow2(features=1 << 4)) == ImageFacts("qcow2", 4 * MIB)
    assert facts(vmdk('RW 8192 SPARSE "a.vmdk"\nparentCID=ffffffff\n')) == ImageFacts(
        "vmdk", 4 * MIB
    )
    assert facts(b"\xeb\x63".ljust(MIB, b"\0")) == ImageFacts("raw", MIB)
    whole = b"".join(stream_optimized([(1, b"x" * GRAIN)], MIB, "a.vmdk"))
    assert facts(whole) == ImageFacts("vmdk", MIB)


def test_a_named_format_counts_and_is_checked() -> None:
    assert facts(qcow2(), "raw") == ImageFacts("raw", 65536)
    for wanted in ("qcow2", "vmdk"):
        with pytest.raises(InputError, match="has no header"):
            facts(bytes(4096), wanted)
    with pytest.raises(InputError, match="is none of"):
        facts(bytes(4096), "qed")


@pytest.mark.requirement("A51")
@pytest.mark.parametrize(
    ("image", "why"),
    [
        (qcow2(backing=4096, backing_length=11), "backing file"),
        (qcow2(version=2, backing=4096, backing_length=11), "backing file"),
        (qcow2(backing_length=11), "backing file"),
        (qcow2(features=1 << 2), "data in another file"),
        (qcow2(extension=0x44415441), "names an external data file"),
        (qcow2(features=1 << 1), "corrupt"),
        (qcow2(features=1 << 9), "unknown features"),
        (qcow2(crypt=2), "encrypted"),
        (qcow2(version=4), "version 4"),
        (qcow2(bits=40), "do not exist"),
        (qcow2(size=1 << 63), "bytes"),
        (qcow2(size=0), "0 bytes"),
        (qcow2(size=SIZE_LIMIT + 1), "bytes"),
        (b"QFI\xfb\0\0\0\3", "no header"),
        (vmdk(capacity=0), "other files"),
        (vmdk(capacity=1 << 54), "bytes"),
        (vmdk(version=9), "version 9"),
        (vmdk('parentFileNameHint="/etc/shadow"\n'), "parent"),
        (vmdk("parentCID=0badcafe\n"), "parent"),
        (vmdk('RW 8192 FLAT "/etc/shadow" 0\n'), "other files"),
        (vmdk('RW 10 SPARSE "a"\nRW 10 SPARSE "b"\n'), "several files"),
        (vmdk(directory=2**64 - 1), "no header"),
        (vmdk(descriptor=1 << 60), "beyond"),
        (b"# Disk DescriptorFile\nversion=1\n", "only the description"),
        (b"\n\n# disk descriptorfile\n", "only the description"),
        (b"\x1f\x8b" + bytes(600), "gzip"),
        (b"PK\x03\x04" + bytes(600), "ZIP"),
        (b"LUKS\xba\xbe" + bytes(600), "LUKS"),
        (b"COWD" + bytes(600), "old kind"),
        (bytes(64) + b"\x7f\x10\xda\xbe" + bytes(600), "VDI"),
        (bytes(257) + b"ustar\0" + bytes(600), "tar archive"),
        (b"", "0 bytes"),
    ],
)  # fmt: skip
def test_what_does_not_stand_on_its_own_is_refused(image: bytes, why: str) -> None:
    with pytest.raises(InputError, match=why):
        facts(image)


@pytest.mark.requirement("A51")
def test_a_footer_that_contradicts_the_header_is_refused() -> None:
    whole = bytearray(b"".join(stream_optimized([(0, b"x" * GRAIN)], MIB, "a.vmdk")))
    struct.pack_into("<Q", whole, len(whole) - 1024 + 12, 0)
    with pytest.raises(InputError, match="no data of its own"):
        facts(bytes(whole))
    struct.pack_into("<Q", whole, len(whole) - 1024 + 12, 77)
    with pytest.raises(InputError, match="contradicts"):
        facts(bytes(whole))


@pytest.mark.parametrize("make", [qcow2, vmdk])
def test_any_cut_is_refused_or_harmless(make: Callable[[], bytes]) -> None:
    whole = make()
    for length in range(0, 600, 7):
        try:
            found = facts(whole[:length])
        except InputError:
            continue
        assert found.size <= 4 * MIB
