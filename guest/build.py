#!/usr/bin/env python3
"""Builds the small test guest: a kernel, an initial ramdisk, and the OS definition `tiny`.

    guest/build.py [--output DIRECTORY]

Needs Debian's apt-get and dpkg-deb; packages are fetched and unpacked, nothing is installed, and
no root is needed.  A result that fits these sources is kept, so the second run needs no network.
The last line printed is the output directory.  See docs/design/guest.md.
"""

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
KERNEL_META_PACKAGE = "linux-image-cloud-amd64"
# Wherever it is not built in: what every guest needs, and what only other kinds of disk need.
MODULES = (
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "virtio_balloon",
    "virtio_console",
    "button",
    "evdev",
)
OTHER_DISKS = ("virtio_scsi", "sd_mod", "ata_piix")
# For guests that report their panic; tests load them. The kernel has no driver of the watchdog i6300esb.
FAULTS = ("pvpanic_mmio",)
# For tests whose virtual machine has files of its own (tests/support/node_vm.py).
FILE_SYSTEMS = ("ext4",)
# For guests with memory to be added while they run; the system loads it if it sees the device.
MEMORY = ("virtio_mem",)
# For machines that are reset by their watchdog; whoever starts one says with which parameters.
WATCHDOGS = ("softdog",)
# For machines that are nodes with volume groups (src/ganeti/vcluster/machine_image.py); in a file of their own.
STORAGE = ("dm_mod", "dm_snapshot", "drbd")
# Emulated, each of these steps takes a large part of a second of the processor's time, and a small guest needs none:
# the kernel's tests of its own ciphers, memory set to zero, defences, certificates of modules, tracing.
# `no_timer_check`: where many guests share few processors, emulated timers are late, and a kernel that
# checks them as it boots takes them for broken and gives up.
KERNEL_ARGS = (
    "ro",
    "no_timer_check",
    "nokaslr",
    "mitigations=off",
    "noreplace-smp",
    "init_on_alloc=0",
    "hardened_usercopy=off",
    "lsm=",
    "audit=0",
    "cryptomgr.notests",
    "8250.nr_uarts=1",
    "rcupdate.rcu_expedited=1",
    "initcall_blacklist=load_system_certificate_list",
    "initcall_blacklist=init_encrypted",
    "initcall_blacklist=init_kprobe_trace",
    "initcall_blacklist=debugfs_kprobe_init",
)
SIGNATURE_END = b"~Module signature appended~\n"
DIRECTORIES = ("bin", "sbin", "dev", "proc", "sys", "tmp", "run", "etc", "root", "lib", "disk")


class BuildError(Exception):
    """The guest cannot be built; the text says why and what to do."""


class Archive:
    """A cpio archive in the `newc` form, which the kernel and busybox unpack; owned by root."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, bytes, int, int]] = {}
        for name in DIRECTORIES:
            self._entries[name] = (0o040755, b"", 0, 0)
        self._entries["dev/console"] = (0o020600, b"", 5, 1)
        self._entries["dev/null"] = (0o020666, b"", 1, 3)

    def add(self, name: str, data: bytes, mode: int = 0o644) -> None:
        """A file; its directories come with it."""
        parents = name.split("/")[:-1]
        for depth in range(1, len(parents) + 1):
            self._entries.setdefault("/".join(parents[:depth]), (0o040755, b"", 0, 0))
        self._entries[name] = (0o100000 | mode, data, 0, 0)

    def to_bytes(self) -> bytes:
        """The whole archive; the same entries give the same bytes."""
        out = bytearray()
        for number, (name, entry) in enumerate(sorted(self._entries.items()), start=1):
            _append_entry(out, number, name, entry)
        _append_entry(out, 0, "TRAILER!!!", (0, b"", 0, 0))
        return bytes(out) + bytes(-len(out) % 512)


def _append_entry(
    out: bytearray, number: int, name: str, entry: tuple[int, bytes, int, int]
) -> None:
    mode, data, major, minor = entry
    encoded = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(encoded), 0)
    out += b"070701" + b"".join(b"%08X" % value for value in fields) + encoded
    out += bytes(-len(out) % 4)
    out += data
    out += bytes(-len(out) % 4)


class Kernel:
    """An unpacked Debian kernel package."""

    def __init__(self, root: Path) -> None:
        self.image = next((root / "boot").glob("vmlinuz-*"))
        modules = next(root.glob("lib/modules/*"))
        self._files = {_module_name(path): path for path in modules.rglob("*.ko")}
        builtin = (modules / "modules.builtin").read_text().split()
        self._builtin = {_module_name(Path(line)) for line in builtin}

    def load_order(self, names: Iterable[str]) -> list[Path]:
        """The files of these modules, what they depend on first; modules it has not are left out."""
        ordered: dict[str, Path] = {}
        for name in names:
            self._visit(name, ordered)
        return list(ordered.values())

    def _visit(self, name: str, ordered: dict[str, Path]) -> None:
        path = self._files.get(name)
        if name in ordered or name in self._builtin or path is None:
            return
        found = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
        for needed in filter(None, (found.group(1).decode() if found else "").split(",")):
            self._visit(needed.replace("-", "_"), ordered)
        ordered[name] = path


def _module_name(path: Path) -> str:
    return path.stem.replace("-", "_")


def unsigned(module: bytes) -> bytes:
    """A kernel module without its signature, whose check takes long under emulation."""
    if not module.endswith(SIGNATURE_END):
        return module
    described = module[: -len(SIGNATURE_END)]
    length = int.from_bytes(described[-4:], "big")  # the last field of what describes it, 12 bytes
    return described[: -12 - length]


def run(argv: Sequence[str], cwd: Path) -> str:
    """Standard output of a program that succeeded."""
    done = subprocess.run(argv, cwd=cwd, text=True, capture_output=True, check=False, timeout=600)
    if done.returncode:
        raise BuildError(f"{' '.join(argv)} failed: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


def fetch(package: str, work: Path) -> Path:
    """Download a package and unpack it below `work`."""
    words = ["apt-get", "-o", "APT::Sandbox::User=root", "download", package]
    try:
        run(words, work)
    except BuildError:
        # A machine that never listed its packages, or long ago: the only remedy there is.
        run(["apt-get", "update"], work)
        run(words, work)
    root = work / package
    root.mkdir()
    run(["dpkg-deb", "-x", str(next(work.glob(f"{package}_*.deb"))), str(root)], work)
    return root


def kernel_package(work: Path) -> str:
    """The package with the kernel that the meta package stands for."""
    words = ["apt-cache", "depends", "--no-recommends", "--no-suggests", KERNEL_META_PACKAGE]
    found = re.search(r"Depends: (linux-image-\d\S+)", run(words, work))
    if found is None:
        raise BuildError(f"{KERNEL_META_PACKAGE} is not known; run apt-get update and try again")
    return found.group(1)


def ramdisk(busybox: bytes, kernel: Kernel) -> bytes:
    """What the kernel starts first: it only unpacks what is installed on the disk, and goes there."""
    archive = Archive()
    archive.add("bin/busybox", busybox, 0o755)
    archive.add("init", (HERE / "ramdisk-init").read_bytes(), 0o755)
    for when, names in (
        ("always", MODULES),
        ("other-disks", OTHER_DISKS),
        ("file-systems", FILE_SYSTEMS),
        ("faults", FAULTS),
        ("memory", MEMORY),
        ("watchdogs", WATCHDOGS),
    ):
        modules = kernel.load_order(names)
        for path in modules:
            archive.add(f"lib/modules/{path.name}", unsigned(path.read_bytes()))
        order = "".join(f"{path.name}\n" for path in modules)
        archive.add(f"lib/modules/{when}", order.encode())
    return archive.to_bytes()


def storage_modules(kernel: Kernel) -> bytes:
    """What a machine that is a node with volume groups loads besides; its archive comes behind the ramdisk."""
    archive = Archive()
    have = {path.name for path in kernel.load_order((*MODULES, *FILE_SYSTEMS))}
    modules = [path for path in kernel.load_order(STORAGE) if path.name not in have]
    for path in modules:
        archive.add(f"lib/modules/{path.name}", unsigned(path.read_bytes()))
    archive.add("lib/modules/storage", "".join(f"{path.name}\n" for path in modules).encode())
    return archive.to_bytes()


def installed_system() -> bytes:
    """What the `create` script puts onto an instance's disk; it is unpacked over the ramdisk."""
    archive = Archive()
    archive.add("sbin/init", (HERE / "guest-init").read_bytes(), 0o755)
    archive.add("sbin/guest-agent", (HERE / "guest-agent").read_bytes(), 0o755)
    archive.add("etc/acpi/PWRF/00000080", (HERE / "guest-power-button").read_bytes(), 0o755)
    return archive.to_bytes()


def build(output: Path) -> None:
    """Make everything beside `output` and put it there as a whole."""
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".tiny-guest-") as name:
        work = Path(name)
        downloads = work / "downloads"
        result = work / "result"
        downloads.mkdir()
        result.mkdir()
        busybox = (fetch("busybox-static", downloads) / "bin/busybox").read_bytes()
        kernel = Kernel(fetch(_refreshed_kernel_package(downloads), downloads))
        shutil.copyfile(kernel.image, result / "vmlinuz")
        (result / "initrd").write_bytes(ramdisk(busybox, kernel))
        (result / "storage-modules").write_bytes(storage_modules(kernel))
        (result / "kernel-args").write_text(" ".join(KERNEL_ARGS) + "\n")
        shutil.copytree(HERE / "tiny", result / "tiny")
        (result / "tiny/system.cpio").write_bytes(installed_system())
        (result / "sources").write_text(sources_digest())
        if output.exists():
            output.rename(work / "old")
        result.rename(output)


def _refreshed_kernel_package(work: Path) -> str:
    try:
        return kernel_package(work)
    except BuildError:
        run(["apt-get", "update"], work)
        return kernel_package(work)


def sources_digest() -> str:
    """Changes whenever a file of this directory changes."""
    digest = hashlib.sha256()
    for path in sorted(HERE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(HERE)}\0{path.stat().st_mode & 0o111}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def is_current(output: Path) -> bool:
    """Whether `output` was built from these sources."""
    stamp = output / "sources"
    return stamp.is_file() and stamp.read_text() == sources_digest()


def default_output() -> Path:
    """Below the user's cache, or the checkout's where there is none."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) / "ganeti" if cache else HERE.parent / ".cache") / "tiny-guest"


def main() -> int:
    """Build unless it is there; print where."""
    parser = argparse.ArgumentParser(description="Build the small test guest.")
    parser.add_argument("--output", type=Path, default=default_output(), help="directory to make")
    output: Path = parser.parse_args().output.resolve()
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (output.parent / f".{output.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_current(output):
                print(f"building the test guest in {output}", file=sys.stderr)
                build(output)
    except (BuildError, OSError, subprocess.TimeoutExpired) as err:
        print(f"the test guest cannot be built: {err}", file=sys.stderr)
        return 1
    print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
