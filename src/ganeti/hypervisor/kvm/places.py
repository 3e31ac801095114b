"""Where the devices of a guest sit: the same place for as long as it runs, on every node it moves to.

A device has a *place* of its kind, from 0: the index that it had when the guest was started, or the
first free one when it was plugged into the running guest. Places are kept with the guest
(`Record.places`), because indices change when a device before it is removed. A migration needs them:
QEMU on the other node must put every device into the slot in which the guest knows it.

The slots of the PCI bus: 0 to 7 for the machine itself and what QEMU places by its own rules,
8 to 23 for disks, 24 to 31 for NICs.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ganeti.base.errors import HypervisorError
from ganeti.model.instance_spec import InstanceSpec

DISK_PLACES, NIC_PLACES = 16, 8
_FIRST_DISK_SLOT = 8
_FIRST_NIC_SLOT = _FIRST_DISK_SLOT + DISK_PLACES
_FUNCTIONS = 8
_FIRST_PORT_SLOT = 0x10
_ID_CHARACTERS = 24


def device_id(kind: str, uuid: str) -> str:
    """The name of a device in QEMU: from its UUID, so that it stays when indices change."""
    return f"{kind}_{uuid.replace('-', '')[:_ID_CHARACTERS]}"


def disk_slot(place: int) -> int:
    """The slot of a disk; HypervisorError if there is none."""
    return _slot(place, DISK_PLACES, _FIRST_DISK_SLOT, "disks")


def nic_slot(place: int) -> int:
    """The slot of a NIC; HypervisorError if there is none."""
    return _slot(place, NIC_PLACES, _FIRST_NIC_SLOT, "NICs")


def _slot(place: int, count: int, first: int, what: str) -> int:
    if not 0 <= place < count:
        raise HypervisorError(f"a guest has places for {count} {what}, and none of number {place}")
    return first + place


def initial_places(instance: InstanceSpec) -> dict[str, int]:
    """The places in a guest that is started: in the order of the configuration."""
    disks = {disk.uuid: disk.index for disk in instance.disks}
    return disks | {nic.uuid: nic.index for nic in instance.nics}


def free_place(places: Mapping[str, int], present: Collection[str], count: int, what: str) -> int:
    """The first place that none of the devices of a kind (`present`, their UUIDs) has."""
    taken = {places[uuid] for uuid in present}
    for place in range(count):
        if place not in taken:
            return place
    raise HypervisorError(f"the running guest has no place for more than {count} {what}")


def has_root_ports(machine: str) -> bool:
    """Whether the machine has PCI Express, whose own bus takes no devices while the guest runs."""
    return machine == "q35" or machine.startswith("pc-q35-")


def pci_place(machine: str, slot: int) -> dict[str, Any]:
    """Bus and address of a slot."""
    if has_root_ports(machine):
        return {"bus": f"port{slot}", "addr": "0x0"}
    return {"bus": "pci.0", "addr": hex(slot)}


def root_ports(machine: str) -> list[dict[str, Any]]:
    """The ports that make the slots of a PCI Express machine; none for others."""
    if not has_root_ports(machine):
        return []
    ports = []
    for number in range(DISK_PLACES + NIC_PLACES):
        slot = _FIRST_DISK_SLOT + number
        address = f"{_FIRST_PORT_SLOT + number // _FUNCTIONS:#x}.{number % _FUNCTIONS}"
        port = {"driver": "pcie-root-port", "id": f"port{slot}", "bus": "pcie.0", "chassis": slot}
        ports.append({**port, "addr": address, "multifunction": True, "io-reserve": 0})
    return ports
