"""The system of a virtual machine that is a node with volume groups and DRBD: checkout, Python, Debian's tools.

Nothing is installed on this machine: packages are downloaded and unpacked. The base is cached; the project's own code
is a separate disk, created again for each cluster.
"""

import compileall
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import ganeti
from ganeti.base.errors import ErrorCode, ExecError, PrereqError

PACKAGES = ("lvm2", "drbd-utils")
"""Packages that a node with volumes needs, without their libraries."""
FROM_HOST = ("libc6", "libgcc-s1", "libcrypt1", "libc6-dev")
"""Packages whose content the Python of this machine provides."""
WITH_LIBRARIES = re.compile(r"lib[a-z0-9]|dmsetup$|dmeventd$")
NOT_NEEDED = ("test", "tests", "idlelib", "tkinter", "ensurepip", "lib2to3", "site-packages", "*.a")
NOT_ON_NODES = (
    *("mypy*", "*__mypyc*", "ruff*", "pip", "hypothesis*", "numpy*", "grimp*", "importlinter"),
    *("pygments", "rich", "markdown_it", "mdurl"),
    *("setuptools", "_pytest", "pytest*", "coverage", "xdist", "ast_serialize", "librt", "include"),
)  # fmt: skip
HOST_PROGRAMS = ("sh", "ip")
QEMU_PROGRAMS = ("qemu-system-x86_64", "setpriv")
QEMU_FILES = (
    "/usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so",
    "/usr/share/qemu/kvmvapic.bin",
    "/usr/share/seabios/bios-256k.bin",
    "/usr/share/seabios/bios.bin",
)
"""What QEMU of this host needs for a guest that boots from its disk; machines with the hypervisor kvm start such guests."""
MERGED = ("bin", "sbin", "lib", "lib64")
"""Directories that are links into /usr on Debian."""
DIRECTORIES = (
    *("usr", "tmp", "run", "proc", "sys", "dev", "root", "etc", "var", "src", "srv"),
    "state",
)
LVM_SETTINGS = """activation { udev_sync=0 udev_rules=0 monitoring=0 }
devices { use_devicesfile=0 obtain_device_list_from_udev=0 external_device_info_source="none" }
global { event_activation=0 }
backup { backup=0 archive=0 }
"""
_INIT = r"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for list in always file-systems storage; do
  while read -r module; do
    case $module in
    drbd.ko) insmod "/lib/modules/$module" usermode_helper=/bin/true ;;
    *) insmod "/lib/modules/$module" 2>/dev/null ;;
    esac
  done <"/lib/modules/$list"
done
value() { sed -n "s/.*\b$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
mount -t ext4 -o ro,noload /dev/vda /disk || poweroff -f
mount -t ext4 -o ro,noload /dev/vdb /disk/src || poweroff -f
mount -t ext4 /dev/vdc /disk/state || poweroff -f
mount -t tmpfs none /disk/run
mount -t tmpfs none /disk/tmp
mkdir -p /disk/run/lock /disk/state/etc /disk/state/var/lib /disk/state/var/log /disk/state/srv /disk/run/bin
cp -a /disk/etc/. /disk/state/etc/
mount -o bind /disk/state/etc /disk/etc
mount -o bind /disk/state/var /disk/var
mount -o bind /disk/state/srv /disk/srv
ln -sfn /run /disk/var/run
ln -sfn /run/lock /disk/var/lock
address=$(value address) name=$(value hostname)
cp /bin/busybox /disk/run/bin/busybox
chroot /disk /run/bin/busybox --install -s /run/bin
for where in proc sys dev; do mount --move "/$where" "/disk/$where"; done
mkdir -p /disk/dev/shm /disk/dev/pts
mount -t tmpfs none /disk/dev/shm
mount -t devpts none /disk/dev/pts
# A checkout below /tmp, /var or /run is hidden by what is mounted there.
while read -r where; do
  [ -e "/disk$where" ] && continue
  mkdir -p /image "/disk$where"
  [ -e /image/usr ] || mount -t ext4 -o ro,noload /disk/dev/vda /image
  mount -o bind "/image$where" "/disk$where"
done </disk/src/python-directories
ip link set lo up
ip addr add "$address/24" dev eth0
ip link set eth0 up
hostname "$name"
echo "127.0.0.1 localhost" >/disk/etc/hosts
echo "export GANETI_HOSTNAME=$name GANETI_ADDRESS=$address" >/disk/run/node-environment
exec chroot /disk /src/agent
"""
_AGENT = r"""#!/run/bin/sh
# Runs what the machine's owner sends, a script in base 64 a line, and answers with its status and what it said.
. /src/environment
. /run/node-environment
port=
for one in /sys/class/virtio-ports/*; do
  [ "$(cat "$one/name")" = ganeti.agent ] && port=/dev/${one##*/}
done
vgchange -q -a y >/dev/null 2>&1
[ ! -e /var/lib/ganeti/node.pem ] || ganeti-noded >/var/log/noded.said 2>&1 </dev/null &
exec 3<>"$port"
while :; do
  while read -r number script <&3; do
    printf %s "$script" | base64 -d >/run/script
    sh /run/script >/run/said 2>&1 </dev/null 3<&-
    echo "$number $? $(base64 -w 0 /run/said)" >&3
  done
  sleep 0.1 # no client is connected
done
"""


@dataclass(frozen=True)
class MachineImage:
    """The read-only image from which all machines are started."""

    kernel: Path
    initrd: Path
    base: Path
    """The system without the project's code."""
    code: Path
    """The project's code, for one cluster."""


def build_image(guest: Path, directory: Path) -> MachineImage:
    """Return the image for the machines of a cluster in `directory`; `guest` is the output of guest/build.py.

    The base comes from the cache if it matches. ExecError, PrereqError.
    """
    modules = guest / "storage-modules"
    if not modules.exists():
        raise PrereqError(
            f"{guest} has no kernel modules for volumes; build it again with guest/build.py",
            ErrorCode.ENVIRONMENT,
        )
    cache = guest.parent / "machine-image"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        base = cache / f"base-{_digest()}.ext4"
        if not base.exists():
            for old in cache.glob("base-*"):
                old.unlink()
            _build_base(base)
    initrd = directory / "machine-initrd"
    own = archive({"node-init": _INIT.encode()})
    initrd.write_bytes((guest / "initrd").read_bytes() + modules.read_bytes() + own)
    code = directory / "machine-code.ext4"
    with tempfile.TemporaryDirectory(dir=directory) as name:
        source = Path(ganeti.__file__).resolve().parent
        shutil.copytree(source, Path(name) / "ganeti", symlinks=True)
        # A machine cannot store compiled files, and under emulation compiling takes as long as the rest of a start.
        compileall.compile_dir(name, quiet=1, stripdir=name, prependdir="/src")
        _add_agent(Path(name))
        # Running machines keep their image.
        made = make_disk(code.with_suffix(".new"), _size_mib(Path(name)), Path(name))
        made.rename(code)
    return MachineImage(guest / "vmlinuz", initrd, base, code)


def _digest() -> str:
    """Return a digest that changes with every part of the base."""
    made_of = (
        PACKAGES,
        FROM_HOST,
        NOT_NEEDED,
        NOT_ON_NODES,
        HOST_PROGRAMS,
        QEMU_PROGRAMS,
        QEMU_FILES,
        DIRECTORIES,
        LVM_SETTINGS,
    )
    digest = hashlib.sha256(f"{made_of} {sys.version} {sys.executable}".encode())
    for site in site_packages():
        digest.update("\n".join(sorted(path.name for path in Path(site).iterdir())).encode())
    return digest.hexdigest()[:16]


def _build_base(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".base-") as name:
        work = Path(name)
        (work / "downloads").mkdir()
        tree = work / "tree"
        prepare_tree(tree)
        _add_packages(tree, work / "downloads")
        copy_python(tree, NOT_ON_NODES)
        _add_qemu(tree)
        _add_settings(tree)
        made = work / "base.ext4"
        make_disk(made, _size_mib(tree), tree)
        made.rename(target)


def _size_mib(tree: Path) -> int:
    files = [path.lstat().st_size for path in tree.rglob("*")]
    return sum((size + 4095) // 4096 * 4096 + 512 for size in files) // 2**20 * 6 // 5 + 16


def prepare_tree(tree: Path) -> None:
    """Make an empty system."""
    for name in DIRECTORIES:
        (tree / name).mkdir(parents=True)
    for name in MERGED:
        (tree / "usr" / name).mkdir()
        (tree / name).symlink_to(f"usr/{name}")
    (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tree / "etc/group").write_text("root:x:0:\n")
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n")


def copy_python(tree: Path, skipped: Sequence[str]) -> None:
    """Copy this Python, its installed packages, the project's commands, and their libraries."""
    copy_tree(Path(sysconfig.get_path("stdlib")), tree, NOT_NEEDED)
    for site in site_packages():
        copy_tree(Path(site), tree, skipped)
    programs_here = Path(sys.executable).parent
    commands = [*programs_here.glob("python*"), *programs_here.glob("g[an]*-*")]
    for file in (Path(sys.executable).resolve(), programs_here.parent / "pyvenv.cfg", *commands):
        if file.exists():
            copy_file(file, tree)
    host = [Path(found) for name in HOST_PROGRAMS if (found := shutil.which(name))]
    for program in host:
        copy_file(program, tree)
    _add_libraries([Path(sys.executable).resolve(), *host, *tree.rglob("*.so")], tree)


def _add_qemu(tree: Path) -> None:
    """Copy QEMU of this host, with its libraries and its firmware."""
    programs = [Path(found) for name in QEMU_PROGRAMS if (found := shutil.which(name))]
    for file in (*programs, *(Path(name) for name in QEMU_FILES if Path(name).exists())):
        copy_file(file, tree)
    _add_libraries(programs, tree)


def _add_libraries(files: list[Path], tree: Path) -> None:
    for library in sorted(_libraries(files)):
        copy_file(Path(library), tree)


def site_packages() -> list[str]:
    """Return the package directory of this Python."""
    return [path for path in sys.path if path.endswith("site-packages")]


def _add_settings(tree: Path) -> None:
    """Write the settings of a node's administrator, and the path of a program that DRBD may not need."""
    (tree / "usr/bin/true").symlink_to("/run/bin/true")
    (tree / "etc/lvm").mkdir(exist_ok=True)
    (tree / "etc/lvm/lvmlocal.conf").write_text(LVM_SETTINGS)
    if not (tree / "etc/lvm/lvm.conf").exists():
        (tree / "etc/lvm/lvm.conf").write_text("")


def _add_agent(tree: Path) -> None:
    programs = os.pathsep.join(
        (str(Path(sys.executable).parent), "/usr/sbin", "/usr/bin", "/run/bin")
    )
    paths = os.pathsep.join(("/src", *site_packages()))
    environment = {"PATH": programs, "PYTHONPATH": paths, "HOME": "/root", "LC_ALL": "C.UTF-8"}
    words = "".join(f"export {name}='{value}'\n" for name, value in environment.items())
    (tree / "environment").write_text(words)
    (tree / "python-directories").write_text(
        f"{sys.base_prefix}\n{Path(sys.executable).parents[1]}\n"
    )
    (tree / "agent").write_text(_AGENT)
    (tree / "agent").chmod(0o755)


def _add_packages(tree: Path, work: Path) -> None:
    names = _closure(PACKAGES)
    words = ["apt-get", "-o", "APT::Sandbox::User=root", "download", *names]
    if subprocess.run(words, cwd=work, capture_output=True, check=False, timeout=600).returncode:
        _run(["apt-get", "update"], work)
        _run(words, work)
    for package in sorted(work.glob("*.deb")):
        unpacked = work / package.stem
        _run(["dpkg-deb", "-x", str(package), str(unpacked)], work)
        for path in unpacked.rglob("*"):
            place = path.relative_to(unpacked)
            if not path.is_dir() and place.parts[:2] not in _DOCUMENTS:
                _put(path, tree / place)


_DOCUMENTS = (("usr", "share"),)


def _put(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink() or target.exists():
        target.unlink()
    shutil.copy2(path, target, follow_symlinks=False)


def _closure(names: Iterable[str]) -> list[str]:
    """Return these packages, and all libraries that they need."""
    found: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found or name in FROM_HOST:
            continue
        found[name] = None
        words = ["apt-cache", "depends", "--no-recommends", "--no-suggests", "--important", name]
        said = _run(words, Path("/"))
        needed = re.findall(r"^ +(?:Pre)?Depends: ([a-z0-9.+-]+)$", said, re.MULTILINE)
        waiting += [one for one in needed if WITH_LIBRARIES.match(one)]
    return sorted(found)


def _run(argv: Sequence[str], cwd: Path) -> str:
    try:
        done = subprocess.run(
            argv, cwd=cwd, text=True, capture_output=True, check=False, timeout=600
        )
    except OSError as err:
        raise ExecError(f"{argv[0]} cannot be run: {err.strerror}") from err
    if done.returncode:
        raise ExecError(
            f"{' '.join(argv[:3])} failed: {(done.stderr or done.stdout).strip()[-600:]}"
        )
    return done.stdout


def make_disk(path: Path, mib: int, content: Path | None = None) -> Path:
    """Make a file system in a file; without checksums, for which the small kernel has no module."""
    with path.open("wb") as file:
        file.truncate(mib * 2**20)
    words = ["mke2fs", "-q", "-t", "ext4", "-O", "^metadata_csum,^64bit"]
    words += ["-d", str(content)] if content else []
    _run([*words, str(path)], path.parent)
    return path


def copy_tree(place: Path, tree: Path, skipped: Sequence[str]) -> None:
    """Copy a directory of this machine to the same path."""
    target = tree / place.relative_to("/")
    ignore = shutil.ignore_patterns(*skipped)
    shutil.copytree(place, target, ignore=ignore, dirs_exist_ok=True, symlinks=True)


def copy_file(path: Path, tree: Path) -> None:
    """Copy a file of this machine to the same path, unless it exists."""
    target = tree / path.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy2(path, target)


def copied_program(program: Path, target: Path, libraries: Path) -> None:
    """Copy a program of this machine, and its libraries to a directory of their own."""
    libraries.mkdir(parents=True, exist_ok=True)
    shutil.copy2(program, target)
    for library in sorted(_libraries([program])):
        shutil.copy2(library, libraries)


def _libraries(files: list[Path]) -> set[str]:
    done = subprocess.run(
        ["ldd", *map(str, files)], check=False, capture_output=True, text=True, timeout=120
    )
    return set(re.findall(r"(?:=> |\t)(/\S+) \(0x", done.stdout))


def archive(files: dict[str, bytes]) -> bytes:
    """Return a cpio archive in the form that the kernel unpacks; later entries replace earlier ones."""
    out = bytearray()
    for number, (name, data) in enumerate([*files.items(), ("TRAILER!!!", b"")], start=900001):
        mode = 0o100755 if data else 0
        encoded = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
        out += b"070701" + b"".join(b"%08X" % value for value in fields) + encoded
        out += bytes(-len(out) % 4) + data
        out += bytes(-len(out) % 4)
    return bytes(out) + bytes(-len(out) % 512)
