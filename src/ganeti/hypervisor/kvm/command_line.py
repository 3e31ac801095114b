"""The command line of QEMU, as a pure function of earlier decisions.

A value never becomes part of another option: `option` makes each option (A44). This module has the parts of every
guest, its disks and its network; `machine`, `display` and `images` make the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.display import Spice, channel_words, display_words
from ganeti.hypervisor.kvm.images import (
    IDE_UNITS,
    SATA_PORTS,
    boots_from,
    ide_address,
    image_words,
)
from ganeti.hypervisor.kvm.machine import (
    Firmware,
    accelerator_option,
    clock_words,
    cpu_words,
    extra_words,
    fault_words,
    is_q35,
    machine_words,
    memory_words,
    reserve_device,
)
from ganeti.hypervisor.kvm.options import option
from ganeti.hypervisor.kvm.pci_slots import (
    device_id,
    disk_pci_slot,
    nic_pci_slot,
    pci_address,
    root_ports,
)
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.hypervisor.kvm.tpm import tpm_words
from ganeti.model.disk_templates import disk_format
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.model.params import Params

BALLOON = "balloon"
"""The device through which a running guest gives memory back."""
_DISK_DRIVERS = {
    "paravirtual": "virtio-blk-pci",
    "scsi": "scsi-hd",
    "scsi-hd": "scsi-hd",
    "ide": "ide-hd",
}
_LSI_DISKS = 7
_ISA_NICS = frozenset(("ne2k_isa",))
_SERIAL_LIMIT = 20
"""The size of virtio-blk's serial number in bytes."""


@dataclass(frozen=True)
class DiskBackend:
    """The way to open one disk, as examined on this host."""

    path: str
    is_block: bool
    """True for a block device, else a file."""
    direct: bool
    """True to bypass the host's cache."""
    writethrough: bool = False
    remote: Mapping[str, Any] | None = None
    """A disk that QEMU reads by a driver of its own: the driver's name and options; then `path` is for people."""
    above: Mapping[str, Any] | None = None
    """The guest is above a backup (`live_restores.py`): the driver and the options of the only node. The guest stops at
    an error of the disk, and does not see it."""


@dataclass(frozen=True)
class Resolved:
    """Everything about one start that is not in the instance's description."""

    program: str
    accelerator: str
    machine: str
    files: GuestFiles
    hvparams: Params
    """Complete: with a value for every parameter of the hypervisor."""
    disks: Sequence[DiskBackend] = ()
    taps: Sequence[str] = ()
    is_incoming: bool = False
    slots: Mapping[str, int] = field(default_factory=dict)
    """UUID of a disk or NIC -> its slot; the default is its index (`ganeti.hypervisor.kvm.pci_slots`)."""
    firmware: Firmware | None = None
    """The flash chips of a UEFI guest."""
    spice: Spice = field(default_factory=Spice)


def qemu_command(instance: InstanceSpec, resolved: Resolved) -> list[str]:
    """Return the words that start the guest, stopped before its first instruction."""
    return [
        resolved.program,
        "-no-user-config",
        "-nodefaults",
        "-S",
        *("-display", "none"),
        *("-msg", "timestamp=on"),
        *("-name", option(guest=instance.name)),
        *("-uuid", instance.uuid),
        *machine_words(resolved.machine, resolved.hvparams, resolved.firmware),
        *("-accel", accelerator_option(resolved.accelerator, instance, resolved.hvparams)),
        *cpu_words(instance, resolved.hvparams),
        *memory_words(instance, resolved.accelerator, resolved.hvparams),
        *clock_words(resolved.hvparams),
        *_monitor("driver", resolved.files.monitor),
        *_monitor("people", resolved.files.people_monitor),
        *_serial(resolved),
        *_kernel(resolved.hvparams),
        *("-device", option("virtio-balloon-pci", id=BALLOON)),
        *reserve_device(instance, resolved.hvparams),
        *_ports(resolved.machine),
        *_disks(instance, resolved),
        *_nics(instance, resolved),
        *image_words(resolved.machine, resolved.hvparams, _ide_disks(instance, resolved)),
        *display_words(instance, resolved.hvparams, resolved.spice),
        *channel_words(resolved.hvparams, resolved.files.guest_agent),
        *(tpm_words(resolved.files) if resolved.hvparams["tpm"] else ()),
        *fault_words(resolved.hvparams),
        *(("-incoming", "defer") if resolved.is_incoming else ()),
        *extra_words(resolved.hvparams),
    ]


def node_name(kind: str, disk: DiskSpec) -> str:
    """Return the name of a disk's node in QEMU: stable, and within its 31 bytes."""
    return f"{kind}-{disk.uuid.replace('-', '')[:24]}"


def file_nodes(disk: DiskSpec) -> tuple[str, str]:
    """Return the names of a disk's lower node in QEMU: the one of its start, and the one beside it in a move."""
    return node_name("file", disk), node_name("next", disk)


def kernel_command_line(hvparams: Params) -> str:
    """Return the command line of a directly booted kernel."""
    root = str(hvparams["root_path"])
    if any(character.isspace() for character in root):
        raise HypervisorError(
            f"root_path {root!r:.80} must be one word; set further words in kernel_args"
        )
    words = [f"root={root}"] if root else []
    if hvparams["serial_console"]:
        words.append(f"console=ttyS0,{hvparams['serial_speed']}")
    return " ".join([*words, str(hvparams["kernel_args"])]).strip()


def _monitor(name: str, path: Path) -> list[str]:
    socket = option("socket", id=f"{name}-monitor", path=str(path), server=True, wait=False)
    return ["-chardev", socket, "-mon", option(chardev=f"{name}-monitor", mode="control")]


def _serial(resolved: Resolved) -> list[str]:
    """Return a console that is always drained: without a client, QEMU writes only to the log."""
    if not resolved.hvparams["serial_console"]:
        return []
    files = resolved.files
    socket = option(
        "socket", id="console", path=str(files.console), server=True, wait=False,
        logfile=str(files.console_log), logappend=True,
    )  # fmt: skip
    return ["-chardev", socket, "-serial", "chardev:console"]


def _kernel(hvparams: Params) -> list[str]:
    if not hvparams["kernel_path"]:
        return []
    words = ["-kernel", str(hvparams["kernel_path"]), "-append", kernel_command_line(hvparams)]
    if hvparams["initrd_path"]:
        words += ["-initrd", str(hvparams["initrd_path"])]
    return words


def _ports(machine: str) -> list[str]:
    """Return the slots for hotplug, for machines without built-in ones."""
    return [word for port in root_ports(machine) for word in ("-device", device_option(port))]


def _ide_disks(instance: InstanceSpec, resolved: Resolved) -> int:
    """Return how many positions of IDE the disks occupy."""
    return len(instance.disks) if resolved.hvparams["disk_type"] == "ide" else 0


def _check_places(instance: InstanceSpec, resolved: Resolved) -> None:
    kind, wanted = str(resolved.hvparams["disk_type"]), len(instance.disks)
    places = wanted
    if kind == "ide":
        places = SATA_PORTS if is_q35(resolved.machine) else IDE_UNITS
    elif kind.startswith("scsi") and resolved.hvparams["scsi_controller_type"] == "lsi":
        kind, places = "scsi, with scsi_controller_type=lsi,", _LSI_DISKS
    if wanted > places:
        raise HypervisorError(
            f"{instance.name} has {wanted} disks; disk_type={kind} supports {places},"
            " disk_type=paravirtual supports more"
        )


def _disks(instance: InstanceSpec, resolved: Resolved) -> list[str]:
    _check_places(instance, resolved)
    words: list[str] = []
    if str(resolved.hvparams["disk_type"]).startswith("scsi"):
        words += ["-device", option(str(resolved.hvparams["scsi_controller_type"]), id="scsi0")]
    if resolved.hvparams["cdrom_disk_type"] == "scsi":
        words += ["-device", option("virtio-scsi-pci", id="scsi-cd")]
    for disk, backend in zip(instance.disks, resolved.disks, strict=True):
        for node in start_nodes(disk, backend, resolved.hvparams):
            words += ["-blockdev", option(**_flat(node))]
        slot = resolved.slots.get(disk.uuid, disk.index)
        pairs = disk_device(disk, backend, resolved.hvparams, resolved.machine, slot)
        if boots_from(resolved.hvparams, "disk"):
            pairs["bootindex"] = disk.index + 1
        words += ["-device", device_option(pairs)]
    return words


def start_nodes(disk: DiskSpec, backend: DiskBackend, hvparams: Params) -> list[dict[str, Any]]:
    """Return the nodes of a disk for the start of a guest, the lowest first."""
    if backend.above is None:
        return backend_nodes(disk, backend, hvparams)
    return [{**backend.above, "node-name": node_name("above", disk)}]


def backend_nodes(disk: DiskSpec, backend: DiskBackend, hvparams: Params) -> list[dict[str, Any]]:
    """Return the file layer and the format layer above it in the form of `blockdev-add`: its format is never probed."""
    read_only = disk.mode == "ro"
    cache = {"direct": backend.direct, "no-flush": False}
    if backend.remote is not None:
        where = backend.remote
    else:
        driver = "host_device" if backend.is_block else "file"
        where = {"driver": driver, "filename": backend.path, "locking": "auto"}
    lower: dict[str, Any] = {
        **where,
        "node-name": node_name("file", disk),
        "read-only": read_only,
        "cache": cache,
    }
    upper = {
        "driver": disk_format(disk.template, disk.params),
        "node-name": node_name("disk", disk),
        "file": node_name("file", disk),
        "read-only": read_only,
        "cache": cache,
    }
    discard = str(hvparams["disk_discard"])
    further = {} if discard == "default" else {"discard": discard}
    aio = {} if backend.remote is not None else _aio(disk, backend, hvparams)
    return [lower | aio | further, upper | further]


def _aio(disk: DiskSpec, backend: DiskBackend, hvparams: Params) -> dict[str, str]:
    """Check disk_aio. QEMU's own threads need no option; the kernel's older interface needs a disabled host cache."""
    how = str(hvparams["disk_aio"])
    if how == "native" and not backend.direct:
        raise HypervisorError(
            f"disk {disk.index}: disk_aio=native needs disk_cache=none, and a file system with"
            " direct I/O; or set disk_aio=threads"
        )
    return {} if how == "threads" else {"aio": how}


def disk_device(
    disk: DiskSpec, backend: DiskBackend, hvparams: Params, machine: str, slot: int
) -> dict[str, Any]:
    """Return the guest's side of a disk, in the form of `device_add`."""
    kind = str(hvparams["disk_type"])
    pairs: dict[str, Any] = {
        "driver": _DISK_DRIVERS[kind],
        "id": device_id("disk", disk.uuid),
        "drive": node_name("above" if backend.above else "disk", disk),
        "serial": disk.uuid[:_SERIAL_LIMIT],
        "write-cache": "off" if backend.writethrough else "on",
        **({"rerror": "stop", "werror": "stop"} if backend.above else {}),
    }
    if kind == "ide":
        return pairs | ide_address(disk.index, machine)
    if kind.startswith("scsi"):
        return pairs | {"bus": "scsi0.0", "scsi-id": slot}
    return pairs | pci_address(machine, disk_pci_slot(slot))


def _nics(instance: InstanceSpec, resolved: Resolved) -> list[str]:
    words: list[str] = []
    for nic, tap in zip(instance.nics, resolved.taps, strict=True):
        slot = resolved.slots.get(nic.uuid, nic.index)
        pairs = nic_device(nic, resolved.hvparams, resolved.machine, slot)
        if boots_from(resolved.hvparams, "network"):
            pairs["bootindex"] = nic.index + 1
        words += ["-netdev", _netdev(nic, tap, resolved.hvparams), "-device", device_option(pairs)]
    return words


def _netdev(nic: NicSpec, tap: str, hvparams: Params) -> str:
    pairs: dict[str, str | int | bool] = {
        "id": netdev_id(nic), "ifname": tap, "script": "no", "downscript": "no"
    }  # fmt: skip
    if not hvparams["vnet_hdr"]:
        pairs["vnet__hdr"] = False
    if hvparams["vhost_net"]:
        pairs["vhost"] = True
    if (queues := nic_queues(hvparams)) > 1:
        pairs["queues"] = queues
    return option("tap", **pairs)


def nic_queues(hvparams: Params) -> int:
    """Return the queues of each interface from its start; only paravirtual ones have more than one."""
    return int(hvparams["virtio_net_queues"]) if hvparams["nic_type"] == "paravirtual" else 1


def netdev_id(nic: NicSpec) -> str:
    """Return the host's side of a NIC, in QEMU."""
    return device_id("net", nic.uuid)


def nic_device(nic: NicSpec, hvparams: Params, machine: str, slot: int) -> dict[str, Any]:
    """Return the guest's side of a NIC, in the form of `device_add`."""
    kind = str(hvparams["nic_type"])
    pairs: dict[str, Any] = {
        "driver": "virtio-net-pci" if kind == "paravirtual" else kind,
        "id": device_id("nic", nic.uuid),
        "netdev": netdev_id(nic),
        "mac": nic.mac,
    }
    if kind in _ISA_NICS:
        return pairs
    if (queues := nic_queues(hvparams)) > 1:
        # An interrupt for each direction of each queue, one for control, one for changes.
        pairs |= {"mq": True, "vectors": 2 * queues + 2}
    if hvparams["boot_order"] != "network":
        pairs["romfile"] = ""  # nothing boots from it, and a confined QEMU could not open the file
    return pairs | pci_address(machine, nic_pci_slot(slot))


def device_option(pairs: Mapping[str, Any]) -> str:
    """Return the arguments of `device_add` in the form of a command line."""
    return option(pairs["driver"], **{name: pairs[name] for name in pairs if name != "driver"})


def _flat(node: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested values into names with dots, as on a command line."""
    flat: dict[str, Any] = {}
    for name, value in node.items():
        inner = _flat(value).items() if isinstance(value, dict) else None
        flat |= {f"{name}.{key}": one for key, one in inner} if inner else {name: value}
    return flat
