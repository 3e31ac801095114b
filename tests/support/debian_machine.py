"""Virtual machines with a whole Debian system, as an administrator has them before Ganeti is installed; under emulation.

The system is made once, by Debian's packages; each machine has a layer of its own above it. Two machines share a
network cable. Commands run as root, by a service of the system that listens on a virtual serial port.
"""

import base64
import contextlib
import fcntl
import hashlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ganeti.vcluster.machines import CPU
from tests.support import debian_tree
from tests.support.debian_packages import CACHE
from tests.support.debian_tree import SLOW, build, install_debian
from tests.support.patience import patience

PACKAGES = (
    *("apt", "ca-certificates", "chrony", "lvm2", "openssl", "python3", "socat", "wget"),
    *("qemu-system-x86", "qemu-utils", "iputils-arping", "logrotate", "passwd", "adduser"),
)
"""What a tutorial may ask apt for: these machines reach no archive of packages."""
ROOT_MIB, MEMORY_MIB = 6144, 1280
BOOT_S, CALL_S, AGAIN_S = 600, 600, 5
"""On a quiet machine a boot takes a minute and a half."""
_AGENT = r"""#!/bin/bash
# Runs what the owner of the machine sends, a script in base 64 a line, and answers with its status and its output.
value() { sed -n "s/.*\b$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
hostname "$(value name)"
hostname >/etc/hostname
echo "127.0.1.1 $(value name)" >>/etc/hosts
ip address add "$(value address)/24" dev eth0
ip link set eth0 up
exec 3<>/dev/virtio-ports/tests.agent
while :; do
  while read -r number script <&3; do
    base64 -d <<<"$script" >/run/script
    HOME=/root setsid bash -l /run/script >/run/said 2>&1 </dev/null 3<&-
    echo "$number $? $(base64 -w 0 /run/said)" >&3
  done
  sleep 0.1 # no client is connected
done
"""
_UNIT = """[Unit]
Requires=dev-virtio\\x2dports-tests.agent.device
After=dev-virtio\\x2dports-tests.agent.device
[Service]
ExecStart=/usr/local/sbin/agent
KillMode=process
[Install]
WantedBy=multi-user.target
"""
_SETTINGS = {
    "etc/fstab": "/dev/vda / ext4 rw 0 1\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/systemd/system.conf.d/slow.conf": SLOW,
    "etc/systemd/system/agent.service": _UNIT,
    "usr/local/sbin/agent": _AGENT,
}


@dataclass(frozen=True)
class DebianImage:
    """What the machines start from."""

    kernel: Path
    initrd: Path
    root: Path


def debian_image() -> DebianImage:
    """The system; skips the test where it cannot be made."""
    made_of = f"{debian_tree.BASE} {PACKAGES} {_SETTINGS} {ROOT_MIB}"
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    directory = CACHE / f"machine-{digest}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "machine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            for old in CACHE.glob("machine-*"):
                shutil.rmtree(old)
            with tempfile.TemporaryDirectory(dir=CACHE, prefix=".machine-") as name:
                _build(Path(name)).rename(directory)
    return DebianImage(directory / "kernel", directory / "initrd", directory / "root")


def _build(work: Path) -> Path:
    tree, made = work / "tree", work / "made"
    made.mkdir()
    install_debian(tree, PACKAGES, _SETTINGS)
    (tree / "usr/local/sbin/agent").chmod(0o755)
    wanted = tree / "etc/systemd/system/multi-user.target.wants/agent.service"
    wanted.symlink_to("/etc/systemd/system/agent.service")
    for source, name in (("vmlinuz", "kernel"), ("initrd.img", "initrd")):
        shutil.copy((tree / source).resolve(), made / name)
    disk = work / "disk"
    build("mke2fs", "-q", "-t", "ext4", "-d", tree, disk, f"{ROOT_MIB}M")
    build("qemu-img", "convert", "-f", "raw", "-O", "qcow2", disk, made / "root")
    return made


class DebianMachine:
    """A machine that is on; runs commands one at a time."""

    def __init__(self, directory: Path, name: str, address: str, cable: str) -> None:
        self.name, self.address = name, address
        self._directory, self._cable = directory, cable
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._buffer, self._number = b"", 0

    def start(self, image: DebianImage, files: Path) -> None:
        """Switch it on, with an empty layer above the system; it can read the disk `files` below /mnt."""
        self._directory.mkdir()
        disk = self._directory / "disk"
        build("qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", image.root, disk)
        append = (
            "root=/dev/vda rw console=ttyS0 net.ifnames=0 panic=1 no_timer_check mitigations=off"
            f" random.trust_cpu=on name={self.name} address={self.address}"
        )
        mac = f"52:54:00:00:00:{int(self.address.rpartition('.')[2]):02x}"
        # Without emulated virtualisation: under load only one of two machines may find that it works.
        words = [
            *(
                "qemu-system-x86_64",
                "-accel",
                "tcg,tb-size=256",
                "-cpu",
                f"{CPU},-svm",
                "-smp",
                "2",
            ),
            *("-M", "q35", "-m", str(MEMORY_MIB), "-nodefaults", "-display", "none"),
            *("-monitor", "none", "-serial", f"file:{self._directory / 'console'}"),
            *("-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", append),
            *("-drive", f"file={disk},format=qcow2,if=virtio,cache=unsafe,discard=unmap"),
            *("-drive", f"file={files},format=raw,if=virtio,readonly=on,cache=unsafe"),
            *("-netdev", f"stream,id=n0,{self._cable}"),
            *("-device", f"virtio-net-pci,netdev=n0,mac={mac},romfile="),
            *("-device", "virtio-serial-pci", "-device", "virtio-rng-pci"),
            *("-chardev", f"socket,id=agent,path={self._directory / 'agent'},server=on,wait=off"),
            *("-device", "virtserialport,chardev=agent,name=tests.agent"),
        ]
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL)

    def wait_up(self) -> None:
        """Wait until it runs commands."""
        end = time.monotonic() + BOOT_S * patience()
        while True:
            with contextlib.suppress(OSError):
                self._channel = socket.socket(socket.AF_UNIX)
                self._channel.connect(str(self._directory / "agent"))
                break
            assert time.monotonic() < end, f"{self.name} does not start"
            time.sleep(0.05)
        while True:
            self._send("true", AGAIN_S)  # nothing keeps what is sent before the agent listens
            with contextlib.suppress(TimeoutError):
                self._line()
                return
            assert time.monotonic() < end, f"{self.name} does not boot:\n{self.console()}"

    def console(self) -> str:
        """The end of what the machine says on its console."""
        text = (self._directory / "console").read_text(errors="replace")
        return "\n".join(text.splitlines()[-30:])

    def call(self, script: str, limit_s: float = CALL_S) -> tuple[int, str]:
        """Run a script; return its status and its output."""
        self._send(script, limit_s)
        while True:
            words = self._line().split()
            if words[:1] == [str(self._number)]:
                return int(words[1]), _decoded(words[2]) if words[2:] else ""

    def ok(self, script: str, limit_s: float = CALL_S) -> str:
        """Run a script that must succeed; return its output."""
        status, said = self.call(script, limit_s)
        assert status == 0, f"{self.name}: {script}\nended with {status}:\n{said}"
        return said

    def _send(self, script: str, limit_s: float) -> None:
        assert self._channel is not None
        self._number += 1
        self._channel.settimeout(limit_s * patience())
        self._channel.sendall(b"%d %s\n" % (self._number, _encoded(script)))

    def _line(self) -> str:
        assert self._channel is not None
        while b"\n" not in self._buffer:
            data = self._channel.recv(1 << 16)
            assert data, f"{self.name} was switched off:\n{self.console()}"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")

    def end(self) -> None:
        """Switch it off without notice."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


def _encoded(data: str | bytes) -> bytes:
    return base64.b64encode(data.encode() if isinstance(data, str) else data)


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode(errors="replace")


@contextlib.contextmanager
def debian_machines(
    directory: Path, names: dict[str, str], files: Path
) -> Iterator[list[DebianMachine]]:
    """Two machines with these names and addresses, which are up; nothing of them is left.

    They find what is below the directory `files` in /mnt.
    """
    image, disk = debian_image(), directory / "files.disk"
    mib = sum(one.stat().st_size for one in files.iterdir()) // 2**20 + 32
    build("mke2fs", "-q", "-t", "ext4", "-d", files, disk, f"{mib}M")
    cable = f"addr.type=unix,addr.path={directory / 'cable'}"
    ends = (f"server=on,{cable}", f"server=off,{cable}")
    machines = [
        DebianMachine(directory / name, name, address, end)
        for (name, address), end in zip(names.items(), ends, strict=True)
    ]
    try:
        for one in machines:
            one.start(image, disk)
            while not (directory / "cable").exists():
                time.sleep(0.05)
        for one in machines:
            one.wait_up()
            one.ok("mount -o ro /dev/vdb /mnt")
        yield machines
    finally:
        for one in machines:
            one.end()
