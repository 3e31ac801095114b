"""Manifests of backups from anywhere, and the layout of their images."""

from typing import Any

import pytest

from ganeti.base.errors import HostError
from ganeti.model import wire
from ganeti.model.names import Consistency
from ganeti.protocols.backup_manifest import (
    PIECE,
    Image,
    Manifest,
    Merge,
    chain_of,
    image_file,
    parse_manifest,
)
from ganeti.protocols.qcow2 import CLUSTER, Layout, counts, entry, header, parse_header, position

pytestmark = pytest.mark.requirement("A51", "A42")

DISK = "11111111-0000-4000-8000-000000000000"
FIRST, SECOND = "20261127-080000", "20261127-090000"


def image(point: str = FIRST, **fields: Any) -> Image:
    known: dict[str, Any] = {
        "disk": DISK, "size": 1 << 20, "file": image_file(point, DISK), "length": PIECE + 1, "pieces": ("0" * 64,) * 2,
    }  # fmt: skip
    return Image(**{**known, **fields})


def manifest(point: str = FIRST, **fields: Any) -> Manifest:
    known: dict[str, Any] = {
        "instance": "web1.example.com", "instance_uuid": "i", "point": point, "number": 1, "time": 1.0,
        "consistency": Consistency.DOWN, "disks": (image(point),), "description": "",
    }  # fmt: skip
    return Manifest(**{**known, **fields})


def parsed(one: Manifest, file: str = "") -> Manifest:
    return parse_manifest(wire.encode(one), file or one.file)


def test_manifest_is_read_as_written() -> None:
    first = manifest()
    second = manifest(
        SECOND,
        number=2,
        parent=FIRST,
        disks=(image(SECOND, backing=image_file(FIRST, DISK)),),
        merging=Merge(parent="", disks=(image(SECOND),)),
    )
    assert parsed(first) == first
    assert parsed(second) == second
    known = {one.point: one for one in (first, second)}
    assert [one.file for one in chain_of(second, DISK, known)] == [
        image_file(SECOND, DISK), image_file(FIRST, DISK)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        manifest(format="ganeti-backup-2"),
        manifest(instance="../web1"),
        manifest(parent="../x"),
        manifest(number=0),
        manifest(number=-(2**40)),
        manifest(time=-1.0),
        manifest(disks=(image(), image())),
        manifest(disks=(image(file="/etc/shadow"),)),
        manifest(disks=(image(file=f"../{image_file(FIRST, DISK)}"),)),
        manifest(disks=(image(disk="../x"),)),
        manifest(disks=(image(backing="/etc/shadow"),), parent=FIRST),
        manifest(disks=(image(backing=image_file(SECOND, DISK)),)),
        manifest(disks=(image(backing=f"{SECOND}.other.qcow2"),), parent=SECOND),
        manifest(disks=(image(size=2**63 - 1),)),
        manifest(disks=(image(size=0),)),
        manifest(disks=(image(length=2**62),)),
        manifest(disks=(image(pieces=("0" * 64,)),)),
        manifest(disks=(image(pieces=("0" * 64, "x" * 64)),)),
        manifest(merging=Merge(parent="", disks=(image(file="x"),))),
    ],
    ids=lambda one: str(wire.encode(one)[-60:]),
)
@pytest.mark.sampled(20)
def test_impossible_manifest_is_refused(wrong: Manifest) -> None:
    with pytest.raises(HostError):
        parsed(wrong, f"{FIRST}.json")


def test_manifest_of_another_name_and_no_json_are_refused() -> None:
    with pytest.raises(HostError, match="not that of the file"):
        parsed(manifest(), f"{SECOND}.json")
    for content in (b"", b"{}", b"[" * 10_000, b"\xff", wire.encode(manifest())[:-9]):
        with pytest.raises(HostError):
            parse_manifest(content, f"{FIRST}.json")


def test_chain_without_an_image_or_in_a_circle_is_refused() -> None:
    second = manifest(
        SECOND, number=2, parent=FIRST, disks=(image(SECOND, backing=image_file(FIRST, DISK)),)
    )
    with pytest.raises(HostError, match="missing or damaged"):
        chain_of(second, DISK, {SECOND: second})
    circle = manifest(number=1, parent=SECOND, disks=(image(backing=image_file(SECOND, DISK)),))
    with pytest.raises(HostError, match="missing or damaged"):
        chain_of(second, DISK, {SECOND: second, FIRST: circle})
    with pytest.raises(HostError, match="has no disk"):
        chain_of(second, "22222222-0000-4000-8000-000000000000", {})


LAYOUT = Layout(
    size=3 << 30,
    backing="x.qcow2",
    tables_at=9 * CLUSTER,
    tables=6,
    counts_at=11 * CLUSTER,
    counts_clusters=1,
)
LENGTH = 12 * CLUSTER


def test_header_is_read_as_written() -> None:
    assert parse_header(header(LAYOUT), LENGTH) == LAYOUT


@pytest.mark.parametrize("at", [*range(112), *range(112, 160, 3), CLUSTER - 1])
@pytest.mark.sampled(20)
def test_header_with_a_changed_byte_is_refused_or_means_another_size(at: int) -> None:
    """Names, features, and positions outside of the file are refused; nothing else than sizes can differ."""
    changed = bytearray(header(LAYOUT))
    changed[at] ^= 0x41
    try:
        found = parse_header(bytes(changed), LENGTH)
    except HostError:
        return
    assert found.tables == LAYOUT.tables
    assert found.backing == LAYOUT.backing or "/" not in found.backing
    assert 0 < found.tables_at < LENGTH


def test_entry_outside_of_the_image_is_refused() -> None:
    assert position(entry(3 * CLUSTER), LENGTH) == 3 * CLUSTER
    for wrong in (
        entry(LENGTH), entry(0), entry(CLUSTER) | 1 << 62, 3 * CLUSTER, entry(CLUSTER + 512), entry(1 << 55),
    ):  # fmt: skip
        with pytest.raises(HostError):
            position(wrong, LENGTH)


@pytest.mark.parametrize("used", [1, 2, 32766, 32767, 32768, 65535, 10**6])
def test_counts_count_themselves(used: int) -> None:
    content, table = counts(used)
    assert content.count(b"\0\1") >= used
    clusters = used + len(content) // CLUSTER
    ones = content[:table]
    assert ones == (b"\0\1" * clusters).ljust(len(ones), b"\0")
