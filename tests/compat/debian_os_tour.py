"""Debian's OS definitions, unchanged, in a cluster of real daemons; run in a mount namespace of its own.

`debian_os_tour.py ROOT GUEST WORK`: ROOT has the unpacked packages, GUEST is the small test guest. Each step
is said; the first that goes wrong ends it.
"""

import io
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from ganeti.vcluster.machine_image import archive
from tests.support.debian_packages import environment
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.tiny_guest import said

INIT = r"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for list in always file-systems; do
  while read -r module; do insmod "/lib/modules/$module" 2>/dev/null; done <"/lib/modules/$list"
done
mount -t ext4 -o ro,noload /dev/vda /disk || echo OS-FAILED
exec chroot /disk /bin/busybox sh /boot.sh
"""
BOOT = """echo "OS-UP $(/bin/busybox cat /etc/hostname) $(/bin/busybox grep -c ^UUID= /etc/fstab)"
while :; do /bin/busybox sleep 60; done
"""
DEFAULTS = "SUITE=bookworm\nPARTITION_STYLE=none\nCLEAN_CACHE=\n"
"""What an administrator chooses: no partitions, so that nothing of the device mapper is needed."""
OLD, CLONE, LAST = "deb1.example.com", "deb2.example.com", "deb3.example.com"


def bind(source: Path, place: str) -> None:
    subprocess.run(["mount", "--bind", source, place], check=True)


def furnish(root: Path, work: Path) -> None:
    """Put what the packages have into their places, for this namespace only."""
    etc = work / "etc"
    subprocess.run(["cp", "-a", "/etc", etc], check=True)
    variants = "ganeti/instance-debootstrap"
    shutil.copytree(root / "etc" / variants, etc / variants, dirs_exist_ok=True)
    (etc / "default/ganeti-instance-debootstrap").write_text(DEFAULTS)
    bind(etc, "/etc")
    programs = work / "sbin"
    programs.mkdir()
    libraries = environment(root)["LD_LIBRARY_PATH"]
    for name in ("dump", "restore"):
        text = f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {root}/sbin/{name} "$@"\n'
        (programs / name).write_text(text)
    (programs / "udevadm").write_text("#!/bin/sh\n")  # there is no udev that would have to settle
    for one in programs.iterdir():
        one.chmod(0o755)
    bind(programs, "/usr/local/sbin")
    cache = work / "cache"
    (cache / "ganeti-instance-debootstrap").mkdir(parents=True)
    seed_cache(root, cache / "ganeti-instance-debootstrap/cache-bookworm-amd64.tar")
    bind(cache, "/var/cache")


def seed_cache(root: Path, target: Path) -> None:
    """The definition takes a system that it has made before, if there is one: here a very small one."""
    files = {
        "bin/busybox": (root / "bin/busybox").read_bytes(),
        "bin/passwd": b"#!/bin/busybox sh\n",
        "boot.sh": BOOT.encode(),
    }
    with tarfile.open(target, "w") as tar:
        for name in ("bin", "etc", "etc/network", "proc", "tmp"):
            info = tarfile.TarInfo(f"./{name}")
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        for name, data in files.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))


def boots(cluster: LocalCluster, name: str) -> None:
    cluster.ok("gnt-instance", "startup", name, timeout_s=180)

    def is_up() -> bool:
        log = said(Path(cluster.value("instance", name, "console_log")))
        return re.search(rf"OS-UP {re.escape(name)} 1\b", log) is not None

    wait_until(is_up, f"{name} is up under its name", 180)
    cluster.ok("gnt-instance", "shutdown", "--timeout=0", name, timeout_s=120)
    print(f"{name} booted", flush=True)


def debootstrap(cluster: LocalCluster, initrd: Path, guest: Path) -> None:
    hypervisor = f"kvm:kernel_path={guest}/vmlinuz,initrd_path={initrd},kernel_args=quiet no_timer_check rdinit=/os-init"
    cluster.ok(
        "gnt-instance", "add", "-t", "file", "--disk", "0:size=560m", "-o", "debootstrap+default",
        "-O", "filesystem=ext4", "-B", "memory=96m", "--no-nics", "--no-start", "-n", "node1", "-H", hypervisor, OLD,
        timeout_s=300,
    )  # fmt: skip
    boots(cluster, OLD)
    cluster.ok("gnt-backup", "export", "-n", "node2", OLD, timeout_s=300)
    cluster.ok("gnt-backup", "import", "-n", "node2", "--src-dir", OLD, CLONE, timeout_s=300)
    boots(cluster, CLONE)
    cluster.ok("gnt-instance", "rename", CLONE, LAST, timeout_s=120)
    boots(cluster, LAST)
    wrong = cluster.fails(
        "gnt-instance", "add", "-t", "file", "--disk", "0:size=560m", "-o", "debootstrap+default",
        "-O", "filesystem=xfs", "--no-nics", "-n", "node1", "deb9.example.com",
    )  # fmt: skip
    assert "Invalid value 'xfs'" in wrong
    small = cluster.fails(
        "gnt-instance", "add", "-t", "file", "--disk", "0:size=100m", "-o", "debootstrap+default",
        "--no-nics", "-n", "node1", "deb9.example.com",
    )  # fmt: skip
    assert "Device size is too small" in small
    for name in (OLD, LAST):
        cluster.ok("gnt-instance", "remove", "-f", name, timeout_s=120)
    assert cluster.disks() == set()


def noop(cluster: LocalCluster) -> None:
    cluster.ok(
        "gnt-instance", "add", "-t", "file", "--disk", "0:size=4m", "-o", "noop", "-B", "memory=16m",
        "--no-nics", "--no-start", "-n", "node1", "noop1.example.com",
    )  # fmt: skip
    cluster.ok("gnt-instance", "rename", "noop1.example.com", "noop2.example.com")
    full = "noop2.example.com"
    cluster.ok("gnt-backup", "export", "-n", "node2", full, timeout_s=120)
    cluster.ok(
        "gnt-backup", "import", "-n", "node2", "--src-dir", full, "noop3.example.com", timeout_s=120
    )
    for name in (full, "noop3.example.com"):
        cluster.ok("gnt-instance", "remove", "-f", name, timeout_s=120)
    print("noop works", flush=True)


def main(argv: list[str]) -> None:
    root, guest, work = (Path(word) for word in argv)
    furnish(root, work)
    initrd = work / "initrd"
    initrd.write_bytes((guest / "initrd").read_bytes() + archive({"os-init": INIT.encode()}))
    with local_cluster("--hypervisor", "kvm", "--guest", str(guest), nodes=2) as cluster:
        for node in cluster.cluster.nodes:
            for name in ("noop", "debootstrap"):
                source = root / "usr/share/ganeti/os" / name
                shutil.copytree(source, node.paths.os_search_path[0] / name, symlinks=True)
        noop(cluster)
        debootstrap(cluster, initrd, guest)
    left = subprocess.run(["losetup", "-a"], check=True, capture_output=True, text=True).stdout
    assert str(cluster.directory) not in left, left
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
