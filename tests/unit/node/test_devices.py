"""Calls that change a running guest, on the fake hypervisor and on disks that tell what is done to them."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import HypervisorError, InputError, StorageError
from ganeti.model.instance_spec import NicSpec
from ganeti.node import devices
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.devices import (
    HOTPLUG_DISK,
    HOTPLUG_NIC,
    HOTPLUG_OBSTACLES,
    INSTANCE_MEMORY,
    DeviceAction,
    DiskChangeArgs,
    MemoryArgs,
    NicChangeArgs,
)
from ganeti.rpc.procedures.form import Procedure
from ganeti.rpc.procedures.instances import INSTANCE_START, InstanceArgs, StartArgs
from ganeti.rpc.procedures.migration import MIGRATION_ACCEPT, IncomingArgs
from tests.unit.node.test_instance import DISKS, SPEC, Node, TellingDevice

ONE_DISK = replace(SPEC, disks=DISKS[:1])
NIC = NicSpec(uuid="n", index=0, mac="aa:00:00:00:00:01", link="br0")


class Changing(Node):
    """A node on which a guest with one disk runs."""

    def __init__(self, root: Path, **failures: str) -> None:
        super().__init__(root, **failures)
        self.handlers |= devices.handlers(
            {"fake": self.hypervisor}, lambda _name, disk: TellingDevice(self, disk), self.locks
        )

    async def begin(self) -> None:
        await self.call(INSTANCE_START, StartArgs(instance=ONE_DISK))
        self.done.clear()

    async def disk(self, action: DeviceAction) -> None:
        args = DiskChangeArgs(instance=ONE_DISK, action=action, disk=DISKS[1])
        await self.call(HOTPLUG_DISK, args)

    async def nic(self, action: DeviceAction, nic: NicSpec = NIC) -> None:
        await self.call(HOTPLUG_NIC, NicChangeArgs(instance=ONE_DISK, action=action, nic=nic))

    async def has(self) -> tuple[list[str], list[str]]:
        now = (await self.hypervisor.migration_info(ONE_DISK)).instance
        return [disk.uuid for disk in now.disks], [nic.link for nic in now.nics]


async def test_disk_is_opened_before_and_closed_after(tmp_path: Path) -> None:
    node = Changing(tmp_path)
    await node.begin()
    await node.disk(DeviceAction.ADD)
    assert (node.done, (await node.has())[0]) == (["assemble d1"], ["d0", "d1"])
    await node.disk(DeviceAction.GROW)
    await node.disk(DeviceAction.REMOVE)
    assert (node.done, (await node.has())[0]) == (["assemble d1", "shutdown d1"], ["d0"])


async def test_a_nic_comes_is_connected_elsewhere_and_goes(tmp_path: Path) -> None:
    node = Changing(tmp_path)
    await node.begin()
    await node.nic(DeviceAction.ADD)
    await node.nic(DeviceAction.MODIFY, replace(NIC, link="br1"))
    assert (await node.has())[1] == ["br1"]
    await node.nic(DeviceAction.REMOVE)
    assert (await node.has())[1] == []


async def test_a_disk_that_the_guest_does_not_get_or_let_go_is_left_as_it_was(
    tmp_path: Path,
) -> None:
    node = Changing(tmp_path, add_disk="no", remove_disk="busy")
    await node.begin()
    with pytest.raises(HypervisorError, match="no"):
        await node.disk(DeviceAction.ADD)
    assert node.done == ["assemble d1", "shutdown d1"]
    node.done.clear()
    with pytest.raises(HypervisorError, match="busy"):
        await node.disk(DeviceAction.REMOVE)
    assert node.done == []
    node.failing.add("assemble d1")
    with pytest.raises(StorageError):
        await node.disk(DeviceAction.ADD)
    assert (await node.has())[0] == ["d0"]


async def test_memory_and_obstacles_are_asked_of_the_hypervisor(tmp_path: Path) -> None:
    node = Changing(tmp_path, hotplug="not today")
    await node.begin()
    answer = await node.call(INSTANCE_MEMORY, MemoryArgs(instance=ONE_DISK, memory=64))
    assert answer.memory == 64
    assert await obstacles(node, ONE_DISK) == ["not today"]
    other = replace(ONE_DISK, hypervisor="xen")
    assert "cannot change running guests" in (await obstacles(node, other))[0]


async def obstacles(node: Changing, instance: Any) -> list[str]:
    found = await node.call(HOTPLUG_OBSTACLES, InstanceArgs(instance=instance))
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(
    ("procedure", "args"),
    [
        (HOTPLUG_DISK, DiskChangeArgs(instance=SPEC, action=DeviceAction.MODIFY, disk=DISKS[0])),
        (HOTPLUG_NIC, NicChangeArgs(instance=SPEC, action=DeviceAction.GROW, nic=NIC)),
    ],
)
async def test_what_a_device_does_not_take_is_refused(
    tmp_path: Path, procedure: Procedure[Any, Any], args: Any
) -> None:
    node = Changing(tmp_path)
    with pytest.raises(InputError, match="does not support"):
        await node.handlers[procedure.name](args, Call(key="1/0/1"))


async def test_a_guest_that_comes_gets_the_disks_that_it_has(tmp_path: Path) -> None:
    """Whatever the configuration says about its next start."""
    source, target = Changing(tmp_path / "a"), Changing(tmp_path / "b")
    await source.begin()
    info = await source.hypervisor.migration_info(ONE_DISK)
    await target.call(MIGRATION_ACCEPT, IncomingArgs(instance=SPEC, address="::1", info=info))
    assert target.done == ["assemble d0"]
