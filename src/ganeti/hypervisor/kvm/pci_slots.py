"""The slots of a guest's devices: the same for as long as it runs, on every node it moves to.

A device has a *slot* of its kind, from 0: the index that it had when the guest was started, or the
first free one when it was plugged into the running guest. Slots are kept with the guest
(`Record.slots`), because indices change when a device before it is removed. A migration needs them:
QEMU on the other node must put every device into the slot in which the guest knows it.

On the PCI bus, slots 0 to 7 are for the machine itself and what QEMU places by its own rules,
8 to 23 for disks, 24 to 31 for NICs.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ganeti.base.errors import HypervisorError
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.limits import MAX_DISKS, MAX_NICS

_FIRST_DISK_SLOT = 8
_FIRST_NIC_SLOT = _FIRST_DISK_SLOT + MAX_DISKS
_FUNCTIONS = 8
_FIRST_PORT_SLOT = 0x10
_ID_CHARACTERS = 24


def device_id(kind: str, uuid: str) -> str:
    """The name of a device in QEMU: from its UUID, so that it stays when indices change."""
    return f"{kind}_{uuid.replace('-', '')[:_ID_CHARACTERS]}"


def disk_pci_slot(slot: int) -> int:
    """The slot of a disk; HypervisorError if there is none."""
    return _pci_slot(slot, MAX_DISKS, _FIRST_DISK_SLOT, "disks")


def nic_pci_slot(slot: int) -> int:
    """The slot of a NIC; HypervisorError if there is none."""
    return _pci_slot(slot, MAX_NICS, _FIRST_NIC_SLOT, "NICs")


def _pci_slot(slot: int, count: int, first: int, what: str) -> int:
    if not 0 <= slot < count:
        raise HypervisorError(f"a guest has slots for {count} {what}, and none of number {slot}")
    return first + slot


def initial_slots(instance: InstanceSpec) -> dict[str, int]:
    """The slots in a guest that is started: in the order of the configuration."""
    disks = {disk.uuid: disk.index for disk in instance.disks}
    return disks | {nic.uuid: nic.index for nic in instance.nics}


def free_slot(slots: Mapping[str, int], present: Collection[str], count: int, what: str) -> int:
    """The first slot that none of the devices of a kind (`present`, their UUIDs) has."""
    taken = {slots[uuid] for uuid in present}
    for slot in range(count):
        if slot not in taken:
            return slot
    raise HypervisorError(f"the running guest has no slot for more than {count} {what}")


def has_root_ports(machine: str) -> bool:
    """Return whether the machine has PCI Express, whose own bus takes no devices while the guest runs."""
    return machine == "q35" or machine.startswith("pc-q35-")


def pci_address(machine: str, pci_slot: int) -> dict[str, Any]:
    """Bus and address of a PCI slot."""
    if has_root_ports(machine):
        return {"bus": f"port{pci_slot}", "addr": "0x0"}
    return {"bus": "pci.0", "addr": hex(pci_slot)}


def root_ports(machine: str) -> list[dict[str, Any]]:
    """The ports that make the slots of a PCI Express machine; none for others."""
    if not has_root_ports(machine):
        return []
    ports = []
    for number in range(MAX_DISKS + MAX_NICS):
        slot = _FIRST_DISK_SLOT + number
        address = f"{_FIRST_PORT_SLOT + number // _FUNCTIONS:#x}.{number % _FUNCTIONS}"
        port = {"driver": "pcie-root-port", "id": f"port{slot}", "bus": "pcie.0", "chassis": slot}
        ports.append({**port, "addr": address, "multifunction": True, "io-reserve": 0})
    return ports
