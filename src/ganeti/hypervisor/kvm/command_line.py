"""The command line of QEMU, as a pure function of what was decided before.

A value never becomes part of another option: each option is made by `option` (A44). Here are the
parts that every guest has, its disks and its network; `machine`, `display` and `images` make the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.display import Spice, channel_words, display_words
from ganeti.hypervisor.kvm.images import (
    IDE_PLACES,
    SATA_PLACES,
    boots_from,
    ide_place,
    image_words,
)
from ganeti.hypervisor.kvm.machine import (
    Firmware,
    accelerator_option,
    clock_words,
    cpu_words,
    extra_words,
    is_q35,
    machine_words,
    memory_words,
    port_words,
)
from ganeti.hypervisor.kvm.options import option
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.model.params import Params

_DISK_DRIVERS = {
    "paravirtual": "virtio-blk-pci",
    "scsi": "scsi-hd",
    "scsi-hd": "scsi-hd",
    "ide": "ide-hd",
}
_LSI_DISKS = 7
_SERIAL_LIMIT = 20
"""Bytes that virtio-blk has for a serial number."""


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
    firmware: Firmware | None = None
    """Flash chips, for a UEFI guest."""
    spice: Spice = field(default_factory=Spice)


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
        *machine_words(resolved.machine, resolved.hvparams, resolved.firmware),
        *("-accel", accelerator_option(resolved.accelerator, instance)),
        *cpu_words(instance, resolved.hvparams),
        *memory_words(instance, resolved.accelerator, resolved.hvparams),
        *clock_words(resolved.hvparams),
        *_monitor("driver", resolved.files.monitor),
        *_monitor("people", resolved.files.people_monitor),
        *_serial(resolved),
        *_kernel(resolved.hvparams),
        *port_words(resolved.machine, resolved.hvparams),
        *_disks(instance, resolved),
        *image_words(resolved.machine, resolved.hvparams, _ide_disks(instance, resolved)),
        *_nics(instance, resolved),
        *display_words(instance, resolved.hvparams, resolved.spice),
        *channel_words(resolved.hvparams, resolved.files.guest_agent),
        *(("-incoming", "defer") if resolved.is_incoming else ()),
        *extra_words(resolved.hvparams),
    ]


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
        words.append(f"console=ttyS0,{hvparams['serial_speed']}")
    return " ".join([*words, str(hvparams["kernel_args"])]).strip()


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


def _ide_disks(instance: InstanceSpec, resolved: Resolved) -> int:
    """How many places of IDE the disks take."""
    return len(instance.disks) if resolved.hvparams["disk_type"] == "ide" else 0


def _disks(instance: InstanceSpec, resolved: Resolved) -> list[str]:
    hvparams = resolved.hvparams
    _check_places(instance, resolved)
    words: list[str] = []
    if str(hvparams["disk_type"]).startswith("scsi") and instance.disks:
        words += ["-device", option(str(hvparams["scsi_controller_type"]), id="scsi0")]
    if hvparams["cdrom_disk_type"] == "scsi":
        words += ["-device", option("virtio-scsi-pci", id="scsi-cd")]
    for disk, backend in zip(instance.disks, resolved.disks, strict=True):
        words += _backend(disk, backend, hvparams)
        words += ["-device", _disk_device(disk, backend, resolved)]
    return words


def _check_places(instance: InstanceSpec, resolved: Resolved) -> None:
    kind, wanted = str(resolved.hvparams["disk_type"]), len(instance.disks)
    places = wanted
    if kind == "ide":
        places = SATA_PLACES if is_q35(resolved.machine) else IDE_PLACES
    elif kind.startswith("scsi") and resolved.hvparams["scsi_controller_type"] == "lsi":
        kind, places = "scsi, with scsi_controller_type=lsi,", _LSI_DISKS
    if wanted > places:
        raise HypervisorError(
            f"{instance.name} has {wanted} disks; disk_type={kind} takes {places},"
            " disk_type=paravirtual takes more"
        )


def _backend(disk: DiskSpec, backend: DiskBackend, hvparams: Params) -> list[str]:
    """The file below, and the format above it: named as raw, never probed."""
    opened: dict[str, str | int | bool] = {
        "driver": "host_device" if backend.is_block else "file",
        "node_name": node_name("file", disk),
        "filename": backend.path,
    }
    read_only = disk.mode == "ro"
    further = _discard(hvparams)
    lower = option(**opened, read_only=read_only, locking="auto", **_aio(disk, backend, hvparams))
    cache = option(**{"cache.direct": backend.direct, "cache.no-flush": False}, **further)
    upper = option(
        driver="raw",
        node_name=node_name("disk", disk),
        file=node_name("file", disk),
        read_only=read_only,
    )
    return ["-blockdev", f"{lower},{cache}", "-blockdev", f"{upper},{cache}"]


def _aio(disk: DiskSpec, backend: DiskBackend, hvparams: Params) -> dict[str, str]:
    """QEMU's own threads need no word; its other way to the kernel works past the host's cache only."""
    how = str(hvparams["disk_aio"])
    if how == "native" and not backend.direct:
        raise HypervisorError(
            f"disk {disk.index}: disk_aio=native needs disk_cache=none, and a file system that can"
            " be read past the cache of the host; or set disk_aio=threads"
        )
    return {} if how == "threads" else {"aio": how}


def _discard(hvparams: Params) -> dict[str, str]:
    how = str(hvparams["disk_discard"])
    return {} if how == "default" else {"discard": how}


def _disk_device(disk: DiskSpec, backend: DiskBackend, resolved: Resolved) -> str:
    hvparams = resolved.hvparams
    kind = str(hvparams["disk_type"])
    pairs: dict[str, str | int | bool] = {
        "id": f"disk{disk.index}",
        "drive": node_name("disk", disk),
        "serial": disk.uuid[:_SERIAL_LIMIT],
        "write_cache": not backend.writethrough,
    }
    if kind == "ide":
        pairs |= ide_place(disk.index, resolved.machine)
    elif kind.startswith("scsi"):
        pairs |= {"bus": "scsi0.0", "scsi_id": disk.index}
    if boots_from(hvparams, "disk"):
        pairs["bootindex"] = disk.index + 1
    # The underscore in `write_cache` and `scsi_id` stands for a hyphen, as QEMU spells them.
    return option(_DISK_DRIVERS[kind], **pairs)


def _nics(instance: InstanceSpec, resolved: Resolved) -> list[str]:
    words: list[str] = []
    for nic, tap in zip(instance.nics, resolved.taps, strict=True):
        words += ["-netdev", _netdev(nic, tap, resolved.hvparams)]
        words += ["-device", _nic_device(nic, resolved.hvparams)]
    return words


def _netdev(nic: NicSpec, tap: str, hvparams: Params) -> str:
    pairs: dict[str, str | int | bool] = {
        "id": f"net{nic.index}",
        "ifname": tap,
        "script": "no",
        "downscript": "no",
    }
    if not hvparams["vnet_hdr"]:
        pairs["vnet__hdr"] = False
    if hvparams["vhost_net"]:
        pairs["vhost"] = True
    if (queues := nic_queues(hvparams)) > 1:
        pairs["queues"] = queues
    return option("tap", **pairs)


def nic_queues(hvparams: Params) -> int:
    """Queues of each interface; only paravirtual ones have more than one."""
    return int(hvparams["virtio_net_queues"]) if hvparams["nic_type"] == "paravirtual" else 1


def _nic_device(nic: NicSpec, hvparams: Params) -> str:
    pairs: dict[str, str | int | bool] = {
        "id": f"nic{nic.index}",
        "netdev": f"net{nic.index}",
        "mac": nic.mac,
    }
    if (queues := nic_queues(hvparams)) > 1:
        # An interrupt for each direction of each queue, one for control, one for changes.
        pairs |= {"mq": True, "vectors": 2 * queues + 2}
    if boots_from(hvparams, "network"):
        pairs["bootindex"] = nic.index + 1
    kind = str(hvparams["nic_type"])
    return option("virtio-net-pci" if kind == "paravirtual" else kind, **pairs)
