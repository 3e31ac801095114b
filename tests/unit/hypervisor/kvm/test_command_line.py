"""The command line of QEMU: what is in it, and that no value becomes an option."""

import itertools
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm.command_line import (
    DiskBackend,
    Resolved,
    backend_nodes,
    kernel_command_line,
    node_name,
    qemu_command,
)
from ganeti.hypervisor.kvm.options import option
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.model.hypervisor_params import hypervisor_defaults
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec

UUID = "8dea39da-5dea-4e7c-9a63-1c2b3d4e5f60"
DISK = DiskSpec(
    uuid="0b7d5e0a-9c0f-4f6e-8a52-0a1b2c3d4e5f", index=0, size=64, template="file", logical_id=()
)
NIC = NicSpec(uuid="1", index=0, mac="aa:00:00:11:22:33", link="br0")
INSTANCE = InstanceSpec(
    name="web1.example.com",
    uuid=UUID,
    hypervisor="kvm",
    os="tiny",
    memory=96,
    vcpus=1,
    hvparams={},
    disks=(DISK,),
)
PRINTABLE = st.text(st.characters(min_codepoint=32, blacklist_characters="\x7f"), max_size=40)


def resolved(
    *, disks: tuple[DiskBackend, ...] = (DiskBackend("/d", is_block=False, direct=True),),
    taps: tuple[str, ...] = (), incoming: bool = False, **hvparams: object,
) -> Resolved:  # fmt: skip
    return Resolved(
        program="/usr/bin/qemu-system-x86_64",
        accelerator="tcg",
        machine=str(hvparams.pop("machine", "")),
        files=GuestFiles.of(Paths(Path("/r")), UUID),
        hvparams=hypervisor_defaults("kvm") | hvparams,
        disks=disks,
        taps=taps,
        is_incoming=incoming,
    )


def values(words: list[str], name: str) -> list[str]:
    """What follows each occurrence of an option."""
    return [after for word, after in itertools.pairwise(words) if word == name]


def parsed(text: str) -> list[str]:
    """An option's value, taken apart as QEMU does: a comma ends a part, two are one."""
    parts, current, at = [], "", 0
    while at < len(text):
        if text[at] != ",":
            current += text[at]
        elif text[at + 1 : at + 2] == ",":
            current += ","
            at += 1
        else:
            parts.append(current)
            current = ""
        at += 1
    return [*parts, current]


@pytest.mark.requirement("A44")
@given(PRINTABLE, PRINTABLE, PRINTABLE)
def test_no_value_becomes_another_option(first: str, second: str, third: str) -> None:
    text = option("socket", id=first, path=second, server=True, logfile=third)
    assert parsed(text) == [
        "socket",
        f"id={first}",
        f"path={second}",
        "server=on",
        f"logfile={third}",
    ]


@pytest.mark.requirement("A44")
@given(PRINTABLE, PRINTABLE, PRINTABLE)
def test_hostile_parameters_stay_in_their_places(machine: str, path: str, args: str) -> None:
    disks = (DiskBackend(path, is_block=False, direct=True),)
    plain = qemu_command(INSTANCE, resolved(kernel_path="/k", kernel_args="x", machine="m"))
    words = qemu_command(
        INSTANCE, resolved(disks=disks, kernel_path=path or "/k", kernel_args=args, machine=machine)
    )
    assert len(words) == len(plain)
    changed = [plain[at - 1] for at, word in enumerate(words) if word != plain[at]]
    assert set(changed) <= {"-machine", "-kernel", "-append", "-blockdev"}
    assert parsed(values(words, "-machine")[0])[0] == f"type={machine or 'pc'}"
    assert f"filename={path}" in parsed(values(words, "-blockdev")[0])


@pytest.mark.requirement("A44")
@pytest.mark.parametrize("value", ["a\nb", "a\0b", "\x7f", "\t"])
def test_control_characters_are_refused(value: str) -> None:
    with pytest.raises(HypervisorError, match="control character"):
        option(path=value)


def test_a_guest_is_started_stopped_with_requested_options_only() -> None:
    words = qemu_command(INSTANCE, resolved())
    for word in ("-S", "-nodefaults", "-no-user-config"):
        assert word in words
    assert values(words, "-display") == ["none"]
    assert values(words, "-uuid") == [UUID]
    assert values(words, "-accel") == ["tcg,thread=single,tb-size=32"]
    assert values(words, "-machine") == ["type=pc,acpi=on"]
    assert "-incoming" not in words
    assert values(qemu_command(INSTANCE, resolved(incoming=True)), "-incoming") == ["defer"]


def test_disks_are_raw_by_name_and_locked() -> None:
    words = qemu_command(INSTANCE, resolved())
    lower, upper = values(words, "-blockdev")
    assert parsed(lower) == [
        "driver=file",
        "filename=/d",
        "locking=auto",
        "node-name=file-0b7d5e0a9c0f4f6e8a520a1b",
        "read-only=off",
        "cache.direct=on",
        "cache.no-flush=off",
    ]
    assert parsed(upper)[:3] == [
        "driver=raw",
        "node-name=disk-0b7d5e0a9c0f4f6e8a520a1b",
        "file=file-0b7d5e0a9c0f4f6e8a520a1b",
    ]
    assert "drive=disk-0b7d5e0a9c0f4f6e8a520a1b" in parsed(values(words, "-device")[-1])
    assert len(node_name("file", DISK)) <= 31


def test_format_of_a_disk_is_that_of_its_record() -> None:
    for template, driver in (("file", "qcow2"), ("sharedfile", "qcow2"), ("ext", "raw")):
        disk = msgspec.structs.replace(DISK, template=template, params={"format": "qcow2"})
        backend = DiskBackend(path="/x", is_block=False, direct=False)
        lower, upper = backend_nodes(disk, backend, hypervisor_defaults("kvm"))
        assert (lower["driver"], upper["driver"]) == ("file", driver)


def test_qemu_gets_block_device_read_only_and_cache_options() -> None:
    instance = msgspec.structs.replace(INSTANCE, disks=(msgspec.structs.replace(DISK, mode="ro"),))
    backend = DiskBackend("/dev/vg/lv", is_block=True, direct=False, writethrough=True)
    words = qemu_command(instance, resolved(disks=(backend,)))
    lower = parsed(values(words, "-blockdev")[0])
    assert lower[0] == "driver=host_device"
    assert "read-only=on" in lower
    assert "cache.direct=off" in lower
    assert "write-cache=off" in parsed(values(words, "-device")[-1])


@pytest.mark.parametrize(
    ("kind", "device", "place"),
    [
        ("paravirtual", "virtio-blk-pci", "addr=0x8"),
        ("scsi", "scsi-hd", "bus=scsi0.0"),
        ("ide", "ide-hd", "bus=ide.0"),
    ],
)
def test_each_disk_type_has_its_device(kind: str, device: str, place: str) -> None:
    words = qemu_command(INSTANCE, resolved(disk_type=kind))
    parts = parsed(values(words, "-device")[-1])
    assert parts[0] == device
    assert place in parts


def test_more_disks_than_ide_has_places_are_refused() -> None:
    disks = tuple(msgspec.structs.replace(DISK, index=at) for at in range(5))
    instance = msgspec.structs.replace(INSTANCE, disks=disks)
    backends = tuple(DiskBackend(f"/d{at}", is_block=False, direct=True) for at in range(5))
    with pytest.raises(HypervisorError, match="paravirtual supports more"):
        qemu_command(instance, resolved(disks=backends, disk_type="ide"))


def test_the_console_is_always_drained_into_a_log() -> None:
    words = qemu_command(INSTANCE, resolved())
    console = next(parsed(one) for one in values(words, "-chardev") if "id=console" in one)
    assert "path=/r/var/run/ganeti/kvm/8dea39da-5dea.s" in console
    assert "logfile=/r/var/log/ganeti/kvm/8dea39da-5dea.console" in console
    assert "logappend=on" in console
    assert "wait=off" in console
    assert "-serial" not in qemu_command(INSTANCE, resolved(serial_console=False))


def test_a_kernel_is_booted_directly_only_when_it_is_named() -> None:
    assert "-kernel" not in qemu_command(INSTANCE, resolved())
    words = qemu_command(INSTANCE, resolved(kernel_path="/boot/k", initrd_path="/boot/i"))
    assert values(words, "-kernel") == ["/boot/k"]
    assert values(words, "-initrd") == ["/boot/i"]
    assert values(words, "-append") == ["root=/dev/vda1 console=ttyS0,38400 ro"]


def test_a_root_path_of_two_words_is_refused() -> None:
    hvparams = hypervisor_defaults("kvm") | {"root_path": "/dev/vda init=/bin/sh"}
    with pytest.raises(HypervisorError, match="must be one word"):
        kernel_command_line(hvparams)


@pytest.mark.parametrize(
    ("order", "first"), [("disk", "disk_0b7d5e0a9c0f4f6e8a520a1b"), ("network", "nic_1")]
)
def test_the_boot_order_marks_the_first_device(order: str, first: str) -> None:
    instance = msgspec.structs.replace(INSTANCE, nics=(NIC,))
    words = qemu_command(instance, resolved(taps=("gnt0",), boot_order=order))
    marked = [parsed(one) for one in values(words, "-device") if "bootindex=1" in one]
    assert [f"id={first}" in parts for parts in marked] == [True]


def test_a_nic_uses_the_tap_device_made_for_it() -> None:
    instance = msgspec.structs.replace(INSTANCE, nics=(NIC,))
    words = qemu_command(instance, resolved(taps=("gnt12345",)))
    assert values(words, "-netdev") == ["tap,id=net_1,ifname=gnt12345,script=no,downscript=no"]
    assert "mac=aa:00:00:11:22:33" in parsed(values(words, "-device")[-1])


def test_more_processors_use_more_threads_and_kvm_needs_no_words() -> None:
    big = msgspec.structs.replace(INSTANCE, vcpus=4, memory=4096)
    assert values(qemu_command(big, resolved()), "-accel") == ["tcg,thread=multi,tb-size=128"]
    fast = msgspec.structs.replace(INSTANCE)
    with_kvm = Resolved(
        program="q", accelerator="kvm", machine="", files=resolved().files,
        hvparams=hypervisor_defaults("kvm"), disks=resolved().disks,
    )  # fmt: skip
    assert values(qemu_command(fast, with_kvm), "-accel") == ["kvm"]
    assert values(qemu_command(fast, with_kvm), "-m") == ["size=96M"]


@given(st.integers(1, 1_000_000))
def test_an_emulated_guest_has_a_size_that_qemu_migrates_without_losing_writes(mib: int) -> None:
    words = qemu_command(msgspec.structs.replace(INSTANCE, memory=mib), resolved())
    kib = int(values(words, "-m")[0].removeprefix("size=").removesuffix("k"))
    assert kib % 256 != 0
    assert kib % 8 == 0
    assert 0 < mib * 1024 - kib <= 8


@pytest.mark.parametrize("machine", ["pc", "q35"])
@pytest.mark.parametrize("slots", [0, 12, 28])
def test_slots_need_no_reservation_because_every_device_has_its_own(
    machine: str, slots: int
) -> None:
    words = qemu_command(INSTANCE, resolved(machine=machine, kvm_pci_reservations=slots))
    assert words == qemu_command(INSTANCE, resolved(machine=machine))
