"""A guest that boots the disks of a backup and is thrown away.

It has its disks, a serial console and perhaps a channel for an agent: no network, no monitor, no device or file of the
host. QEMU gets everything as open files, so it runs in the confinement of machine images, and nothing remains of it.
"""

import json
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.drills import BootsDrills, DrillDisk, DrillGuest, Equipment
from ganeti.hypervisor.kvm.acceleration import KVM_DEVICE, Acceleration
from ganeti.hypervisor.kvm.command_line import (
    DiskBackend,
    device_option,
    disk_device,
    kernel_command_line,
    node_name,
)
from ganeti.hypervisor.kvm.firmware import Kind, kinds, missing
from ganeti.hypervisor.kvm.guests import complete
from ganeti.hypervisor.kvm.machine import (
    Firmware,
    accelerator_option,
    clock_words,
    cpu_words,
    machine_words,
    memory_words,
)
from ganeti.hypervisor.kvm.options import option
from ganeti.hypervisor.kvm.pci_slots import root_ports
from ganeti.hypervisor.kvm.programs import Programs
from ganeti.hypervisor.kvm.rules import accelerator
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS, hypervisor_defaults
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.params import Params

_NO_BACKEND = DiskBackend("", is_block=False, direct=False)
_TOPOLOGY = ("cpu_sockets", "cpu_cores", "cpu_threads", "max_vcpus", "max_memory")
"""They would not fit fewer processors."""


class Drills(BootsDrills):
    """Boots a backup with QEMU."""

    def __init__(self, programs: Programs, acceleration: Acceleration) -> None:
        self._programs, self._acceleration = programs, acceleration

    async def equipment(self, hvparams: Params) -> Equipment:
        filled = complete(hvparams)
        program = self._programs.find(filled)
        chosen = await self._acceleration.choose(accelerator(filled), program)
        if chosen == "kvm" and is_open_to_group(KVM_DEVICE):
            return Equipment(program, chosen, str(KVM_DEVICE))
        return Equipment(program, "tcg", "")

    def harmless(self, hvparams: Params, equipment: Equipment) -> Params:
        return harmless(hvparams, equipment.accelerator)

    def variables(self, hvparams: Params) -> Path | None:
        kind = _firmware(hvparams)
        return kind.blank if kind else None

    def command(self, guest: DrillGuest) -> list[str]:
        kind = _firmware(guest.hvparams) if guest.variables else None
        flash = Firmware(kind.code, Path(_path(guest.variables))) if kind else None
        return drill_command(guest, flash)


def is_open_to_group(device: Path) -> bool:
    """Return whether a device is open to its group or to all: a confined QEMU can use no other one."""
    try:
        status = device.stat()
    except OSError:
        return False
    of_group = stat.S_IRGRP | stat.S_IWGRP if status.st_gid else 0
    needed = (stat.S_IROTH | stat.S_IWOTH, of_group)
    return any(one and status.st_mode & one == one for one in needed)


def harmless(hvparams: Params, accelerator: str) -> Params:
    """Return complete parameters, with the default of each one that reaches beyond the guest."""
    known = HYPERVISOR_PARAMS["kvm"]
    kept = {
        name: value
        for name, value in hvparams.items()
        if name in known and not known[name].touches_host and name not in _TOPOLOGY
    }
    if accelerator != "kvm" and str(kept.get("cpu_type", "")).partition(",")[0] == "host":
        del kept["cpu_type"]
    fixed = {"serial_console": True, "soundhw": "", "reboot_behavior": "reboot", "user_shutdown": False}  # fmt: skip
    return hypervisor_defaults("kvm") | kept | fixed


def _firmware(hvparams: Params) -> Kind | None:
    if hvparams["firmware"] != "uefi":
        return None
    found = kinds()
    if not found:
        raise HypervisorError(missing())
    return found[0]


def drill_command(guest: DrillGuest, flash: Firmware | None = None) -> list[str]:
    """Return the words that start QEMU; pure."""
    hvparams = guest.hvparams
    specs = tuple(
        DiskSpec(uuid=disk.uuid, index=index, size=0, template="file", logical_id=())
        for index, disk in enumerate(guest.disks)
    )
    instance = InstanceSpec(
        name="drill",
        uuid=guest.uuid,
        hypervisor="kvm",
        os="",
        memory=guest.memory,
        vcpus=guest.vcpus,
        hvparams=hvparams,
        disks=specs,
    )
    machine = str(hvparams["machine_version"])
    accel = guest.equipment.accelerator
    return [
        guest.equipment.program,
        *("-no-user-config", "-nodefaults", "-display", "none"),
        *("-sandbox", option("on", obsolete="deny", elevateprivileges="deny", spawn="deny")),
        *("-name", option(guest="drill")),
        *("-uuid", guest.uuid),
        *_inherited(guest),
        *machine_words(machine, hvparams, flash),
        # The firmware uses the serial console, too.
        *("-machine", option(graphics=False)),
        *("-accel", accelerator_option(accel, instance, hvparams)),
        *cpu_words(instance, hvparams),
        *memory_words(instance, accel, hvparams),
        *clock_words(hvparams),
        # A pipe cannot be truncated.
        *("-chardev", option("file", id="console", path=_path(guest.console), append=True)),
        *("-serial", "chardev:console"),
        *_kernel(guest),
        *(word for port in root_ports(machine) for word in ("-device", device_option(port))),
        *_disks(guest, specs, machine),
        *_agent(guest),
    ]


def _path(descriptor: int) -> str:
    return f"/dev/fdset/{descriptor}"


def _inherited(guest: DrillGuest) -> list[str]:
    disks = [one for disk in guest.disks for one in (disk.overlay, *disk.layers)]
    files = [guest.console, *disks, *([guest.variables] if guest.variables else [])]
    return [word for one in files for word in ("-add-fd", option(fd=one, set=one))]


def _kernel(guest: DrillGuest) -> list[str]:
    if not guest.kernel:
        return []
    found = ["-kernel", f"/proc/self/fd/{guest.kernel}", "-append", kernel_command_line(guest.hvparams)]  # fmt: skip
    return found + (["-initrd", f"/proc/self/fd/{guest.initrd}"] if guest.initrd else [])


def _disks(guest: DrillGuest, specs: Sequence[DiskSpec], machine: str) -> list[str]:
    words = list[str]()
    if str(guest.hvparams["disk_type"]).startswith("scsi"):
        words += ["-device", option(str(guest.hvparams["scsi_controller_type"]), id="scsi0")]
    for spec, disk in zip(specs, guest.disks, strict=True):
        for node in disk_nodes(spec, disk):
            words += ["-blockdev", json.dumps(node)]
        pairs = disk_device(spec, _NO_BACKEND, guest.hvparams, machine, spec.index)
        words += ["-device", device_option(pairs | {"bootindex": spec.index + 1})]
    return words


def disk_nodes(spec: DiskSpec, disk: DrillDisk) -> list[dict[str, Any]]:
    """Return the nodes of a disk, the lowest first: no format is probed, no name in an image is followed."""
    found, below = list[dict[str, Any]](), None
    for number, descriptor in enumerate(reversed(disk.layers)):
        name = f"l{number}-{spec.index}"
        found += _image(name, descriptor, below, read_only=True)
        below = name
    return found + _image(node_name("disk", spec), disk.overlay, below, read_only=False)


def _image(
    name: str, descriptor: int, below: str | None, *, read_only: bool
) -> list[dict[str, Any]]:
    file = {
        "driver": "file",
        "node-name": f"f{descriptor}",
        "filename": _path(descriptor),
        "read-only": read_only,
        "locking": "off",
    }
    image = {
        "driver": "qcow2",
        "node-name": name,
        "file": f"f{descriptor}",
        "read-only": read_only,
        "backing": below,
    }
    return [file, image]


def _agent(guest: DrillGuest) -> list[str]:
    if not guest.agent:
        return []
    port = option("virtserialport", chardev="agent", name="org.qemu.guest_agent.0", nr=1)
    return [
        *("-device", "virtio-serial-pci"),
        *("-chardev", option("stdio", id="agent", signal=False)),
        *("-device", port),
    ]
