"""A cloud image as distributions make them: Debian's packages with cloud-init, a boot loader and partitions; made once.

`mmdebstrap` installs them from where this host's apt has its packages. The disk has a partition to boot from (SYSLINUX,
which needs no device of this host) and one with the system, which is to grow at its first boot.
"""

import fcntl
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.debian_packages import CACHE, unpacked

TOOLS = ("mmdebstrap", "syslinux", "syslinux-common", "mtools")
PACKAGES = (
    *("systemd-sysv", "udev", "kmod", "dbus", "iproute2", "sudo", "openssh-server"),
    *("linux-image-cloud-amd64", "initramfs-tools", "e2fsprogs"),
    *("cloud-init", "cloud-guest-utils", "fdisk", "netplan.io", "systemd-resolved"),
)
LEFT_OUT = ("man", "doc", "locale")
SOURCES = ("sources.list", "sources.list.d/debian.sources", "sources.list.d/ubuntu.sources")
SECTOR, MIB = 512, 1024 * 1024
BOOT_AT, BOOT_MIB, ROOT_MIB = 1, 47, 640
SIZE_MIB = BOOT_AT + BOOT_MIB + ROOT_MIB
BUILD_LIMIT_S = 1800
_BOOT = """default linux
label linux
  kernel vmlinuz
  initrd initrd
  append root=LABEL=root ro console=tty0 console=ttyS0,115200 no_timer_check mitigations=off
"""
# As Debian's own cloud images have it; and what is emulated may start slowly.
_SETTINGS = {
    "etc/cloud/cloud.cfg.d/01_image.cfg": "manage_etc_hosts: true\n",
    "etc/default/locale": "LANG=C.UTF-8\n",
    "etc/fstab": "LABEL=root / ext4 rw 0 1\n",
    "etc/systemd/system.conf.d/slow.conf": "[Manager]\nDefaultTimeoutStartSec=900\nDefaultDeviceTimeoutSec=900\n",
}
_CODE, _FAT, _LINUX = 440, 0x0C, 0x83


def cloud_image() -> Path:
    """The image, in qcow2; skips the test where it cannot be made."""
    if os.geteuid() != 0 or shutil.which("perl") is None:
        pytest.skip("to install packages below a directory needs root and perl")
    sources = [place for name in SOURCES if (place := Path("/etc/apt", name)).exists()]
    tools = unpacked(*TOOLS)
    made = CACHE / f"cloud-{_digest()}.qcow2"
    with (CACHE / "cloud.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            for old in CACHE.glob("cloud-*.qcow2"):
                old.unlink()
            with tempfile.TemporaryDirectory(dir=CACHE, prefix=".cloud-") as name:
                _build(made, Path(name), tools, sources)
    return made


def _digest() -> str:
    """Changes with how it is made."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]


def _build(target: Path, work: Path, tools: Path, sources: list[Path]) -> None:
    tree, disk = work / "tree", work / "disk"
    _install(tree, tools, sources)
    _run("mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", tree, work / "root", f"{ROOT_MIB}M")
    _make_boot(work / "boot", tree, tools)
    with disk.open("wb") as file:
        file.write(_partition_table((tools / "usr/lib/SYSLINUX/mbr.bin").read_bytes()))
    for part, at in (("boot", BOOT_AT), ("root", BOOT_AT + BOOT_MIB)):
        words = ["bs=1M", "conv=sparse,notrunc", "status=none"]
        _run("dd", f"if={work / part}", f"of={disk}", f"seek={at}", *words)
    _run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", disk, work / "image")
    (work / "image").rename(target)


def _install(tree: Path, tools: Path, sources: list[Path]) -> None:
    options = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT]
    options += ["--dpkgopt=force-unsafe-io", "--aptopt=Acquire::Languages none"]
    options += ["--mode=root", "--variant=minbase", "--format=directory", "--quiet"]
    options += [f"--include={','.join(PACKAGES)}"]
    try:
        _run("unshare", "-m", "--propagation", "slave",
             "mmdebstrap", *options, "", tree, *sources, tools=tools)  # fmt: skip
    except subprocess.CalledProcessError as err:
        pytest.skip(f"the packages of a cloud image cannot be installed: {err.stderr[-300:]}")
    for key in (tree / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    for name, text in _SETTINGS.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)


def _make_boot(disk: Path, tree: Path, tools: Path) -> None:
    with disk.open("wb") as file:
        file.truncate(BOOT_MIB * MIB)
    settings = disk.with_suffix(".cfg")
    settings.write_text(_BOOT)
    _run("mformat", "-i", disk, "-F", "-H", str(BOOT_AT * MIB // SECTOR), "::", tools=tools)
    for source, name in ((tree / "vmlinuz", "vmlinuz"), (tree / "initrd.img", "initrd"), (settings, "syslinux.cfg")):  # fmt: skip
        _run("mcopy", "-i", disk, source.resolve(), f"::{name}", tools=tools)
    _run("syslinux", "--install", disk, tools=tools)


def _partition_table(code: bytes) -> bytes:
    """The first sector: what the firmware starts, and the two partitions."""
    places = ((0x80, _FAT, BOOT_AT, BOOT_MIB), (0, _LINUX, BOOT_AT + BOOT_MIB, ROOT_MIB))
    entries = b"".join(
        struct.pack("<B3sB3sII", flag, b"\xff" * 3, kind, b"\xff" * 3, at * MIB // SECTOR, size * MIB // SECTOR)
        for flag, kind, at, size in places
    )  # fmt: skip
    table = code[:_CODE].ljust(_CODE, b"\0") + struct.pack("<IH", 0x47414E45, 0) + entries
    return table.ljust(SECTOR - 2, b"\0") + b"\x55\xaa"


def _run(*words: str | Path, tools: Path | None = None) -> None:
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin" + (f":{tools}/usr/bin" if tools else "")
    subprocess.run(
        [str(word) for word in words], env={"PATH": path, "HOME": "/root", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=BUILD_LIMIT_S,
    )  # fmt: skip
