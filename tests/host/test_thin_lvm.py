"""Thin volumes of real LVM over a real device-mapper: the storage driver here, LVM in a small kernel of its own."""

import asyncio
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

import pytest

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.base.process import CLEAN_ENVIRONMENT, CommandFailed, Completed
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.storage.lvm.groups import VolumeGroups
from ganeti.storage.lvm.pools import ThinPools
from ganeti.storage.lvm.tools import Lvm
from ganeti.storage.lvm.volume import LogicalVolume
from ganeti.vcluster.machine_image import archive
from tests.support.host_lvm import MIB, unpacked_lvm
from tests.support.patience import patience
from tests.support.server_kernel import server_kernel
from tests.support.tiny_guest import build_tiny_guest

pytestmark = [pytest.mark.host, pytest.mark.soak, pytest.mark.timeout(300)]

UUID = "11111111-0000-4000-8000-000000000000"
NAME = f"{UUID}.disk0"
DEVICE = f"/dev/xenvg/{NAME}"
POOL = StorageUnit(kind="lvm-thin", key="xenvg/thin")
LOADER = "ld-linux-x86-64.so.2"
CONFIG = (
    "devices { use_devicesfile=0 obtain_device_list_from_udev=0 }"
    " activation { udev_sync=0 udev_rules=0 monitoring=0 verify_udev_operations=0 }"
    " backup { backup=0 archive=0 }"
    ' global { event_activation=0 thin_check_executable="" thin_repair_executable="" }'
)
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
export LD_LIBRARY_PATH=/lib
mkdir -p /run/lock/lvm /run/lvm /etc/lvm /tmp
for list in server devices; do
  while read -r module; do insmod "/lib/modules/$module"; done <"/lib/modules/$list"
done
exec </dev/ttyS0 >/dev/ttyS0 2>/dev/null
stty raw -echo
echo READY
while read -r line; do
  sh -c "$line" 2>/tmp/errors
  status=$?
  printf '\\nENDED %s\\n' "$status"
  cat /tmp/errors
  echo COMPLETE
done
"""


@dataclass
class Kernel:
    """A machine that runs one command after the other."""

    process: "Popen[bytes]"

    def line(self) -> bytes:
        assert self.process.stdout is not None
        found = self.process.stdout.readline()
        assert found, "the machine has ended"
        return found

    def shell(self, command: str) -> tuple[int, bytes, bytes]:
        """Return status, output and errors."""
        assert self.process.stdin is not None
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()
        output, errors = b"", b""
        while not (line := self.line()).startswith(b"ENDED "):
            output += line
        status = int(line.split()[1])
        while (line := self.line()) != b"COMPLETE\n":
            errors += line
        return status, output, errors

    async def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Completed:
        words = [f"/lib/{LOADER}", "/bin/lvm", argv[0], "--config", CONFIG, *argv[1:]]
        async with asyncio.timeout(timeout_s * patience()):
            status, output, errors = await asyncio.to_thread(self.shell, shlex.join(words))
        done = Completed(tuple(argv), status, output, errors)
        if status and check:
            raise CommandFailed(done, errors.decode())
        return done

    def sh(self, command: str) -> str:
        status, output, errors = self.shell(command)
        assert status == 0, errors
        return output.decode().strip()


def programs() -> dict[str, bytes]:
    """LVM, with what it needs."""
    root = unpacked_lvm()
    own = ":".join(f"{root}/{part}/x86_64-linux-gnu" for part in ("lib", "usr/lib"))
    program = root / "sbin/lvm"
    told = subprocess.run(
        ["ldd", str(program)],
        env={**CLEAN_ENVIRONMENT, "LD_LIBRARY_PATH": own},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    words = [word for line in told.stdout.splitlines() for word in line.split()]
    paths = [Path(word) for word in words if word.startswith("/")]
    return {"bin/lvm": program.read_bytes()} | {
        f"lib/{one.name}": one.read_bytes() for one in paths
    }


@pytest.fixture
def kernel(disk_path: Path) -> Iterator[Kernel]:
    guest = build_tiny_guest()
    image, modules = server_kernel("dm_thin_pool", "dm_snapshot")
    initrd, disk = disk_path / "initrd", disk_path / "disk"
    own = archive({**programs(), "node-init": INIT.encode()})
    initrd.write_bytes((guest / "initrd").read_bytes() + modules + own)
    disk.write_bytes(b"another tenant\n\n" * (96 * MIB // 16))
    words = ["qemu-system-x86_64", "-accel", "tcg", "-m", "384", "-nodefaults", "-display", "none"]
    words += ["-no-reboot", "-serial", "stdio", "-kernel", str(image), "-initrd", str(initrd)]
    words += ["-append", "quiet rdinit=/node-init", "-drive", f"file={disk},format=raw,if=virtio"]
    with Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        one = Kernel(process)
        try:
            while not one.line().endswith(b"READY\n"):
                pass
            yield one
        finally:
            process.kill()


async def new_pool(kernel: Kernel) -> Lvm:
    lvm = Lvm(run=kernel)
    await lvm.act(["pvcreate", "--yes", "/dev/vda"])
    await lvm.act(["vgcreate", "xenvg", "/dev/vda"])
    words = ["lvcreate", "--yes", "--type", "thin-pool", "--size", "24m", "--zero", "y"]
    await lvm.act([*words, "--name", "thin", "xenvg"])
    return lvm


@pytest.mark.requirement("G11", "G12", "F26", "S2", "S3")
async def test_a_thin_volume_lives_through_everything_and_leaves_nothing(kernel: Kernel) -> None:
    lvm = await new_pool(kernel)
    spec = DiskSpec(
        uuid=UUID, index=0, size=16, template="plain", logical_id=("xenvg", NAME),
        params={"thin_pool": "thin"},
    )  # fmt: skip
    disk, pools = LogicalVolume(Paths(), spec, lvm=lvm), ThinPools(lvm)
    await disk.create(16)
    await disk.create(16)
    assert kernel.sh(f"tr -d '\\0' <{DEVICE} | wc -c") == "0", "a new disk has old data"
    kernel.sh(f"printf before | dd of={DEVICE} conv=notrunc; sync")
    await disk.make("first")
    kernel.sh(f"printf behind | dd of={DEVICE} conv=notrunc; sync")
    assert kernel.sh("head -c 6 /dev/xenvg/first") == "before"
    assert kernel.sh(f"head -c 6 {DEVICE}") == "behind"

    space = await pools.space(Paths(), POOL)
    assert (space.total, space.free, space.promised) == (24, 0, 32)
    assert {one.name for one in await pools.disks(Paths(), POOL)} == {NAME, "first"}
    assert await VolumeGroups(lvm).disks(Paths(), StorageUnit(kind="lvm-vg", key="xenvg")) == []

    await disk.grow(64)
    assert await disk.size_mib() == 64
    assert kernel.sh(f"dd if={DEVICE} bs=1M skip=16 | tr -d '\\0' | wc -c") == "0"
    assert await pools.problems(Paths()) == []
    kernel.sh(f"dd if=/dev/urandom of={DEVICE} bs=1M seek=16 count=20 conv=notrunc; sync")
    (problem,) = await pools.problems(Paths())
    assert "of its data, and when it is full its guests stop" in problem

    await lvm.act(["vgchange", "--activate", "n", "xenvg"])  # as after a boot
    assert await disk.size_mib() == 64
    await disk.open(DiskRole.PRIMARY)
    assert kernel.sh(f"head -c 6 {DEVICE}") == "behind"

    await disk.drop("first", unsure=False)
    await disk.remove()
    assert await disk.size_mib() is None
    assert await pools.disks(Paths(), POOL) == []
    assert kernel.shell(f"test -e {DEVICE}")[0] == 1
    await lvm.act(["lvchange", "--zero", "n", "xenvg/thin"])
    with pytest.raises(StorageError, match="lvchange --zero y xenvg/thin"):
        await disk.create(16)
