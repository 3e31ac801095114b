"""What a guest has, as it changes; and the pretended hypervisor, which keeps the same contract."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.hypervisor.hotplug import (
    incoming_instance,
    with_disk,
    with_nic,
    without_disk,
    without_nic,
)
from ganeti.model.instance_spec import DiskPeer, DiskSpec, InstanceSpec, NicSpec

SPEC = InstanceSpec(
    name="web1", uuid="u1", hypervisor="fake", os="o", memory=128, vcpus=2, hvparams={}
)


def disk(name: str, index: int) -> DiskSpec:
    return DiskSpec(uuid=name, index=index, size=1, template="file", logical_id=())


def nic(name: str, index: int) -> NicSpec:
    return NicSpec(uuid=name, index=index, mac=f"aa:00:00:00:00:0{index}")


def order(spec: InstanceSpec) -> str:
    assert [one.index for one in spec.disks] == list(range(len(spec.disks)))
    return "".join(one.uuid for one in spec.disks)


def test_disks_come_where_they_should_go_and_are_counted_again() -> None:
    spec = with_disk(with_disk(SPEC, disk("a", 0)), disk("b", 1))
    assert order(with_disk(spec, disk("c", 1))) == "acb"
    assert order(with_disk(spec, disk("c", 0))) == "cab"
    assert order(with_disk(spec, disk("c", 9))) == "abc"
    assert order(with_disk(spec, disk("b", 1))) == "ab"
    assert order(without_disk(spec, "a")) == "b"
    assert order(without_disk(spec, "z")) == "ab"


def test_nics_come_and_go_the_same_way() -> None:
    spec = with_nic(with_nic(SPEC, nic("a", 0)), nic("b", 0))
    assert [(one.uuid, one.index) for one in spec.nics] == [("b", 0), ("a", 1)]
    assert [one.uuid for one in without_nic(spec, "b").nics] == ["a"]


def test_a_guest_that_comes_has_its_own_hardware_and_the_migration_parameters_of_now() -> None:
    old = replace(SPEC, hypervisor="kvm", hvparams={"acpi": False, "migration_port": 1})
    now = {"acpi": True, "migration_port": 2, "migration_downtime": 99, "kvm_path": "/q"}
    wanted = replace(old, memory=999, vcpus=9, hvparams=now, disks=(disk("d", 0),))
    found = incoming_instance(wanted, old)
    assert (found.memory, found.vcpus, found.disks) == (128, 2, ())
    assert found.hvparams == {**now, "acpi": False}


def test_a_disk_that_comes_is_reached_as_its_new_node_reaches_it() -> None:
    """The kernel of DRBD was told the source's address, and both copies stood alone in the middle of a migration."""
    there = replace(disk("d", 1), size=9, address="192.0.2.2", part=(7,), params={"protocol": "A"})
    peer = DiskPeer(name="node2", address="192.0.2.2", part=(7,))
    here = replace(
        disk("d", 0), size=10, mode="ro", address="192.0.2.3", part=(3,), peers=(peer,),
        secret="s3cret", params={"protocol": "C"}, children=(disk("data", 0),),
    )  # fmt: skip
    of_guest = replace(SPEC, disks=(there,))
    (found,) = incoming_instance(replace(SPEC, disks=(here,)), of_guest).disks
    assert found == replace(here, index=1, size=9, mode="rw")


async def test_a_pretended_guest_follows_and_one_that_is_down_has_nothing_to_change(
    tmp_path: Path,
) -> None:
    fake = FakeHypervisor(Paths(tmp_path))
    path = tmp_path / "d"
    path.touch()
    assert await fake.hotplug.set_memory(SPEC, 64) == 0
    await fake.hotplug.add_disk(SPEC, disk("d", 0), str(path))
    assert await fake.running() == []
    await fake.start(SPEC, [])
    for _ in range(2):
        await fake.hotplug.add_disk(SPEC, disk("d", 0), str(path))
        await fake.hotplug.add_nic(SPEC, nic("n", 0))
    assert await fake.hotplug.set_memory(SPEC, 64) == 64
    assert [one.memory for one in await fake.running()] == [64]
    await fake.hotplug.change_nic(SPEC, replace(nic("n", 0), link="br9"))
    await fake.hotplug.resize_disk(SPEC, replace(disk("d", 0), size=9))
    now = (await fake.migration_info(SPEC)).instance
    assert [(one.uuid, one.size) for one in now.disks] == [("d", 9)]
    assert [one.link for one in now.nics] == ["br9"]
    for _ in range(2):
        await fake.hotplug.remove_disk(SPEC, disk("d", 0))
        await fake.hotplug.remove_nic(SPEC, nic("n", 0))
    now = (await fake.migration_info(SPEC)).instance
    assert (now.disks, now.nics) == ((), ())
    with pytest.raises(HypervisorError, match="does not exist"):
        await fake.hotplug.add_disk(SPEC, disk("x", 0), str(tmp_path / "x"))


async def test_a_pretended_obstacle_is_reported(tmp_path: Path) -> None:
    fake = FakeHypervisor(Paths(tmp_path), failures={"hotplug": "not today", "add_nic": "no"})
    assert await fake.hotplug.obstacles(SPEC) == ["not today"]
    with pytest.raises(HypervisorError, match="no"):
        await fake.hotplug.add_nic(SPEC, nic("n", 0))
    assert await FakeHypervisor(Paths(tmp_path)).hotplug.obstacles(SPEC) == []
