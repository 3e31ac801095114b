"""Debian's LVM, real, with the driver and the kinds of storage units; only device-mapper is stood in for."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import PrereqError, StorageError
from ganeti.base.paths import Paths
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.storage.lvm.commands import VolumeName
from ganeti.storage.lvm.groups import VolumeGroups
from ganeti.storage.lvm.physical import PhysicalVolumes
from ganeti.storage.lvm.volume import LogicalVolume
from ganeti.tools.host_disks import HostDisk
from ganeti.tools.lvmstrap import create
from tests.support.host_lvm import MIB, HostLvm, unpacked_lvm

pytestmark = [
    pytest.mark.host,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path("/dev/loop-control").exists(),
        reason="loop devices need root",
    ),
]
SECRET = b"another tenant's secret"
UUID = "11111111-0000-4000-8000-000000000000"


class ShowingVolume(LogicalVolume):
    """A volume whose device appears when LVM would activate it."""

    host: HostLvm

    async def _finish(self) -> None:
        volume = await self._volume()
        if volume is not None:
            await self.host.show(self._name)
        await super()._finish()


@pytest.fixture
def host(disk_path: Path) -> Iterator[HostLvm]:
    one = HostLvm(disk_path, unpacked_lvm())
    try:
        yield one
    finally:
        one.close()


async def new_group(host: HostLvm) -> tuple[str, list[str]]:
    """A volume group on two devices that are full of old data."""
    group = f"gnttest{os.getpid()}"
    devices = [host.device(96, SECRET) for _ in range(2)]
    for device in devices:
        await host.lvm.act(["pvcreate", "-y", device])
    await host.lvm.act(["vgcreate", "-s", "4m", "--", group, *devices])
    return group, devices


def disk(
    host: HostLvm, group: str, uuid: str = UUID, size: int = 24, **fields: Any
) -> LogicalVolume:
    name = (group, f"{uuid}.disk0")
    spec = DiskSpec(uuid=uuid, index=0, size=size, template="plain", logical_id=name, **fields)
    made = ShowingVolume(Paths(), spec, lvm=host.lvm, devices=host)
    made.host = host
    return made


async def content(host: HostLvm, group: str, uuid: str = UUID) -> bytes:
    device = await host.show(VolumeName(group, f"{uuid}.disk0"))
    return await asyncio.to_thread(Path(device).read_bytes)


def write(device: str, data: bytes) -> None:
    with Path(device).open("r+b") as file:
        file.write(data)


@pytest.mark.requirement("G11", "G12", "F26", "A48")
async def test_a_volume_lives_through_everything(host: HostLvm) -> None:
    group, _devices = await new_group(host)
    mine = disk(host, group)
    await mine.create(24)
    assert await content(host, group) == bytes(24 * MIB)
    device = await host.show(VolumeName(group, f"{UUID}.disk0"))
    await asyncio.to_thread(write, device, b"the guest's own")
    await mine.create(24)
    await mine.grow(40)
    data = await content(host, group)
    assert data.startswith(b"the guest's own")
    assert data[24 * MIB :] == bytes(16 * MIB)
    assert await mine.size_mib() == 40
    await mine.open(DiskRole.PRIMARY)
    other = disk(host, group, UUID.replace("1", "2"))
    assert await other.size_mib() is None
    await other.remove()
    await mine.remove()
    await mine.remove()
    assert await host.lvm.volumes(group) == []


@pytest.mark.requirement("A48")
async def test_a_volume_is_adopted_with_its_data_and_given_back(host: HostLvm) -> None:
    group, _devices = await new_group(host)
    await host.lvm.act(["lvcreate", "-an", "-Zn", "-Wn", "-L", "16m", "-n", "data1", "--", group])
    mine = disk(host, group, size=16)
    assert await mine.adoptable_mib("data1") == 16
    await mine.adopt("data1")
    assert (await content(host, group)).startswith(SECRET)
    await mine.check_identity()
    with pytest.raises(StorageError, match="it does not exist"):
        await disk(host, group, UUID.replace("1", "2")).adopt("data1")
    await mine.give_back("data1")
    [one] = await host.lvm.volumes(group)
    assert (one.name, one.tags) == ("data1", ())


@pytest.mark.requirement("S2", "S3", "S4", "S6")
async def test_units_are_listed_closed_and_repaired(host: HostLvm) -> None:
    group, devices = await new_group(host)
    groups, physical = VolumeGroups(host.lvm), PhysicalVolumes(host.lvm)
    unit = StorageUnit(kind="lvm-vg", key=group)
    await disk(host, group).create(24)
    [state] = [one for one in await groups.units(Paths()) if one.name == group]
    assert (state.size, state.used, state.problem) == (184, 24, "")
    await physical.set_allocatable(Paths(), devices[1], allocatable=False)
    [closed] = [one for one in await physical.units(Paths()) if one.name == devices[1]]
    assert closed.allocatable is False
    assert (await groups.space(Paths(), unit)).free == 68
    with pytest.raises(StorageError, match=r"[Ii]nsufficient"):
        await disk(host, group, UUID.replace("1", "2")).create(80)
    await asyncio.to_thread(host.lose, devices[1])
    assert "lacks 1 physical volumes" in await groups.check(Paths(), group)
    assert (await groups.repair(Paths(), group))[0].startswith("1 missing physical volumes")
    assert await groups.check(Paths(), group) == ""
    assert await content(host, group) == bytes(24 * MIB)
    [part] = [one for one in await host.lvm.parts(group) if one.name == f"{UUID}.disk0"]
    assert part.devices == (devices[0],)


async def test_disks_have_physical_volumes_for_themselves(host: HostLvm) -> None:
    group, devices = await new_group(host)
    more = host.device(96, SECRET)
    await host.lvm.act(["pvcreate", "-y", more])
    await host.lvm.act(["vgextend", "--", group, more])
    groups, unit = VolumeGroups(host.lvm), StorageUnit(kind="lvm-vg", key=group)
    mine = disk(host, group, exclusive=True, wipe=False, params={"spindles": 2})
    await mine.create(24)
    assert await mine.spindles() == 2
    await mine.grow(160)
    assert (await mine.size_mib(), await mine.spindles()) == (160, 2)
    with pytest.raises(StorageError, match="too small for 240 MiB"):
        await mine.grow(240)
    space = await groups.space(Paths(), unit)
    assert (space.devices, space.free_devices) == (3, 1)
    assert await groups.sharing(Paths(), unit) == []
    [part] = await host.lvm.parts(group)
    used = next(one for one in devices if one in part.devices)
    words = ["lvcreate", "-an", "-Zn", "-Wn", "-l", "1", "-n", "data1", "--", group, used]
    await host.lvm.act(words)
    [wrong] = await groups.sharing(Paths(), unit)
    assert f"physical volume {used} is shared by" in wrong


async def test_disks_become_a_group_unless_they_are_open(host: HostLvm) -> None:
    group, devices = f"gnttest{os.getpid()}", [host.device(96, SECRET) for _ in range(2)]
    disks = [HostDisk(device.removeprefix("/dev/"), 96 * MIB) for device in devices]
    await host.lvm.act(["pvcreate", "-y", devices[1]])
    held = os.open(devices[1], os.O_RDWR | os.O_EXCL)
    try:
        with pytest.raises(PrereqError, match="in use by an unknown program"):
            await create(host.lvm, group, disks)
    finally:
        os.close(held)
    assert Path(devices[0]).read_bytes().startswith(SECRET)
    said: list[str] = []
    size = await create(host.lvm, group, disks, said.append)
    assert 180 * MIB < size < 192 * MIB
    assert said[-1] == f"vgcreate -- {group} {' '.join(devices)}"
    with pytest.raises(PrereqError, match=f"volume group {group} exists already"):
        await create(host.lvm, group, disks)
