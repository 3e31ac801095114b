"""Which disks may be written over."""

from pathlib import Path

import pytest

from ganeti.base.errors import PrereqError
from ganeti.storage.lvm import commands
from ganeti.tools import lvmstrap
from ganeti.tools.host_disks import HostDisk, chosen, disks_of, problem_of

GIB = 1 << 30


class Host:
    """A host's `/sys` and `/proc`, as files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc/self").mkdir(parents=True)
        (root / "sys/block").mkdir(parents=True)
        (root / "proc/swaps").write_text("Filename Type Size Used Priority\n")
        (root / "proc/self/mountinfo").touch()
        self.number = 0

    def disk(self, name: str, parts: int = 0, **files: str) -> Path:
        place = self.root / "sys/block" / name
        given = {"size": str(GIB // 512), "ro": "0", "removable": "0", **files}
        self._device(place, given)
        for number in range(1, parts + 1):
            self._device(place / f"{name}{number}", {"size": "2048", "partition": str(number)})
        return place

    def _device(self, place: Path, files: dict[str, str]) -> None:
        (place / "holders").mkdir(parents=True)
        self.number += 1
        for name, text in {**files, "dev": f"8:{self.number}"}.items():
            (place / name).write_text(f"{text}\n")

    def mount(self, device: str, source: str, place: str) -> None:
        with (self.root / "proc/self/mountinfo").open("a") as file:
            file.write(f"22 1 {device} / {place} rw,relatime shared:1 - ext4 {source} rw\n")

    def uses(self, **groups: str) -> dict[str, str]:
        found = disks_of(self.root, groups)
        return {disk.name: problem_of(disk, removable=False) for disk in found}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_disk_is_free_or_its_use_is_reported(host: Host) -> None:
    host.disk("sda", parts=2)
    host.mount("8:2", "/dev/root", "/")
    host.disk("sdb", parts=1)
    host.mount("0:45", "/dev/sdb1", "/srv")
    host.disk("sdc", parts=1)
    with (host.root / "proc/swaps").open("a") as file:
        file.write("/dev/sdc1 partition 1000 0 -2\n")
    host.disk("sdd")
    (host.disk("sde", parts=1) / "sde1/holders/md0").mkdir()
    (host.disk("nvme0n1", parts=1) / "nvme0n11/holders/dm-0").mkdir()
    host.disk("sdf", ro="1")
    host.disk("sdg", size="0")
    host.disk("sdh", removable="1")
    host.disk("cciss!c0d0", parts=1)
    host.mount("8:17", "/dev/cciss/c0d0p1", "/data")
    host.disk("vda")
    host.mount("8:18", "/dev/vda", "/old")
    for virtual in ("loop0", "dm-0", "sr0", "zram0", "drbd1"):
        host.disk(virtual)
    assert host.uses(sdd="xenvg", nvme0n11="") == {
        "cciss/c0d0": "cciss/c0d01 is mounted at /data",
        "nvme0n1": "nvme0n11 is a physical volume of no group yet",
        "sda": "sda1 is mounted at /",
        "sdb": "sdb1 is mounted at /srv",
        "sdc": "sdc1 has swap",
        "sdd": "sdd is a physical volume of xenvg",
        "sde": "sde1 is held by md0",
        "sdf": "is read-only",
        "sdg": "has no medium",
        "sdh": "is removable (--allow-removable)",
        "vda": "vda is mounted at /old",
    }


def test_a_free_disk_has_its_size_and_its_partitions(host: Host) -> None:
    host.disk("sdb", parts=2)
    assert disks_of(host.root, {}) == [HostDisk("sdb", GIB, parts=("sdb1", "sdb2"))]


FREE, USED = HostDisk("sda", GIB), HostDisk("sdb", GIB, uses=("sdb1 is mounted at /",))
REMOVABLE = HostDisk("sdc", GIB, is_removable=True)
ALL = (FREE, USED, REMOVABLE)


def test_all_means_all_that_nothing_uses() -> None:
    assert chosen(ALL, None, removable=False) == [FREE]
    assert chosen(ALL, None, removable=True) == [FREE, REMOVABLE]
    with pytest.raises(PrereqError, match="no disk is unused"):
        chosen([USED], None, removable=True)


def test_a_named_disk_is_taken_or_refused_with_the_reason() -> None:
    assert chosen(ALL, ["/dev/sda", "sda"], removable=False) == [FREE]
    assert chosen(ALL, ["sda", "sdc"], removable=True) == [FREE, REMOVABLE]
    for names, why in (
        (["sdb"], "mounted at /"),
        (["sdc"], "removable"),
        (["sdz"], "disk sdz does not exist"),
    ):
        with pytest.raises(PrereqError, match=why):
            chosen(ALL, ["sda", *names], removable=False)


def test_commands_take_names_only() -> None:
    assert commands.create_physical("/dev/sdb") == ["pvcreate", "--yes", "-ff", "--", "/dev/sdb"]
    assert commands.create_group("xenvg", ["/dev/sdb", "/dev/sdc"]) == [
        *("vgcreate", "--", "xenvg", "/dev/sdb", "/dev/sdc")
    ]


def test_the_disks_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        lvmstrap.parser().parse_args(["create", "-d", "sda", "--alldisks"])
    assert lvmstrap.parser().parse_args(["create", "--alldisks"]).vg_name == "xenvg"
    assert "not allowed with" in capsys.readouterr().err
