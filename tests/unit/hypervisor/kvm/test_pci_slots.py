"""The slots of devices: fixed, never shared, the same for a command line and for a running guest."""

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.pci_slots import (
    device_id,
    disk_pci_slot,
    free_slot,
    initial_slots,
    nic_pci_slot,
    pci_address,
    root_ports,
)
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.model.limits import MAX_DISKS, MAX_NICS

UUID = "0b7d5e0a-9c0f-4f6e-8a52-0a1b2c3d4e5f"


def test_no_two_devices_share_a_slot_and_the_machine_keeps_its_own() -> None:
    slots = [disk_pci_slot(slot) for slot in range(MAX_DISKS)]
    slots += [nic_pci_slot(slot) for slot in range(MAX_NICS)]
    assert sorted(slots) == list(range(8, 32))


@pytest.mark.parametrize("slot", [-1, 16])
def test_there_is_no_slot_beyond_the_last_slot(slot: int) -> None:
    with pytest.raises(HypervisorError, match="slots for 16 disks"):
        disk_pci_slot(slot)
    with pytest.raises(HypervisorError, match="slots for 8 NICs"):
        nic_pci_slot(slot)


def test_a_started_guest_has_its_devices_in_the_order_of_the_configuration() -> None:
    disk = DiskSpec(uuid="d", index=3, size=1, template="file", logical_id=())
    nic = NicSpec(uuid="n", index=2, mac="aa:00:00:00:00:01")
    spec = InstanceSpec(
        name="web1", uuid=UUID, hypervisor="kvm", os="", memory=1, vcpus=1, hvparams={},
        disks=(disk,), nics=(nic,),
    )  # fmt: skip
    assert initial_slots(spec) == {"d": 3, "n": 2}


def test_a_new_device_gets_the_first_slot_that_is_free() -> None:
    slots = {"a": 0, "b": 2, "nic": 1}
    assert free_slot(slots, ["a", "b"], 16, "disks") == 1
    assert free_slot(slots, ["a"], 16, "disks") == 1
    assert free_slot(slots, [], 16, "disks") == 0
    with pytest.raises(HypervisorError, match="no slot for more than 1 disks"):
        free_slot(slots, ["a"], 1, "disks")


def test_names_of_devices_are_made_from_uuids_and_short_enough() -> None:
    assert device_id("disk", UUID) == "disk_0b7d5e0a9c0f4f6e8a520a1b"
    assert len(device_id("disk", UUID)) <= 31


def test_a_machine_with_pci_express_has_a_port_for_every_slot() -> None:
    assert root_ports("pc") == []
    assert pci_address("pc-i440fx-7.2", 8) == {"bus": "pci.0", "addr": "0x8"}
    ports = root_ports("pc-q35-7.2")
    assert len({port["addr"] for port in ports}) == len(ports) == 24
    ids = {port["id"] for port in ports}
    assert {pci_address("q35", slot)["bus"] for slot in range(8, 32)} == ids
