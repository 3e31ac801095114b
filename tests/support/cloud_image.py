"""A cloud image as distributions make them: Debian's packages with cloud-init, a boot loader and partitions; made once.

`mmdebstrap` installs them from where this host's apt has its packages. The disk has a partition to boot from (SYSLINUX,
which needs no device of this host) and one with the system, which is to grow at its first boot.
"""

import fcntl
import hashlib
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support import debian_tree
from tests.support.debian_packages import CACHE, unpacked
from tests.support.debian_tree import SLOW, build, install_debian

TOOLS = ("syslinux", "syslinux-common", "mtools")
PACKAGES = (
    *("sudo", "cloud-init", "cloud-guest-utils", "fdisk", "netplan.io", "systemd-resolved"),
)
SECTOR, MIB = 512, 1024 * 1024
BOOT_AT, BOOT_MIB, ROOT_MIB = 1, 47, 640
SIZE_MIB = BOOT_AT + BOOT_MIB + ROOT_MIB
_BOOT = """default linux
label linux
  kernel vmlinuz
  initrd initrd
  append root=LABEL=root ro console=tty0 console=ttyS0,115200 no_timer_check mitigations=off
"""
# As Debian's own cloud images have it.
_SETTINGS = {
    "etc/cloud/cloud.cfg.d/01_image.cfg": "manage_etc_hosts: true\n",
    "etc/default/locale": "LANG=C.UTF-8\n",
    "etc/fstab": "LABEL=root / ext4 rw 0 1\n",
    "etc/systemd/system.conf.d/slow.conf": SLOW,
}
BOOTABLE, FAT, LINUX = 0x80, 0x0C, 0x83
_CODE = 440


def cloud_image() -> Path:
    """The image, in qcow2; skips the test where it cannot be made."""
    tools = unpacked(*TOOLS)
    made = CACHE / f"cloud-{_digest()}.qcow2"
    with (CACHE / "cloud.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            for old in CACHE.glob("cloud-*.qcow2"):
                old.unlink()
            with tempfile.TemporaryDirectory(dir=CACHE, prefix=".cloud-") as name:
                _build(made, Path(name), tools)
    return made


def _digest() -> str:
    """Changes with how it is made."""
    return hashlib.sha256(
        Path(__file__).read_bytes() + Path(debian_tree.__file__).read_bytes()
    ).hexdigest()[:16]


def _build(target: Path, work: Path, tools: Path) -> None:
    tree, disk = work / "tree", work / "disk"
    install_debian(tree, PACKAGES, _SETTINGS)
    build("mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", tree, work / "root", f"{ROOT_MIB}M")
    boot_partition(work / "boot", BOOT_MIB, tree / "vmlinuz", tree / "initrd.img", _BOOT, tools)
    parts = ((BOOTABLE, FAT, BOOT_AT, BOOT_MIB), (0, LINUX, BOOT_AT + BOOT_MIB, ROOT_MIB))
    disk.write_bytes(first_sector(tools, parts))
    for part, at in (("boot", BOOT_AT), ("root", BOOT_AT + BOOT_MIB)):
        words = ["bs=1M", "conv=sparse,notrunc", "status=none"]
        build("dd", f"if={work / part}", f"of={disk}", f"seek={at}", *words)
    build("qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", disk, work / "image")
    (work / "image").rename(target)


def boot_partition(
    target: Path, mib: int, kernel: Path, initrd: Path, settings: str, tools: Path
) -> None:
    """Make a partition from which the firmware of a PC starts a kernel, as the settings of SYSLINUX say."""
    with target.open("wb") as file:
        file.truncate(mib * MIB)
    written = target.with_suffix(".cfg")
    written.write_text(settings)
    build("mformat", "-i", target, "-F", "-H", str(BOOT_AT * MIB // SECTOR), "::", tools=tools)
    for source, name in ((kernel, "vmlinuz"), (initrd, "initrd"), (written, "syslinux.cfg")):
        build("mcopy", "-i", target, source.resolve(), f"::{name}", tools=tools)
    build("syslinux", "--install", target, tools=tools)


def first_sector(tools: Path, parts: Sequence[tuple[int, int, int, int]]) -> bytes:
    """What the firmware starts, and the partitions: flag, kind, first MiB and size in MiB."""
    code = (tools / "usr/lib/SYSLINUX/mbr.bin").read_bytes()
    entries = b"".join(
        struct.pack("<B3sB3sII", flag, b"\xff" * 3, kind, b"\xff" * 3, at * MIB // SECTOR, size * MIB // SECTOR)
        for flag, kind, at, size in parts
    )  # fmt: skip
    table = code[:_CODE].ljust(_CODE, b"\0") + struct.pack("<IH", 0x47414E45, 0) + entries
    return table.ljust(SECTOR - 2, b"\0") + b"\x55\xaa"


def small_image(target: Path, kernel: Path, initrd: Path, append: str) -> None:
    """Write a qcow2 image of a disk from which a PC starts this kernel."""
    tools = unpacked(*TOOLS)
    mib = (kernel.stat().st_size + initrd.stat().st_size) // MIB + 36  # FAT32 needs 33
    disk, boot = target.with_suffix(".disk"), target.with_suffix(".boot")
    settings = f"default linux\nlabel linux\n  kernel vmlinuz\n  initrd initrd\n  append {append}\n"
    boot_partition(boot, mib, kernel, initrd, settings, tools)
    disk.write_bytes(
        first_sector(tools, [(BOOTABLE, FAT, BOOT_AT, mib)]).ljust(BOOT_AT * MIB, b"\0")
        + boot.read_bytes()
    )
    build("qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", disk, target)
