"""A guest of a real QEMU moves between real LVM, real DRBD and a file, in one machine without a cluster."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ganeti.base.errors import ExecError
from ganeti.vcluster.machine_image import MachineImage, build_image, copied_program, make_disk
from ganeti.vcluster.machines import Machine, MachineAgent
from tests.support.tiny_guest import build_tiny_guest

pytestmark = [
    pytest.mark.host,
    pytest.mark.soak,
    pytest.mark.timeout(3600),
    pytest.mark.requirement("G1", "G11", "F23"),
    pytest.mark.skipif(shutil.which("mke2fs") is None, reason="mke2fs is not installed"),
]

DISK_MIB = 192
UNDER_LOAD_S = 1800
MEMORY_MIB = 640
FIRMWARE = ("/usr/share/seabios", "/usr/share/qemu")
MODULES = "accel-tcg-x86_64.so"
_QEMU = """
mkdir -p /run/qemu && mount -t ext4 -o ro,noload /dev/vde /run/qemu
cat >/run/bin/guest-qemu <<'END'
#!/run/bin/sh
export LD_LIBRARY_PATH=/run/qemu/lib QEMU_MODULE_DIR=/run/qemu/modules
exec /run/qemu/qemu -L /run/qemu/firmware "$@"
END
cat >/run/bin/guest-setpriv <<'END'
#!/run/bin/sh
export LD_LIBRARY_PATH=/run/qemu/lib
exec /run/qemu/setpriv "$@"
END
chmod +x /run/bin/guest-qemu /run/bin/guest-setpriv
pvcreate -q -y -ff /dev/vdd && vgcreate -q xenvg /dev/vdd
mkdir -p /etc/ganeti /run/files && echo /run/files >/etc/ganeti/file-storage-paths
"""
_MOVES = """
import asyncio
from pathlib import Path

from msgspec.structs import replace

from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.hypervisor.kvm.pci_slots import device_id
from ganeti.hypervisor.kvm.processes import HostProcesses
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.model.disk_templates import DRBD, PLAIN
from ganeti.model.hypervisor_params import hypervisor_defaults
from ganeti.model.instance_spec import DiskPeer, DiskSpec, InstanceSpec
from ganeti.model.names import DiskRole
from ganeti.storage.assemble import device



class Processes(HostProcesses):
    def spawn(self, argv, *others, **more):  # the image of the machine has no setpriv
        return super().spawn(["/run/bin/guest-setpriv", *argv[1:]], *others, **more)


MIB, SIZE = 1 << 20, 16
UUID = "11111111-0000-4000-8000-000000000000"
PATHS = Paths()


def plain(number, uuid=UUID, size=SIZE):
    name = ("xenvg", f"{number}{UUID[1:]}.disk0")
    params = {**PLAIN.params, "vg": "xenvg"}
    return DiskSpec(uuid=uuid, index=0, size=size, template="plain", logical_id=name, params=params, wipe=False)


def mirrored():
    peer = DiskPeer(name="node2", address="192.0.2.2", part=(0,), offline=True)
    below = tuple(plain(number, f"{number}{UUID[1:]}", size) for number, size in ((7, SIZE), (8, 4)))
    return DiskSpec(
        uuid=UUID, index=0, size=SIZE, template="drbd", logical_id=(11000,), part=(0,), peers=(peer,),
        address="192.0.2.1", secret="secret", children=below, params=DRBD.params,
    )


async def main():
    driver = KvmHypervisor(PATHS, run, processes=Processes())
    old = plain(2)
    first = device(PATHS, "web1", old)
    await first.create(SIZE)
    await first.open(DiskRole.PRIMARY)
    hvparams = {**hypervisor_defaults("kvm"), "kvm_path": "/run/bin/guest-qemu", "kernel_path": "", "initrd_path": ""}
    instance = InstanceSpec(
        name="web1", uuid=UUID, hypervisor="kvm", os="none", memory=48, vcpus=1, hvparams=hvparams,
        disk_template="plain", disks=(old,),
    )
    await driver.start(instance, [first.path])
    ask = Monitor(GuestFiles.of(PATHS, UUID).people_monitor)
    written = bytearray(SIZE * MIB)

    async def write(block, value):
        words = f"write -P {value} {block * MIB} {MIB}"
        where = f"/machine/peripheral/{device_id('disk', UUID)}/virtio-backend"
        said = await ask("human-monitor-command", {"command-line": f'qemu-io -d {where} "{words}"'})
        written[block * MIB : (block + 1) * MIB] = bytes([value]) * MIB

    async def move(old, new, token):
        spec = replace(instance, disks=(old,), disk_template=old.template)
        source, target = device(PATHS, "web1", old), device(PATHS, "web1", new)
        await target.create(SIZE)
        if new.template == "drbd":
            try:
                await target.open(DiskRole.PRIMARY)
            except Exception as err:  # the other node is off, and neither copy has data
                print("as expected:", err)
            await run(["drbdsetup", "primary", "0", "--force"])
        else:
            await target.open(DiskRole.PRIMARY)
        moves = driver.disk_moves
        assert await moves.obstacles(spec) == []
        await moves.begin(spec, [new], [target.path], token=token, bandwidth_mib_s=0)
        await write(3, 0x30 + len(token))
        while not (await moves.status(spec, token)).in_step:
            await asyncio.sleep(0.05)
        await write(4, 0x40 + len(token))
        print(old.template, new.template, "paused ms:", await moves.switch(spec, token), flush=True)
        await write(5, 0x50 + len(token))
        assert await moves.end(spec, token)
        moves.forget(spec, token)
        await source.remove()
        assert await source.size_mib() is None
        if new.template != "file":  # which may be removed while it is open
            try:
                await target.remove()
            except Exception as err:
                print("in use, as expected:", str(err)[:120])
            else:
                raise SystemExit("a disk that a guest uses was removed")
        return new

    for block in range(SIZE):
        await write(block, block + 1)
    file = DiskSpec(uuid=UUID, index=0, size=SIZE, template="file", logical_id=("loop", "/run/files/web1/disk0"))
    now = await move(old, mirrored(), "a")
    now = await move(now, plain(3), "bb")
    now = await move(now, mirrored(), "ccc")
    now = await move(now, file, "dddd")
    now = await move(now, plain(4), "eeeee")
    await driver.stop(replace(instance, disks=(now,)), 0)
    last = device(PATHS, "web1", now)
    found = Path(last.path).read_bytes()
    differing = [block for block in range(SIZE) if found[block * MIB : (block + 1) * MIB] != written[block * MIB : (block + 1) * MIB]]
    assert not differing, f"blocks {differing} lack the guest's writes"
    await last.remove()


asyncio.run(main())
"""


@dataclass(frozen=True)
class QemuMachine(Machine):
    """A machine with the QEMU of this host on a further disk, and with memory for a guest."""

    qemu: Path = Path()

    def words(self, image: MachineImage) -> list[str]:
        found = super().words(image)
        found[found.index("-m") + 1] = str(MEMORY_MIB)
        drive = f"file={self.qemu},format=raw,readonly=on,cache=unsafe,if=virtio"
        at = found.index("-device")
        return [*found[:at], "-drive", drive, *found[at:]]


def qemu_disk(directory: Path) -> Path:
    """A file system with QEMU, its libraries and its firmware."""
    tree = directory / "qemu"
    for name, target in (("qemu-system-x86_64", "qemu"), ("setpriv", "setpriv")):
        copied_program(Path(shutil.which(name) or ""), tree / target, tree / "lib")
    (tree / "firmware").mkdir()
    for place in FIRMWARE:
        for path in Path(place).glob("*.bin"):
            shutil.copy(path, tree / "firmware")
    (tree / "modules").mkdir()
    for path in Path("/usr/lib").glob(f"*/qemu/{MODULES}"):  # where Debian has them apart
        shutil.copy(path, tree / "modules")
    return make_disk(directory / "qemu.ext4", 160, tree)


@pytest.fixture
def agent(disk_path: Path) -> Iterator[MachineAgent]:
    """A machine that is up, without a network."""
    try:
        image = build_image(build_tiny_guest(), disk_path)
    except ExecError as err:
        pytest.skip(f"the packages of a node are not to be had here: {err}")
    directory, qemu = disk_path / "machine", qemu_disk(disk_path)
    machine = QemuMachine(directory, "node1.example.com", "192.0.2.1", "", DISK_MIB, qemu=qemu)
    machine.start(image)
    try:
        connected = machine.agent(UNDER_LOAD_S)
        yield connected
        connected.close()
    finally:
        machine.cut_power()


def test_a_running_guest_moves_through_volumes_a_mirror_and_a_file(agent: MachineAgent) -> None:
    agent.run(_QEMU, UNDER_LOAD_S)
    said = agent.run(f". /src/environment\npython3 - <<'END'\n{_MOVES}\nEND", UNDER_LOAD_S)
    assert said.count("paused ms:") == 5, said
    assert agent.run("lvs --noheadings -o lv_name xenvg").split() == []
    assert "cs:" not in agent.run("cat /proc/drbd")
    assert agent.run("dmsetup ls").strip() == "No devices found"
