"""The slots of a guest's devices: constant while it runs, on every node to which it moves.

A device has a *slot* of its kind, from 0: its index when the guest was started, or the first free one when it was
hotplugged. The guest's record stores slots (`Record.slots`), because indices change when an earlier device is
removed. A migration needs them: QEMU on the other node must put every device into the slot that the guest knows.

On the PCI bus, slots 0 to 7 are for the machine itself and for devices that QEMU places, 8 to 23 for disks, 24 to 31
for NICs.
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
    """Return the name of a device in QEMU: from its UUID, so that it is independent of indices."""
    return f"{kind}_{uuid.replace('-', '')[:_ID_CHARACTERS]}"


def disk_pci_slot(slot: int) -> int:
    """Return the slot of a disk; HypervisorError if there is none."""
    return _pci_slot(slot, MAX_DISKS, _FIRST_DISK_SLOT, "disks")


def nic_pci_slot(slot: int) -> int:
    """Return the slot of a NIC; HypervisorError if there is none."""
    return _pci_slot(slot, MAX_NICS, _FIRST_NIC_SLOT, "NICs")


def _pci_slot(slot: int, count: int, first: int, what: str) -> int:
    if not 0 <= slot < count:
        raise HypervisorError(
            f"a guest has slots for {count} {what}, so slot {slot} does not exist"
        )
    return first + slot


def initial_slots(instance: InstanceSpec) -> dict[str, int]:
    """Return the slots in a guest that is started: in the order of the configuration."""
    disks = {disk.uuid: disk.index for disk in instance.disks}
    return disks | {nic.uuid: nic.index for nic in instance.nics}


def free_slot(slots: Mapping[str, int], present: Collection[str], count: int, what: str) -> int:
    """Return the first slot that no device of a kind (`present`, their UUIDs) uses."""
    taken = {slots[uuid] for uuid in present}
    for slot in range(count):
        if slot not in taken:
            return slot
    raise HypervisorError(f"the running guest has no slot for more than {count} {what}")


def has_root_ports(machine: str) -> bool:
    """Return whether the machine has PCI Express, whose own bus accepts no devices while the guest runs."""
    return machine == "q35" or machine.startswith("pc-q35-")


def pci_address(machine: str, pci_slot: int) -> dict[str, Any]:
    """Return bus and address of a PCI slot."""
    if has_root_ports(machine):
        return {"bus": f"port{pci_slot}", "addr": "0x0"}
    return {"bus": "pci.0", "addr": hex(pci_slot)}


def root_ports(machine: str) -> list[dict[str, Any]]:
    """Return the ports that make the slots of a PCI Express machine; none for others."""
    if not has_root_ports(machine):
        return []
    ports = []
    for number in range(MAX_DISKS + MAX_NICS):
        slot = _FIRST_DISK_SLOT + number
        address = f"{_FIRST_PORT_SLOT + number // _FUNCTIONS:#x}.{number % _FUNCTIONS}"
        port = {"driver": "pcie-root-port", "id": f"port{slot}", "bus": "pcie.0", "chassis": slot}
        ports.append({**port, "addr": address, "multifunction": True, "io-reserve": 0})
    return ports
