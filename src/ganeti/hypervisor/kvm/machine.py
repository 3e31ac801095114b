"""The guest's board: machine type, firmware, CPUs, memory, clock; pure.

The firmware of a UEFI guest is two flash chips: the code, which all guests share, and the variables, a file of
its own.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.options import option
from ganeti.hypervisor.kvm.pci_slots import has_root_ports
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params

DEFAULT_MACHINE = "pc"
_LESS_KIB = 8
_ROOMY_TRANSLATION_CACHE_MIB = 1024
"""For guests that may get processors: QEMU ends when it adds one while no part of the cache is free."""
_SMALL_TRANSLATION_CACHE_MIB, _BIG_TRANSLATION_CACHE_MIB, _SMALL_GUEST_MIB = 32, 128, 512
is_q35 = has_root_ports
_SPEAKER = "pcspk"
ADDED_MEMORY = "added-memory"
"""The device through which a running guest gets more memory than at its start."""
BLOCK_MIB = 2
"""Memory comes in blocks of this size."""
AUDIO = "audio"
"""Id of the sound that a card plays."""


@dataclass(frozen=True)
class Firmware:
    """The two flash chips of a UEFI guest."""

    code: Path
    variables: Path


def machine_words(machine: str, hvparams: Params, firmware: Firmware | None) -> list[str]:
    """Return `-machine`, and its flash chips."""
    pairs: dict[str, str | int | bool] = {
        "type": machine or DEFAULT_MACHINE,
        "acpi": bool(hvparams["acpi"]),
    }
    if hvparams["soundhw"] == _SPEAKER:
        pairs["pcspk_audiodev"] = AUDIO
    if firmware is None:
        return ["-machine", option(**pairs)]
    return [
        *_flash("code", firmware.code, read_only=True),
        *_flash("variables", firmware.variables, read_only=False),
        "-machine",
        option(**pairs, pflash0="firmware-code", pflash1="firmware-variables"),
    ]


def accelerator_option(accelerator: str, instance: InstanceSpec, hvparams: Params) -> str:
    """Return KVM, or emulation with a code cache that fits a small guest."""
    if accelerator == "kvm":
        return "kvm"
    small = instance.memory <= _SMALL_GUEST_MIB
    cache_mib = _SMALL_TRANSLATION_CACHE_MIB if small else _BIG_TRANSLATION_CACHE_MIB
    most = most_vcpus(instance, hvparams)
    if most > instance.vcpus:
        cache_mib = _ROOMY_TRANSLATION_CACHE_MIB
    thread = "multi" if most > 1 else "single"
    return option("tcg", thread=thread, tb_size=cache_mib)


def most_vcpus(instance: InstanceSpec, hvparams: Params) -> int:
    """Return how many processors the guest can have, with those at its start (`instance`)."""
    return max(instance.vcpus, int(hvparams["max_vcpus"]))


def cpu_words(instance: InstanceSpec, hvparams: Params) -> list[str]:
    """Return `-smp` with the configured topology, and `-cpu`. The topology has the processors to be added, too."""
    most = most_vcpus(instance, hvparams)
    topology = {name: int(hvparams[f"cpu_{name}"]) for name in ("sockets", "cores", "threads")}
    given = {name: count for name, count in topology.items() if count}
    product = 1
    for count in given.values():
        product *= count
    complete = len(given) == len(topology)
    if most % product or (complete and product != most):
        said = " x ".join(f"{count} {name}" for name, count in given.items())
        raise HypervisorError(
            f"{instance.name} has {most} CPUs, which are not {said}; change vcpus, max_vcpus or"
            " cpu_sockets, cpu_cores, cpu_threads"
        )
    room = {"maxcpus": most} if most > instance.vcpus else {}
    words = ["-smp", option(str(instance.vcpus), **room, **given)]
    if hvparams["cpu_type"]:
        # Checked in its form (model and features); its commas are intended.
        words += ["-cpu", str(hvparams["cpu_type"])]
    return words


def memory_words(instance: InstanceSpec, accelerator: str, hvparams: Params) -> list[str]:
    """Return `-m` and the reserve, or huge pages if configured."""
    if hvparams["mem_path"]:
        return [
            *("-m", option(size=f"{instance.memory}M")),
            *("-mem-path", str(hvparams["mem_path"]), "-mem-prealloc"),
        ]
    size = _memory(instance, accelerator)
    if not (reserve := reserve_mib(instance, hvparams)):
        return ["-m", option(size=size)]
    return [
        *("-m", option(size=size, maxmem=f"{instance.memory + reserve}M")),
        *("-object", option("memory-backend-ram", id="reserve", size=f"{reserve}M", reserve=False)),
    ]


def reserve_mib(instance: InstanceSpec, hvparams: Params) -> int:
    """Return the MiB that the guest can get above those of its start (`instance`)."""
    return max(0, int(hvparams["max_memory"]) - instance.memory) // BLOCK_MIB * BLOCK_MIB


def reserve_device(instance: InstanceSpec, hvparams: Params) -> list[str]:
    """Return the device through which the guest gets its reserve, if it has one."""
    if not reserve_mib(instance, hvparams):
        return []
    # The size of a block would depend on the host, but must be the same on the next node.
    pairs = {"id": ADDED_MEMORY, "memdev": "reserve", "block_size": f"{BLOCK_MIB}M"}
    return ["-device", option("virtio-mem-pci", **pairs, requested_size=0)]


def clock_words(hvparams: Params) -> list[str]:
    """Return `-rtc`, and the action when a guest reboots or shuts itself down."""
    words = ["-rtc", option(base="localtime" if hvparams["use_localtime"] else "utc")]
    if hvparams["reboot_behavior"] == "exit":
        words.append("-no-reboot")
    if hvparams["user_shutdown"]:
        words.append("-no-shutdown")
    return words


def fault_words(hvparams: Params) -> list[str]:
    """Return the devices that notice a hung or panicked guest; QEMU pauses it, which the driver sees."""
    devices, actions = list[str](), dict[str, str]()
    if hvparams["watchdog"] != "none":
        devices += ["-device", option(str(hvparams["watchdog"]), id="watchdog")]
        actions["watchdog"] = "pause"
    if hvparams["pvpanic"]:
        devices += ["-device", option("pvpanic", id="pvpanic")]
        actions["panic"] = "pause"
    return [*devices, "-action", option(**actions)] if actions else []


def extra_words(hvparams: Params) -> list[str]:
    """Split `kvm_extra` as a shell would, without a shell."""
    try:
        return shlex.split(str(hvparams["kvm_extra"]))
    except ValueError as err:
        raise HypervisorError(f"kvm_extra cannot be split into words: {err}") from err


def _flash(name: str, path: Path, *, read_only: bool) -> list[str]:
    lower, upper = f"firmware-{name}-file", f"firmware-{name}"
    opened = {"driver": "file", "node_name": lower, "filename": str(path)}
    return [
        *("-blockdev", option(**opened, read_only=read_only)),
        *("-blockdev", option(driver="raw", node_name=upper, file=lower, read_only=read_only)),
    ]


def _memory(instance: InstanceSpec, accelerator: str) -> str:
    if accelerator == "kvm":
        return f"{instance.memory}M"
    # Under emulation QEMU 7.2 loses memory writes while it migrates a guest whose memory it can scan in
    # whole words of its dirty bitmap (256 KiB); see docs/design/hypervisor.md.
    return f"{instance.memory * 1024 - _LESS_KIB}k"
