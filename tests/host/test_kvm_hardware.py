"""Virtual hardware of real guests: machines, firmware, displays and their passwords, devices."""

import asyncio
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm import firmware
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.model.instance_spec import InstanceSpec
from tests.support.kvm_nodes import Node, migrate
from tests.support.tiny_guest import (
    install,
    tiny_instance,
    wait_for_text,
)

pytestmark = [pytest.mark.host, pytest.mark.in_turn, pytest.mark.timeout(240)]

READY = r"GANETI-TINY READY"
SECRET = "s3cretpw"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def driver(node: Node) -> KvmHypervisor:
    return node.driver


@pytest.fixture
def paths(node: Node) -> Paths:
    return node.paths


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def with_port(instance: InstanceSpec) -> InstanceSpec:
    port = free_port()
    while port < 5900:
        port = free_port()
    return replace(instance, network_port=port)


def roomy(instance: InstanceSpec) -> InstanceSpec:
    """UEFI needs more memory than our kernel to unpack that kernel."""
    return replace(instance, memory=192)


def files_of(paths: Paths, instance: InstanceSpec) -> GuestFiles:
    return GuestFiles.of(paths, instance.uuid)


def write_password(paths: Paths, text: str = SECRET) -> None:
    paths.etc.mkdir(parents=True, exist_ok=True)
    file = paths.etc / "vnc-cluster-password"
    file.write_text(text + "\n")
    file.chmod(0o600)


async def test_uefi_variables_are_made_once_survive_moves_and_restarts_and_go_when_forgotten(
    nodes: list[Node], guest: Path, disk: Path
) -> None:
    """On q35, a machine that the guest keeps; the node that it moves to has no variables."""
    source, target = nodes
    driver, disks = source.driver, [str(disk)]
    pinned = await driver.programs.pinned({"machine_version": "q35"})
    assert str(pinned["machine_version"]).startswith("pc-q35-")
    instance = roomy(tiny_instance(guest, firmware="uefi", **pinned))
    install(guest, disk, instance.name)
    variables = firmware.variables_path(source.paths, instance, disks)
    await driver.start(instance, disks)
    await wait_for_text(source.console(instance), READY, 150)
    assert source.record(instance).machine == pinned["machine_version"]
    with pytest.raises(HypervisorError, match="in use"):
        await driver.nvram.forget_nvram(instance, disks, everywhere=True)
    await migrate(source, target, instance, disk)
    await target.driver.stop(instance, 0)
    there, here = (firmware.read(one.paths, instance, disks) for one in (target, source))
    assert there == here
    written = variables.read_bytes()
    assert written != firmware.kinds()[0].blank.read_bytes()  # the guest's firmware wrote them
    assert variables.stat().st_mode & 0o777 == 0o600
    await driver.start(instance, disks, paused=True)
    assert variables.read_bytes() == written
    await driver.stop(instance, 0)
    carried = await driver.nvram.read_nvram(instance, disks)
    assert carried is not None
    await driver.nvram.forget_nvram(instance, disks, everywhere=True)
    await driver.nvram.forget_nvram(instance, disks, everywhere=True)
    assert not variables.exists()
    await driver.nvram.write_nvram(instance, disks, carried)
    assert variables.read_bytes() == written
    await driver.nvram.forget_nvram(instance, disks, everywhere=True)
    assert await driver.nvram.read_nvram(instance, disks) is None


@pytest.mark.requirement("S73", "G23", "A63")
async def test_vnc_takes_the_password_of_the_file_and_no_command_line_has_it(
    driver: KvmHypervisor, guest: Path, disk: Path, paths: Paths
) -> None:
    write_password(paths)
    instance = with_port(tiny_instance(guest, vnc_bind_address="127.0.0.1", keymap="en-us"))
    await driver.start(instance, [str(disk)], paused=True)
    assert instance.network_port is not None
    assert log_in(instance.network_port, SECRET) is True
    assert log_in(instance.network_port, "wrong") is False
    files = files_of(paths, instance)
    record = files.read()
    assert record is not None
    assert SECRET.encode() not in Path(f"/proc/{record.pid}/cmdline").read_bytes()
    assert SECRET.encode() not in files.record.read_bytes()
    assert SECRET not in files.qemu_said()


@pytest.mark.requirement("S73")
async def test_a_display_without_its_password_file_does_not_start_and_leaves_nothing(
    driver: KvmHypervisor, guest: Path, disk: Path, paths: Paths
) -> None:
    instance = with_port(tiny_instance(guest, vnc_bind_address="127.0.0.1"))
    with pytest.raises(HypervisorError, match="vnc_password_file: the password cannot be read"):
        await driver.start(instance, [str(disk)])
    assert await driver.running() == []
    assert [one.name for one in sorted(paths.kvm.iterdir())] == ["acceleration"]


async def test_screenshot_is_a_picture_or_an_error(
    driver: KvmHypervisor, guest: Path, disk: Path, paths: Paths
) -> None:
    seeing = tiny_instance(guest, vga="std", kernel_args="console=tty0 loglevel=6")
    install(guest, disk, seeing.name)
    await driver.start(seeing, [str(disk)])
    await asyncio.sleep(0.1)
    picture = await driver.screens.screenshot(seeing)
    assert picture.startswith(PNG)
    assert picture.rstrip().endswith(b"IEND\xaeB`\x82")
    assert not list(paths.kvm.glob("*.png"))
    await driver.stop(seeing, 0)
    blind = tiny_instance(guest)
    await driver.start(blind, [str(disk)], paused=True)
    with pytest.raises(HypervisorError, match="vga=std"):
        await driver.screens.screenshot(blind)


@pytest.mark.parametrize(
    "hvparams",
    [
        {"vnc_bind_address": "127.0.0.1", "vnc_tls": True, "usb_mouse": "tablet", "vga": "cirrus"},
        {"spice_bind": "lo", "soundhw": "hda", "use_guest_agent": True, "spice_ip_version": 4},
        {"machine_version": "q35", "disk_type": "ide", "floppy": True, "soundhw": "pcspk"},
        {"machine_version": "pc", "cdrom": True, "floppy": True, "boot_order": "floppy"},
        {"cdrom": True, "boot_order": "cdrom", "cdrom_disk_type": "scsi", "disk_type": "scsi"},
        {"machine_version": "q35", "cdrom": True, "cdrom_disk_type": "ide", "disk_type": "ide"},
        {"disk_type": "scsi-hd", "scsi_controller_type": "megasas", "disk_discard": "unmap"},
        {"scsi_controller_type": "lsi", "disk_type": "scsi", "disk_aio": "io_uring"},
        {"use_localtime": True, "reboot_behavior": "exit", "cpu_type": "qemu64,+sse4.1"},
        {"cpu_mask": "0", "kvm_extra": "-device 'virtio-rng-pci,id=rng1'", "soundhw": "ac97"},
        {"usb_devices": "tablet keyboard mouse wacom-tablet", "vga": "virtio", "soundhw": "sb16"},
    ],
    ids="-".join,
)
async def test_qemu_takes_what_the_parameters_ask_for(
    driver: KvmHypervisor, guest: Path, disk: Path, paths: Paths, tmp_path: Path,
    hvparams: dict[str, Any],
) -> None:  # fmt: skip
    write_password(paths)
    given = dict(hvparams)
    images = tmp_path / "images"
    images.mkdir()
    for kind, name, size in (
        ("cdrom", "cdrom_image_path", 2048 * 64),
        ("floppy", "floppy_image_path", 1474560),
    ):
        if given.pop(kind, False):
            (images / kind).write_bytes(bytes(size))
            given |= {name: str(images / kind), "image_directories": str(images)}
    if "boot_order" in given:
        given |= {"kernel_path": "", "initrd_path": ""}
    instance = with_port(tiny_instance(guest, **given))
    assert await driver.validate(instance.hvparams) == []
    await driver.start(instance, [str(disk)], paused=True)
    record = files_of(paths, instance).read()
    assert record is not None
    if "cpu_mask" in given:
        assert os.sched_getaffinity(record.pid) == {0}
    if given.get("use_guest_agent"):
        assert files_of(paths, instance).guest_agent.stat().st_mode & 0o777 == 0o600


async def test_a_guest_that_ends_at_its_own_reboot_is_still_reset_by_us(
    driver: KvmHypervisor, guest: Path, disk: Path, paths: Paths
) -> None:
    instance = tiny_instance(guest, reboot_behavior="exit")
    install(guest, disk, instance.name)
    await driver.start(instance, [str(disk)])
    log = files_of(paths, instance).console_log
    await wait_for_text(log, READY)
    await driver.reboot(instance, soft=False, timeout_s=0)
    await wait_for_text(log, rf"(?s){READY}.*{READY}", 150)
    assert len(await driver.running()) == 1


def log_in(port: int, password: str) -> bool:
    """RFB 3.8 with VNC's own authentication."""
    with socket.create_connection(("127.0.0.1", port), 5) as client:
        client.settimeout(8)
        stream = client.makefile("rb")
        assert stream.read(12).startswith(b"RFB 003.")
        client.sendall(b"RFB 003.008\n")
        kinds = stream.read(stream.read(1)[0])
        assert list(kinds) == [2]
        client.sendall(b"\x02")
        challenge = stream.read(16)
        client.sendall(_answer(challenge, password))
        granted = stream.read(4) == b"\0\0\0\0"
        stream.close()
        return granted


def _answer(challenge: bytes, password: str) -> bytes:
    """DES with the bits of each byte of the password turned round."""
    key = bytes(int(f"{byte:08b}"[::-1], 2) for byte in password.encode().ljust(8, b"\0")[:8])
    words = ["openssl", "enc", "-des-ecb", "-provider", "legacy", "-provider", "default"]
    done = subprocess.run(
        [*words, "-K", key.hex(), "-nopad"], input=challenge, capture_output=True, check=True
    )
    return done.stdout
