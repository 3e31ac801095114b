"""A node that is a small virtual machine of its own: this checkout, its Python and what both need, under emulation.

Its power can be cut (kill -9 of its QEMU): then only what was synced to its disk is left. It says
what it has to say on its serial line, and runs one program.
"""

import compileall
import contextlib
import os
import re
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ganeti.vcluster.machine_image import (
    archive,
    copy_python,
    copy_tree,
    make_disk,
    prepare_tree,
    site_packages,
)
from tests.support.server_kernel import server_kernel
from tests.support.tiny_guest import CHECKOUT, build_tiny_guest

INIT = r"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for list in LISTS; do
  while read -r module; do insmod "/lib/modules/$module" 2>/dev/null; done <"/lib/modules/$list"
done
parameters=$(sed -n 's/.*\bwatchdog=\([^ ]*\).*/\1/p' /proc/cmdline)
while read -r module; do insmod "/lib/modules/$module" $parameters; done </lib/modules/DEVICES
mount -t ext4 -o ro,noload /dev/vda /disk || poweroff -f
state=$(sed -n 's/.*\bstate=\([^ ]*\).*/\1/p' /proc/cmdline)
for where in run var; do mount -t tmpfs none "/disk/$where"; done
mkdir -p "/disk$state"
mount -t ext4 /dev/vdb "/disk$state" || poweroff -f
for where in proc sys dev; do mount --move "/$where" "/disk/$where"; done
mkdir -p /disk/dev/shm
mount -t tmpfs none /disk/dev/shm
ip link set lo up
hostname node1
cd /disk && exec chroot /disk /program
"""


@dataclass(frozen=True)
class Images:
    """What machines are started from; shared by all of them, and never written to."""

    kernel: Path
    initrd: Path
    root: Path
    device: str = ""
    """What QEMU adds to the machine."""


def build(directory: Path, program: str, device: str = "") -> Images:
    """A system that runs this Python program, with everything of the checkout that is installed here.

    It has a watchdog in software, or the kernel of a server with the driver of this device of QEMU.
    A checkout below /var skips the test: in the machine, /var is empty.
    """
    if CHECKOUT.is_relative_to("/var"):
        pytest.skip(f"a machine has an empty /var, and this checkout is {CHECKOUT}")
    guest = build_tiny_guest()
    tree = directory / "root"
    _fill(tree)
    (tree / "program.py").write_text(program)
    paths = os.pathsep.join((str(CHECKOUT / "src"), *site_packages()))
    programs = os.pathsep.join((str(Path(sys.executable).parent), "/usr/bin", "/usr/sbin"))
    environment = {"PYTHONPATH": paths, "PATH": programs, "HOME": "/root", "TMPDIR": "/run"}
    words = ["#!" + sys.executable, "import os", f"os.environ.update({environment!r})"]
    words += [f"os.execv({sys.executable!r}, [{sys.executable!r}, '/program.py'])"]
    (tree / "program").write_text("\n".join(words) + "\n")
    (tree / "program").chmod(0o755)
    root = directory / "root.ext4"
    size = sum(path.lstat().st_size for path in tree.rglob("*")) // 2**20 * 5 // 4 + 64
    make_disk(root, size, tree)
    shutil.rmtree(tree)
    initrd = directory / "initrd"
    kernel, modules, lists = guest / "vmlinuz", b"", ("always file-systems", "watchdogs")
    if device:
        kernel, modules = server_kernel(device)
        lists = ("server", "devices")
    script = INIT.replace("LISTS", lists[0]).replace("DEVICES", lists[1])
    initrd.write_bytes(
        (guest / "initrd").read_bytes() + modules + archive({"node-init": script.encode()})
    )
    return Images(kernel, initrd, root, device)


def _fill(tree: Path) -> None:
    prepare_tree(tree)
    (tree / "etc/hosts").write_text("127.0.0.1 localhost node1\n")
    # What is compiled here need not be compiled at each start of a machine, whose disk keeps nothing.
    compileall.compile_dir(CHECKOUT / "src", quiet=1)
    copy_tree(CHECKOUT / "src", tree, ())
    copy_python(tree, ("mypy*", "ruff*", "pip", "hypothesis*"))


class NodeVm:
    """A running machine; what it says comes line by line."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._buffer = b""
        self.said: list[str] = []

    def line(self, timeout_s: float) -> str:
        """What it says next; '' if it says nothing any more."""
        output = self._process.stdout
        assert output is not None
        end = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left = end - time.monotonic()
                assert left > 0, "the machine says nothing:\n" + "\n".join(self.said[-40:])
                if not selector.select(left):
                    continue
                data = os.read(output.fileno(), 65536)
                if not data:
                    return ""
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        self.said.append(line.decode(errors="replace").strip())
        return self.said[-1]

    def until(self, pattern: str, timeout_s: float) -> str:
        """The next line that matches."""
        end = time.monotonic() + timeout_s
        while True:
            line = self.line(end - time.monotonic())
            if re.search(pattern, line):
                return line
            assert line or self._process.poll() is None, "\n".join(self.said[-40:])

    def resets(self, timeout_s: float) -> list[str]:
        """Wait until the machine resets itself, which ends it; what it had said."""
        while self.line(timeout_s):
            pass
        assert self._process.wait(timeout_s) == 0
        return self.said

    def ends_within(self, seconds: float) -> bool:
        """Whether it resets itself, which ends it, in that time; it may say only little meanwhile."""
        try:
            return self._process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            return False

    def cut_power(self) -> list[str]:
        """End it without notice; what it had still said."""
        self._process.kill()
        self._process.wait()
        rest = self._process.stdout.read() if self._process.stdout else b""
        *lines, _torn = (self._buffer + rest).decode(errors="replace").split("\n")
        self.said += [line.strip() for line in lines]
        return self.said


@contextlib.contextmanager
def running(
    images: Images, disk: Path, state: Path, *, memory_mib: int = 512, words_of_kernel: str = ""
) -> Iterator[NodeVm]:
    """A machine with a disk, mounted at `state`, as long as the block runs or its power is on."""
    words = ["qemu-system-x86_64", "-accel", "tcg,thread=single", "-cpu", "max", "-M", "q35"]
    words += ["-m", str(memory_mib), "-nodefaults", "-display", "none", "-no-reboot"]
    words += ["-kernel", str(images.kernel), "-initrd", str(images.initrd), "-serial", "stdio"]
    words += ["-monitor", "none"]
    words += ["-device", images.device] if images.device else []
    append = f"console=ttyS0 quiet panic=1 no_timer_check random.trust_cpu=on rdinit=/node-init state={state} {words_of_kernel}"
    words += ["-append", append]
    words += ["-drive", f"file={images.root},format=raw,if=virtio,readonly=on,cache=unsafe"]
    words += ["-drive", f"file={disk},format=raw,if=virtio,cache=writeback"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        try:
            yield NodeVm(process)
        finally:
            if process.poll() is None:
                process.kill()
