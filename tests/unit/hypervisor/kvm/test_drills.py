"""The command line of a drill: nothing of the host, whatever the parameters of the instance are."""

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ganeti.hypervisor.drills import DrillDisk, DrillGuest, Equipment
from ganeti.hypervisor.kvm.drills import drill_command, harmless, is_open_to_group
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS, hypervisor_defaults

pytestmark = pytest.mark.requirement("A44", "A51")

DISK = "11111111-0000-4000-8000-000000000000"
UUID = "22222222-0000-4000-8000-000000000000"
EVERYTHING: dict[str, Any] = {
    "kernel_path": "/boot/secret", "initrd_path": "/boot/secret", "cdrom_image_path": "/srv/secret.iso",
    "floppy_image_path": "/srv/secret.img", "vnc_bind_address": "0.0.0.0", "vnc_password_file": "/etc/ganeti/secret",
    "spice_bind": "0.0.0.0", "usb_devices": "host:1234:5678", "mem_path": "/secret", "kvm_extra": "-net user",
    "kvm_path": "/secret/qemu", "security_model": "none", "vhost_net": True, "cpu_mask": "0", "tpm": True,
    "soundhw": "pcspk", "vga": "qxl", "watchdog": "i6300esb", "use_guest_agent": True, "cpu_type": "host,+vmx",
    "cpu_sockets": 7, "user_shutdown": True, "reboot_behavior": "exit", "serial_console": False,
}  # fmt: skip


def guest(**fields: Any) -> DrillGuest:
    given: dict[str, Any] = {
        "equipment": Equipment("/usr/bin/qemu", "tcg", ""), "hvparams": harmless({}, "tcg"), "uuid": UUID, "memory": 256,
        "vcpus": 2, "disks": [DrillDisk(uuid=DISK, layers=[21, 20], overlay=22)], "console": 30,
    }  # fmt: skip
    return DrillGuest(**{**given, **fields})


def options(words: list[str], name: str) -> list[str]:
    return [value for option, value in itertools.pairwise(words) if option == f"-{name}"]


def test_no_parameter_of_the_host_is_taken() -> None:
    found = harmless({**hypervisor_defaults("kvm"), **EVERYTHING, "unknown": "x"}, "tcg")
    defaults = hypervisor_defaults("kvm")
    for name, param in HYPERVISOR_PARAMS["kvm"].items():
        if param.touches_host:
            assert found[name] == defaults[name], name
    assert found["cpu_type"] == ""
    assert harmless({"cpu_type": "host"}, "kvm")["cpu_type"] == "host"
    text = " ".join(drill_command(guest(hvparams=found)))
    for word in ("secret", "netdev", "-nic", "-net", "vnc", "spice", "host:", "qmp", "-mon", "tpm", "audio", "socket", "usb"):  # fmt: skip
        assert word not in text, word
    assert "ttyS0" not in text


def test_images_are_named_by_descriptors_with_their_format() -> None:
    words = drill_command(guest())
    nodes = [json.loads(one) for one in options(words, "blockdev")]
    files = [one for one in nodes if one["driver"] == "file"]
    images = [one for one in nodes if one["driver"] == "qcow2"]
    assert len(files) + len(images) == len(nodes)
    assert [one["filename"] for one in files] == [f"/dev/fdset/{n}" for n in (20, 21, 22)]
    assert [one["read-only"] for one in images] == [True, True, False]
    assert [one["backing"] for one in images] == [
        None,
        images[0]["node-name"],
        images[1]["node-name"],
    ]
    assert f"drive={images[2]['node-name']}" in " ".join(options(words, "device"))
    assert options(words, "add-fd") == [f"fd={n},set={n}" for n in (30, 22, 21, 20)]
    assert options(words, "uuid") == [UUID]
    assert not any(word.startswith("/") and word != "/usr/bin/qemu" for word in words)


@pytest.mark.parametrize("kind", ["paravirtual", "scsi", "scsi-hd", "ide"])
@pytest.mark.parametrize("machine", ["", "q35"])
def test_each_bus_has_its_disks(kind: str, machine: str) -> None:
    disks = [DrillDisk(uuid=DISK.replace("1", str(n)), layers=[20 + n], overlay=30 + n) for n in range(1, 4)]  # fmt: skip
    given = harmless({"disk_type": kind, "machine_version": machine}, "tcg")
    words = drill_command(guest(hvparams=given, disks=disks))
    assert sum("bootindex" in one for one in options(words, "device")) == 3
    names = [json.loads(one)["node-name"] for one in options(words, "blockdev")]
    assert len(set(names)) == len(names)


def test_kernel_and_agent_are_descriptors_too() -> None:
    hvparams = harmless({"root_path": "/dev/vda", "kernel_args": "quiet"}, "tcg")
    words = drill_command(guest(hvparams=hvparams, kernel=40, initrd=41, agent=True))
    assert options(words, "kernel") == ["/proc/self/fd/40"]
    assert options(words, "initrd") == ["/proc/self/fd/41"]
    assert options(words, "append") == ["root=/dev/vda console=ttyS0,38400 quiet"]
    assert "stdio,id=agent,signal=off" in options(words, "chardev")


@pytest.mark.parametrize(
    ("mode", "group", "is_open"),
    [(0o600, 0, False), (0o660, 0, False), (0o660, 7, True), (0o640, 7, False), (0o666, 0, True)],
)
def test_device_is_used_only_if_a_group_or_all_may(
    tmp_path: Path, mode: int, group: int, is_open: bool
) -> None:
    device = tmp_path / "device"
    assert not is_open_to_group(device)
    device.touch()
    if os.getuid() == 0:
        os.chown(device, 0, group)
        device.chmod(mode)
        assert is_open_to_group(device) == is_open
