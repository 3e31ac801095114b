"""The command line of QEMU, as a pure function of what was decided before.

A value never becomes part of another option: each option is made by `option`, which doubles
commas, the only character that ends a value, and refuses control characters (A44).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.places import device_id, disk_slot, nic_slot, pci_place, root_ports
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.model.params import Params

DEFAULT_MACHINE = "pc"
BALLOON = "balloon"
"""The device through which a running guest gives memory back."""
IDE_DISKS = 4
_DISK_DRIVERS = {"paravirtual": "virtio-blk-pci", "scsi": "scsi-hd", "ide": "ide-hd"}
_NIC_DRIVERS = {"paravirtual": "virtio-net-pci", "e1000": "e1000", "rtl8139": "rtl8139"}
_SERIAL_LIMIT = 20
"""Bytes that virtio-blk has for a serial number."""
_LESS_KIB = 8
_FIRST_PRINTABLE, _DELETE = 32, 127
_SMALL_TRANSLATION_CACHE_MIB, _BIG_TRANSLATION_CACHE_MIB, _SMALL_GUEST_MIB = 32, 128, 512


@dataclass(frozen=True)
class DiskBackend:
    """How one disk is opened, found out on this host."""

    path: str
    is_block: bool
    """A block device, else a file."""
    direct: bool
    """Past the host's cache."""
    writethrough: bool = False


@dataclass(frozen=True)
class Resolved:
    """Everything about one start that is not in the instance's description."""

    program: str
    accelerator: str
    machine: str
    files: GuestFiles
    hvparams: Params
    """Complete: with a value for every parameter that the hypervisor knows."""
    disks: Sequence[DiskBackend] = ()
    taps: Sequence[str] = ()
    is_incoming: bool = False
    places: Mapping[str, int] = field(default_factory=dict)
    """UUID of a disk or NIC -> its place; without one, its index (`ganeti.hypervisor.kvm.places`)."""


def option(*words: str, **pairs: str | int | bool) -> str:
    """One option's value: leading words, then `name=value`; `_` in a name stands for `-`."""
    parts = [_escaped(word) for word in words]
    parts += [f"{name.replace('_', '-')}={_escaped(_text(value))}" for name, value in pairs.items()]
    return ",".join(parts)


def qemu_command(instance: InstanceSpec, resolved: Resolved) -> list[str]:
    """The words that start the guest, stopped before its first instruction."""
    return [
        resolved.program,
        "-no-user-config",
        "-nodefaults",
        "-S",
        *("-display", "none"),
        *("-msg", "timestamp=on"),
        *("-name", option(guest=instance.name)),
        *("-uuid", instance.uuid),
        *("-machine", _machine(resolved)),
        *("-accel", accelerator_option(resolved.accelerator, instance)),
        *("-smp", str(instance.vcpus)),
        *("-m", option(size=_memory(instance, resolved.accelerator))),
        *("-rtc", "base=utc"),
        *_monitor("driver", resolved.files.monitor),
        *_monitor("people", resolved.files.people_monitor),
        *_serial(resolved),
        *_kernel(resolved.hvparams),
        *("-device", option("virtio-balloon-pci", id=BALLOON)),
        *_ports(resolved.machine),
        *_disks(instance, resolved),
        *_nics(instance, resolved),
        *(("-incoming", "defer") if resolved.is_incoming else ()),
    ]


def accelerator_option(accelerator: str, instance: InstanceSpec) -> str:
    """KVM, or emulation with a cache for translated code that fits a small guest."""
    if accelerator == "kvm":
        return "kvm"
    small = instance.memory <= _SMALL_GUEST_MIB
    cache_mib = _SMALL_TRANSLATION_CACHE_MIB if small else _BIG_TRANSLATION_CACHE_MIB
    thread = "multi" if instance.vcpus > 1 else "single"
    return option("tcg", thread=thread, tb_size=cache_mib)


def node_name(kind: str, disk: DiskSpec) -> str:
    """The name of a disk's node in QEMU: stable, and within its 31 bytes."""
    return f"{kind}-{disk.uuid.replace('-', '')[:24]}"


def kernel_command_line(hvparams: Params) -> str:
    """What the kernel is told when it is started directly."""
    root = str(hvparams["root_path"])
    if any(character.isspace() for character in root):
        raise HypervisorError(
            f"root_path {root!r:.80} is not one word; set further words in kernel_args"
        )
    words = [f"root={root}"] if root else []
    if hvparams["serial_console"]:
        words.append("console=ttyS0,38400")
    return " ".join([*words, str(hvparams["kernel_args"])]).strip()


def _escaped(value: str) -> str:
    if any(ord(c) < _FIRST_PRINTABLE or ord(c) == _DELETE for c in value):
        raise HypervisorError(
            f"{value!r:.80} contains a control character; QEMU cannot be given that"
        )
    return value.replace(",", ",,")


def _text(value: str | int | bool) -> str:  # noqa: FBT001 - a value of QEMU, not a switch of ours
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _memory(instance: InstanceSpec, accelerator: str) -> str:
    if accelerator == "kvm":
        return f"{instance.memory}M"
    # Under emulation QEMU 7.2 loses memory writes while it migrates a guest whose memory it can
    # look through in whole words of its dirty bitmap (256 KiB); see docs/design/hypervisor.md.
    return f"{instance.memory * 1024 - _LESS_KIB}k"


def _machine(resolved: Resolved) -> str:
    return option(type=resolved.machine or DEFAULT_MACHINE, acpi=bool(resolved.hvparams["acpi"]))


def _monitor(name: str, path: Path) -> list[str]:
    socket = option("socket", id=f"{name}-monitor", path=str(path), server=True, wait=False)
    return ["-chardev", socket, "-mon", option(chardev=f"{name}-monitor", mode="control")]


def _serial(resolved: Resolved) -> list[str]:
    """A console that is always drained: without a client, QEMU writes to the log alone."""
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
    """The slots into which devices can be put while the guest runs, where the machine has none by itself."""
    return [word for port in root_ports(machine) for word in ("-device", _device(port))]


def _disks(instance: InstanceSpec, resolved: Resolved) -> list[str]:
    kind = str(resolved.hvparams["disk_type"])
    if kind == "ide" and len(instance.disks) > IDE_DISKS:
        raise HypervisorError(
            f"{instance.name} has {len(instance.disks)} disks; disk_type=ide takes {IDE_DISKS},"
            " disk_type=paravirtual takes more"
        )
    words: list[str] = []
    if kind == "scsi":
        words += ["-device", option("virtio-scsi-pci", id="scsi0")]
    for disk, backend in zip(instance.disks, resolved.disks, strict=True):
        for node in backend_nodes(disk, backend):
            words += ["-blockdev", option(**_flat(node))]
        place = resolved.places.get(disk.uuid, disk.index)
        pairs = disk_device(disk, backend, resolved.hvparams, resolved.machine, place)
        if resolved.hvparams["boot_order"] == "disk" and not resolved.hvparams["kernel_path"]:
            pairs["bootindex"] = disk.index + 1
        words += ["-device", _device(pairs)]
    return words


def backend_nodes(disk: DiskSpec, backend: DiskBackend) -> list[dict[str, Any]]:
    """The file below, and the format above it: named as raw, never probed. As `blockdev-add` takes them."""
    read_only = disk.mode == "ro"
    cache = {"direct": backend.direct, "no-flush": False}
    lower = {
        "driver": "host_device" if backend.is_block else "file",
        "node-name": node_name("file", disk),
        "filename": backend.path,
        "read-only": read_only,
        "locking": "auto",
        "cache": cache,
    }
    upper = {
        "driver": "raw",
        "node-name": node_name("disk", disk),
        "file": node_name("file", disk),
        "read-only": read_only,
        "cache": cache,
    }
    return [lower, upper]


def disk_device(
    disk: DiskSpec, backend: DiskBackend, hvparams: Params, machine: str, place: int
) -> dict[str, Any]:
    """What the guest sees of a disk, as `device_add` takes it."""
    kind = str(hvparams["disk_type"])
    pairs: dict[str, Any] = {
        "driver": _DISK_DRIVERS[kind],
        "id": device_id("disk", disk.uuid),
        "drive": node_name("disk", disk),
        "serial": disk.uuid[:_SERIAL_LIMIT],
        "write-cache": "off" if backend.writethrough else "on",
    }
    if kind == "ide":
        return pairs | {"bus": f"ide.{disk.index // 2}", "unit": disk.index % 2}
    if kind == "scsi":
        return pairs | {"bus": "scsi0.0", "scsi-id": place}
    return pairs | pci_place(machine, disk_slot(place))


def _nics(instance: InstanceSpec, resolved: Resolved) -> list[str]:
    words: list[str] = []
    for nic, tap in zip(instance.nics, resolved.taps, strict=True):
        netdev = option("tap", id=netdev_id(nic), ifname=tap, script="no", downscript="no")
        place = resolved.places.get(nic.uuid, nic.index)
        pairs = nic_device(nic, resolved.hvparams, resolved.machine, place)
        if resolved.hvparams["boot_order"] == "network" and not resolved.hvparams["kernel_path"]:
            pairs["bootindex"] = nic.index + 1
        words += ["-netdev", netdev, "-device", _device(pairs)]
    return words


def netdev_id(nic: NicSpec) -> str:
    """The host's side of a NIC, in QEMU."""
    return device_id("net", nic.uuid)


def nic_device(nic: NicSpec, hvparams: Params, machine: str, place: int) -> dict[str, Any]:
    """What the guest sees of a NIC, as `device_add` takes it."""
    pairs = {
        "driver": _NIC_DRIVERS[str(hvparams["nic_type"])],
        "id": device_id("nic", nic.uuid),
        "netdev": netdev_id(nic),
        "mac": nic.mac,
    }
    if hvparams["boot_order"] != "network":
        pairs["romfile"] = ""  # nothing boots from it, and a confined QEMU could not open the file
    return pairs | pci_place(machine, nic_slot(place))


def _device(pairs: Mapping[str, Any]) -> str:
    """What `device_add` takes, on a command line."""
    return option(pairs["driver"], **{name: pairs[name] for name in pairs if name != "driver"})


def _flat(node: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values with dots in their names, as on a command line."""
    flat: dict[str, Any] = {}
    for name, value in node.items():
        inner = value.items() if isinstance(value, dict) else None
        flat |= {f"{name}.{key}": one for key, one in inner} if inner else {name: value}
    return flat
