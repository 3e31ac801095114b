"""Real LVM over a real device-mapper, through the storage driver, in one machine without a cluster."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.errors import ExecError
from ganeti.vcluster.machine_image import build_image
from ganeti.vcluster.machines import Machine, MachineAgent
from tests.support.tiny_guest import build_tiny_guest

pytestmark = [
    pytest.mark.host,
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("mke2fs") is None, reason="mke2fs is not installed"),
]

DISK_MIB = 96
UNDER_LOAD_S = 600
_GROUP = """
yes "another tenant" | dd of=/dev/vdd bs=1M count=95 iflag=fullblock 2>/dev/null
. /src/environment
python3 - <<'END'
from ganeti.tools.lvmstrap import main
for words in (["diskinfo"], ["create", "-d", "vdd"], ["create", "-d", "vdd"], ["diskinfo"]):
    print(words[0], main(words), flush=True)
END
"""
_LIFE = """
import asyncio
import os
from pathlib import Path

from ganeti.base.paths import Paths
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.storage.lvm.volume import LogicalVolume

MIB = 1 << 20
UUID = "11111111-0000-4000-8000-000000000000"


def read(path):
    return Path(path).read_bytes()


def write(path, data):
    with open(path, "r+b") as device:
        device.write(data)


async def main():
    name = ("xenvg", UUID + ".disk0")
    spec = DiskSpec(uuid=UUID, index=0, size=8, template="plain", logical_id=name)
    disk = LogicalVolume(Paths(), spec)
    await disk.create(8)
    assert read(disk.path) == bytes(8 * MIB), "a new disk has old data"
    write(disk.path, b"before")
    kept = await disk.take("moment")
    write(disk.path, b"behind")
    assert read(kept).startswith(b"before"), "the snapshot follows its origin"
    await disk.drop("moment")
    await disk.make("first")
    for at in range(8):  # every block: a thick snapshot never overflows
        with open(disk.path, "r+b") as device:
            device.seek(at * MIB)
            device.write(os.urandom(MIB))
            os.fsync(device.fileno())
    await disk.make("second")
    random = read(disk.path)
    write(disk.path, b"last")
    await disk.roll_back("first")
    assert read(disk.path) == b"behind" + bytes(8 * MIB - 6), "the first rollback"
    await disk.roll_back("second")
    assert read(disk.path) == random, "the second rollback lost a snapshot"
    await disk.roll_back("first")
    assert read(disk.path) == b"behind" + bytes(8 * MIB - 6), "a rollback consumed a snapshot"
    for name in ("first", "second", "second"):
        await disk.drop(name, unsure=False)
    await disk.grow(16)
    data = read(disk.path)
    assert data.startswith(b"behind"), "growing lost data"
    assert data[8 * MIB:] == bytes(8 * MIB), "the new part has old data"
    await disk.open(DiskRole.PRIMARY)
    assert await disk.size_mib() == 16
    with open(disk.path, "rb"):
        try:
            await disk.remove()
        except Exception as error:
            assert "in use" in str(error), error
        else:
            raise SystemExit("a disk that is open was removed")
    await disk.remove()
    assert await disk.size_mib() is None


asyncio.run(main())
"""


@pytest.fixture
def agent(disk_path: Path) -> Iterator[MachineAgent]:
    """A machine that is up, without a network."""
    try:
        image = build_image(build_tiny_guest(), disk_path)
    except ExecError as err:
        pytest.skip(f"the packages of a node are not to be had here: {err}")
    machine = Machine(disk_path / "machine", "node1.example.com", "192.0.2.1", "", DISK_MIB)
    machine.start(image)
    try:
        connected = machine.agent(UNDER_LOAD_S)
        yield connected
        connected.close()
    finally:
        machine.cut_power()


@pytest.mark.requirement("G11", "G12", "F26")
def test_a_volume_lives_through_everything_and_leaves_nothing(agent: MachineAgent) -> None:
    said = agent.run(_GROUP, UNDER_LOAD_S)
    told = [line.split(maxsplit=2) for line in said.splitlines()]
    assert [status for word, status, *_ in told if word in ("diskinfo", "create")] == [
        "0",
        "0",
        "1",
        "0",
    ]
    assert [use for name, *_, use in told if name == "vdd"] == [
        "free",
        "vdd is a physical volume of xenvg",
    ]
    agent.run(f". /src/environment\npython3 - <<'END'\n{_LIFE}\nEND", UNDER_LOAD_S)
    assert agent.run("lvs --noheadings -o lv_name xenvg").split() == []
    assert agent.run("dmsetup ls").strip() == "No devices found"
