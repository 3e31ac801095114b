"""Virtual hardware of real guests: machines, firmware, displays and their passwords, devices."""

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.hypervisor.kvm import firmware
from ganeti.hypervisor.kvm.acceleration import Acceleration
from ganeti.hypervisor.kvm.driver import KvmHypervisor, find_program
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.model.instance_spec import InstanceSpec
from tests.support.tiny_guest import (
    build_tiny_guest,
    install,
    make_disk,
    tiny_instance,
    wait_for_text,
)

pytestmark = [pytest.mark.host, pytest.mark.timeout(240)]

READY = r"GANETI-TINY READY"
SECRET = "s3cretpw"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def guest() -> Path:
    return build_tiny_guest()


@pytest.fixture(scope="module")
def acceleration(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    paths = Paths(tmp_path_factory.mktemp("probe"))
    asyncio.run(Acceleration(paths, run).kvm_works(find_program({})))
    known = paths.kvm / "acceleration"
    return known.read_bytes() if known.exists() else b""


@pytest_asyncio.fixture
async def drivers(tmp_path: Path, acceleration: bytes) -> AsyncIterator[list[KvmHypervisor]]:
    """Two nodes on this host."""
    made = []
    for name in ("a", "b"):
        paths = Paths(tmp_path / name)
        paths.kvm.mkdir(parents=True)
        (paths.kvm / "acceleration").write_bytes(acceleration)
        made.append(KvmHypervisor(paths, run))
    yield made
    for name, driver in zip(("a", "b"), made, strict=True):
        for one in await driver.running():
            record = GuestFiles.of(Paths(tmp_path / name), one.uuid).read()
            assert record is not None
            await driver.stop(record.instance, 0)


@pytest.fixture
def driver(drivers: list[KvmHypervisor]) -> KvmHypervisor:
    return drivers[0]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "a")


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return make_disk(tmp_path / "disk")


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


async def test_a_guest_boots_on_q35_and_keeps_that_machine(
    driver: KvmHypervisor, guest: Path, disk: Path, paths: Paths
) -> None:
    pinned = await driver.pinned({"machine_version": "q35"})
    assert str(pinned["machine_version"]).startswith("pc-q35-")
    instance = tiny_instance(guest, **pinned)
    install(guest, disk, instance.name)
    await driver.start(instance, [str(disk)])
    await wait_for_text(files_of(paths, instance).console_log, READY)
    record = files_of(paths, instance).read()
    assert record is not None
    assert record.machine == pinned["machine_version"]


async def test_uefi_variables_are_made_once_survive_restarts_and_go_when_forgotten(
    driver: KvmHypervisor, guest: Path, disk: Path, paths: Paths
) -> None:
    instance = roomy(tiny_instance(guest, firmware="uefi", machine_version="q35"))
    install(guest, disk, instance.name)
    variables = firmware.variables_path(paths, instance, [str(disk)])
    await driver.start(instance, [str(disk)])
    await wait_for_text(files_of(paths, instance).console_log, READY, 150)
    with pytest.raises(HypervisorError, match="in use"):
        await driver.forget_firmware(instance, [str(disk)])
    await driver.stop(instance, 0)
    written = variables.read_bytes()
    assert written != firmware.kinds()[0].blank.read_bytes()  # the guest's firmware wrote them
    assert variables.stat().st_mode & 0o777 == 0o600
    await driver.start(instance, [str(disk)], paused=True)
    assert variables.read_bytes() == written
    await driver.stop(instance, 0)
    assert await driver.read_firmware(instance, [str(disk)]) == written
    await driver.forget_firmware(instance, [str(disk)])
    await driver.forget_firmware(instance, [str(disk)])
    assert not variables.exists()
    assert await driver.read_firmware(instance, [str(disk)]) is None


async def test_a_live_migration_carries_uefi_variables_to_a_node_that_has_none(
    drivers: list[KvmHypervisor], guest: Path, disk: Path, tmp_path: Path
) -> None:
    source, target = drivers
    instance = roomy(tiny_instance(guest, firmware="uefi"))
    install(guest, disk, instance.name)
    await source.start(instance, [str(disk)])
    await wait_for_text(files_of(Paths(tmp_path / "a"), instance).console_log, READY, 150)
    incoming = await target.accept(
        instance, [str(disk)], "127.0.0.1", await source.migration_info(instance)
    )
    result = await source.migrate(instance, incoming.address, incoming.port)
    assert result.status == "completed", result
    await target.finish_migration(instance, is_source=False, success=True)
    await source.finish_migration(instance, is_source=True, success=True)
    await target.stop(instance, 0)
    there, here = (
        firmware.read(Paths(tmp_path / name), instance, [str(disk)]) for name in ("b", "a")
    )
    assert there == here
    assert there != firmware.kinds()[0].blank.read_bytes()


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


async def test_the_screen_of_a_guest_is_a_picture_and_a_guest_without_one_says_so(
    driver: KvmHypervisor, guest: Path, disk: Path, paths: Paths
) -> None:
    seeing = tiny_instance(guest, vga="std", kernel_args="console=tty0 loglevel=6")
    install(guest, disk, seeing.name)
    await driver.start(seeing, [str(disk)])
    await asyncio.sleep(0.1)
    picture = await driver.screenshot(seeing)
    assert picture.startswith(PNG)
    assert picture.rstrip().endswith(b"IEND\xaeB`\x82")
    assert not list(paths.kvm.glob("*.png"))
    await driver.stop(seeing, 0)
    blind = tiny_instance(guest)
    await driver.start(blind, [str(disk)], paused=True)
    with pytest.raises(HypervisorError, match="vga=std"):
        await driver.screenshot(blind)


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
