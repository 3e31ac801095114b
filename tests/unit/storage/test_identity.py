"""What is the same data under two names, with device numbers from a tree like that of /sys."""

from pathlib import Path

import pytest

from ganeti.storage import identity as module
from ganeti.storage.identity import Identity, Key, identity

pytestmark = pytest.mark.requirement("A48", "G12")

DISK, FIRST, SECOND, VOLUME, OTHER, LOOP = ((8, 0), (8, 1), (8, 2), (253, 0), (253, 1), (7, 0))
NAMES = {
    "sda": DISK,
    "sda1": FIRST,
    "sda2": SECOND,
    "dm-0": VOLUME,
    "dm-1": OTHER,
    "loop0": LOOP,
    "by-id/dm-name-xenvg-web1": VOLUME,
}


@pytest.fixture
def sys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A disk with two partitions, two volumes on the second one, and a loop device over a file on the first one."""
    image = tmp_path / "disk0"
    image.touch()
    devices = tmp_path / "sys" / "devices"
    for name, number in NAMES.items():
        if "/" not in name:
            _device(tmp_path / "sys", devices / ("sda" if name[:3] == "sda" else "") / name, number)
    for name in ("sda1", "sda2"):
        (devices / "sda" / name / "partition").touch()
    (devices / "sda" / "dev").write_text("8:0\n")
    for name in ("dm-0", "dm-1"):
        (devices / name / "slaves").mkdir()
        (devices / name / "slaves" / "sda2").symlink_to(devices / "sda" / "sda2")
    (devices / "loop0" / "loop").mkdir()
    (devices / "loop0" / "loop" / "backing_file").write_text(f"{image}\n")
    real = module._key

    def key(path: str) -> Key | None:
        name = path.removeprefix("/dev/").removeprefix("disk/")
        if path == str(image):
            return "file", 0x801, 5  # on the file system of sda1
        return ("block", *NAMES[name]) if path.startswith("/dev/") else real(path)

    monkeypatch.setattr(module, "_key", key)
    return tmp_path / "sys"


def _device(sys: Path, place: Path, number: tuple[int, int]) -> None:
    place.mkdir(parents=True, exist_ok=True)
    text = f"{number[0]}:{number[1]}"
    (place / "dev").write_text(f"{text}\n")
    (sys / "dev" / "block").mkdir(parents=True, exist_ok=True)
    (sys / "dev" / "block" / text).symlink_to(place)


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("/dev/disk/by-id/dm-name-xenvg-web1", "/dev/dm-0", True),
        ("/dev/sda2", "/dev/dm-0", True),
        ("/dev/sda", "/dev/dm-0", True),
        ("/dev/dm-0", "/dev/dm-1", False),
        ("/dev/sda1", "/dev/dm-1", False),
        ("/dev/sda1", "/dev/sda2", False),
        ("/dev/loop0", "IMAGE", True),
        ("/dev/loop0", "/dev/sda1", True),
        ("/dev/sda1", "IMAGE", True),
        ("/dev/loop0", "/dev/sda2", False),
    ],
)
def test_data_is_distinguished_by_what_it_lies_on(
    sys: Path, one: str, other: str, *, overlap: bool
) -> None:
    found = [
        identity(str(sys.parent / "disk0") if name == "IMAGE" else name, sys=sys)
        for name in (one, other)
    ]
    first, second = found
    assert first is not None
    assert second is not None
    assert first.overlaps(second) is overlap
    assert second.overlaps(first) is overlap


def test_files_are_compared_by_their_inodes(tmp_path: Path) -> None:
    (tmp_path / "disk").touch()
    (tmp_path / "other").touch()
    (tmp_path / "link").symlink_to("disk")
    (tmp_path / "hard").hardlink_to(tmp_path / "disk")
    one, link, hard, other = (
        identity(str(tmp_path / name)) for name in ("disk", "link", "hard", "other")
    )
    assert isinstance(one, Identity)
    assert one == link == hard
    assert other is not None
    assert not one.overlaps(other)
    assert identity(str(tmp_path / "nosuch")) is None
    assert identity("a\0b") is None
