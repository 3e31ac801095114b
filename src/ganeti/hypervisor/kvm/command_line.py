"""The command line of QEMU, as a pure function of what was decided before.

A value never becomes part of another option: each option is made by `option`, which doubles
commas, the only character that ends a value, and refuses control characters (A44).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.model.params import Params

DEFAULT_MACHINE = "pc"
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


def _disks(instance: InstanceSpec, resolved: Resolved) -> list[str]:
    kind = str(resolved.hvparams["disk_type"])
    if kind == "ide" and len(instance.disks) > IDE_DISKS:
        raise HypervisorError(
            f"{instance.name} has {len(instance.disks)} disks; disk_type=ide takes {IDE_DISKS},"
            " disk_type=paravirtual takes more"
        )
    words: list[str] = []
    if kind == "scsi" and instance.disks:
        words += ["-device", option("virtio-scsi-pci", id="scsi0")]
    for disk, backend in zip(instance.disks, resolved.disks, strict=True):
        words += _backend(disk, backend)
        words += ["-device", _disk_device(disk, backend, resolved.hvparams)]
    return words


def _backend(disk: DiskSpec, backend: DiskBackend) -> list[str]:
    """The file below, and the format above it: named as raw, never probed."""
    opened = {
        "driver": "host_device" if backend.is_block else "file",
        "node_name": node_name("file", disk),
        "filename": backend.path,
    }
    read_only = disk.mode == "ro"
    lower = option(**opened, read_only=read_only, locking="auto")
    cache = option(**{"cache.direct": backend.direct, "cache.no-flush": False})
    upper = option(
        driver="raw",
        node_name=node_name("disk", disk),
        file=node_name("file", disk),
        read_only=read_only,
    )
    return ["-blockdev", f"{lower},{cache}", "-blockdev", f"{upper},{cache}"]


def _disk_device(disk: DiskSpec, backend: DiskBackend, hvparams: Params) -> str:
    kind = str(hvparams["disk_type"])
    pairs: dict[str, str | int | bool] = {
        "id": f"disk{disk.index}",
        "drive": node_name("disk", disk),
        "serial": disk.uuid[:_SERIAL_LIMIT],
        "write_cache": not backend.writethrough,
    }
    if kind == "ide":
        pairs |= {"bus": f"ide.{disk.index // 2}", "unit": disk.index % 2}
    elif kind == "scsi":
        pairs |= {"bus": "scsi0.0", "scsi_id": disk.index}
    if hvparams["boot_order"] == "disk" and not hvparams["kernel_path"]:
        pairs["bootindex"] = disk.index + 1
    # The underscore in `write_cache` and `scsi_id` stands for a hyphen, as QEMU spells them.
    return option(_DISK_DRIVERS[kind], **pairs)


def _nics(instance: InstanceSpec, resolved: Resolved) -> list[str]:
    words: list[str] = []
    for nic, tap in zip(instance.nics, resolved.taps, strict=True):
        words += [
            "-netdev",
            option("tap", id=f"net{nic.index}", ifname=tap, script="no", downscript="no"),
        ]
        words += ["-device", _nic_device(nic, resolved.hvparams)]
    return words


def _nic_device(nic: NicSpec, hvparams: Params) -> str:
    pairs: dict[str, str | int | bool] = {
        "id": f"nic{nic.index}",
        "netdev": f"net{nic.index}",
        "mac": nic.mac,
    }
    if hvparams["boot_order"] == "network" and not hvparams["kernel_path"]:
        pairs["bootindex"] = nic.index + 1
    return option(_NIC_DRIVERS[str(hvparams["nic_type"])], **pairs)
