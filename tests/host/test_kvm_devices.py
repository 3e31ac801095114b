"""Devices and resources of the host that guests use, with real QEMU: queues, vhost, huge pages, USB, SPICE over TLS."""

import asyncio
import contextlib
import datetime as dt
import fcntl
import os
import re
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.hypervisor.kvm.network import tap_name
from ganeti.model.instance_spec import InstanceSpec, NicSpec
from tests.host.test_hotplug import Node as HearingNode
from tests.host.test_hotplug import bridge, installed, migrate, nodes
from tests.host.test_kvm_hardware import with_port
from tests.support.tiny_guest import tiny_instance

__all__ = ["bridge", "nodes"]  # fixtures

pytestmark = [pytest.mark.host, pytest.mark.in_turn, pytest.mark.timeout(240)]

VHOST = Path("/dev/vhost-net")
HUGE_PAGES = Path("/proc/sys/vm/nr_hugepages")
PAGES = 60
"""2 MiB each: more than the guest has."""


@pytest.fixture
def node(nodes: list[HearingNode]) -> HearingNode:
    return nodes[0]


@pytest.fixture
def driver(node: HearingNode) -> KvmHypervisor:
    return node.driver


@pytest.fixture
def paths(node: HearingNode) -> Paths:
    return node.paths


def nic(link: str, number: int) -> NicSpec:
    return NicSpec(
        uuid=f"0000000{number}-0000-4000-8000-000000000000", index=number,
        mac=f"aa:00:00:00:00:0{number}", mode="bridged", link=link,
    )  # fmt: skip


async def queues(node: HearingNode, instance: InstanceSpec, card: str) -> int:
    """How many queues the guest sends through."""
    said = await node.waits_for(instance, f"ls /sys/class/net/{card}/queues", "tx-0")
    return len(set(re.findall(r"tx-\d+", said)))


async def test_a_card_with_several_queues_works_plugged_in_as_well_and_moves(
    nodes: list[HearingNode], guest: Path, tmp_path: Path, bridge: str
) -> None:
    source, target = nodes
    plain, disk = installed(guest, tmp_path, virtio_net_queues=2)
    instance = msgspec.structs.replace(plain, vcpus=2, nics=(nic(bridge, 0),))
    await source.boot(instance, disk)
    assert await queues(source, instance, "eth0") == 2
    second = nic(bridge, 1)
    instance = msgspec.structs.replace(instance, nics=(nic(bridge, 0), second))
    await source.driver.hotplug.add_nic(instance, second)
    assert await queues(source, instance, "eth1") == 2
    await migrate(source, target, instance, {instance.disks[0].uuid: disk})
    for card in ("eth0", "eth1"):
        await target.hear(instance, f"ip link set {card} up")
        assert await queues(target, instance, card) == 2
    # And out again, with its tap.
    await target.driver.hotplug.remove_nic(instance, second)
    assert not Path(f"/sys/class/net/{tap_name(target.paths.root, second)}").exists()


async def test_without_the_kernels_helper_vhost_is_refused_with_what_to_do(
    driver: KvmHypervisor, guest: Path
) -> None:
    if VHOST.exists():
        pytest.skip("this host has /dev/vhost-net")
    (problem,) = await driver.validate(tiny_instance(guest, vhost_net=True).hvparams)
    assert problem.startswith("vhost_net: this node has no /dev/vhost-net; load")


async def test_the_kernel_moves_packets_of_cards_from_the_start_and_of_those_plugged_in(
    node: HearingNode, guest: Path, tmp_path: Path, bridge: str
) -> None:
    if not VHOST.exists():
        pytest.skip("this host has no /dev/vhost-net (module vhost_net)")
    plain, disk = installed(guest, tmp_path, vhost_net=True, use_chroot=True)
    instance = msgspec.structs.replace(plain, nics=(nic(bridge, 0),))
    await node.boot(instance, disk)
    await node.driver.hotplug.add_nic(instance, nic(bridge, 1))
    open_helpers = [
        one
        for one in Path(f"/proc/{node.record(instance).pid}/fd").iterdir()
        if one.readlink() == VHOST
    ]
    assert len(open_helpers) == 2


@pytest.fixture
def huge_pages(tmp_path: Path) -> Iterator[Path]:
    """A file system of huge pages with room for a guest."""
    if os.geteuid() != 0:
        pytest.skip("only root can reserve huge pages")
    directory = tmp_path / "huge"
    directory.mkdir()
    with alone_with_huge_pages():
        yield from reserved_pages(directory)


@contextlib.contextmanager
def alone_with_huge_pages() -> Iterator[None]:
    """Only one run of tests on this host changes how many pages there are."""
    descriptor = os.open("/sys/kernel/mm/hugepages", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def reserved_pages(directory: Path) -> Iterator[Path]:
    before = HUGE_PAGES.read_text()
    HUGE_PAGES.write_text(f"{int(before) + PAGES}\n")
    try:
        if int(HUGE_PAGES.read_text()) < int(before) + PAGES:
            pytest.skip(f"this host cannot reserve {PAGES} huge pages")
        mount = ["mount", "-t", "hugetlbfs", "none", str(directory)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("this host mounts no hugetlbfs")
        try:
            yield directory
        finally:
            subprocess.run(["umount", "--lazy", str(directory)], check=True)
    finally:
        HUGE_PAGES.write_text(before)


def free_pages() -> int:
    found = re.search(r"HugePages_Free:\s+(\d+)", Path("/proc/meminfo").read_text())
    assert found
    return int(found[1])


async def test_a_guest_lives_in_huge_pages_and_gives_them_back(
    node: HearingNode, guest: Path, tmp_path: Path, huge_pages: Path
) -> None:
    instance, disk = installed(guest, tmp_path, mem_path=str(huge_pages))
    assert await node.driver.validate(instance.hvparams) == []
    free = free_pages()
    await node.boot(instance, disk)
    assert free - free_pages() == instance.memory // 2
    await node.driver.stop(instance, 0)
    assert free_pages() == free
    (problem,) = await node.driver.validate({**instance.hvparams, "mem_path": "/nosuch"})
    assert problem == "mem_path: /nosuch is not a directory of this node"


async def test_too_few_huge_pages_fail_the_start_and_leave_nothing(
    node: HearingNode, guest: Path, tmp_path: Path, huge_pages: Path
) -> None:
    plain, disk = installed(guest, tmp_path, mem_path=str(huge_pages))
    instance = msgspec.structs.replace(plain, memory=2 * PAGES + 64)
    with pytest.raises(HypervisorError, match=r"(?i)memory"):
        await node.driver.start(instance, [str(disk)])
    assert await node.driver.running() == []
    assert not node.files(instance).record.exists()


@pytest.mark.parametrize(
    ("hvparams", "name"),
    [
        ({"usb_mouse": "mouse"}, "QEMU HID Mouse"),
        ({"usb_mouse": "tablet"}, "QEMU HID Tablet"),
        ({"usb_devices": "keyboard tablet"}, "QEMU HID Tablet"),
    ],
)
@pytest.mark.parametrize("machine", ["pc", "q35"])
async def test_the_pointer_is_the_one_that_was_asked_for(
    node: HearingNode,
    guest: Path,
    tmp_path: Path,
    machine: str,
    hvparams: dict[str, str],
    name: str,
) -> None:
    instance, disk = installed(guest, tmp_path, machine_version=machine, **hvparams)
    await node.driver.start(instance, [str(disk)], paused=True)
    mice = await Monitor(node.files(instance).monitor)("query-mice")
    assert name in {one["name"] for one in mice}


def make_spice_files(directory: Path) -> None:
    """An authority, and a key with a certificate of it, as an administrator would make them."""
    directory.mkdir(parents=True, exist_ok=True)
    now = dt.datetime.now(dt.UTC)

    def certificate(
        name: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey
    ) -> bytes:
        called = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = (
            x509.CertificateBuilder()
            .subject_name(called)
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(
                x509.BasicConstraints(ca=name == issuer, path_length=None), critical=True
            )
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .sign(signer, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

    authority, own = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    (directory / "spice-ca.pem").write_bytes(
        certificate("ca.test", authority, "ca.test", authority)
    )
    pem = own.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (directory / "spice.pem").write_bytes(
        pem + certificate("spice.test", own, "ca.test", authority)
    )
    for file in directory.glob("spice*.pem"):
        file.chmod(0o600)


def link_message() -> bytes:
    """What a SPICE client says first: protocol 2.2, the main channel, no capabilities."""
    body = struct.pack("<IBBIII", 0, 1, 0, 0, 0, 18)
    return b"REDQ" + struct.pack("<III", 2, 2, len(body)) + body


def greet(channel: socket.socket) -> bytes:
    channel.settimeout(10)
    channel.sendall(link_message())
    return channel.recv(4)


@pytest.fixture
async def spice(
    driver: KvmHypervisor, paths: Paths, guest: Path, tmp_path: Path
) -> AsyncIterator[InstanceSpec]:
    """A guest that serves SPICE over TLS, confined."""
    plain, disk = installed(
        guest, tmp_path, spice_bind="127.0.0.1", spice_use_tls=True, vga="std", use_chroot=True
    )
    instance = with_port(plain)
    problems = await driver.validate(instance.hvparams)
    assert [one.partition(";")[0] for one in problems] == [
        f"spice_use_tls: {paths.data / name} does not exist"
        for name in ("spice.pem", "spice-ca.pem")
    ]
    assert "gnt-cluster redist-conf" in problems[0]
    make_spice_files(paths.data)
    assert await driver.validate(instance.hvparams) == []
    await driver.start(instance, [str(disk)], paused=True)
    yield instance
    await driver.stop(instance, 0)


async def test_spice_is_served_over_tls_with_the_clusters_certificate(
    spice: InstanceSpec, paths: Paths
) -> None:
    def visit() -> bytes:
        context = ssl.create_default_context(cafile=str(paths.data / "spice-ca.pem"))
        where = ("127.0.0.1", spice.network_port or 0)
        with (
            socket.create_connection(where, 10) as plain,
            context.wrap_socket(plain, server_hostname="spice.test") as channel,
        ):
            return greet(channel)

    assert await asyncio.to_thread(visit) == b"REDQ"


async def test_unencrypted_clients_are_refused(spice: InstanceSpec) -> None:
    def visit() -> bytes:
        with socket.create_connection(("127.0.0.1", spice.network_port or 0), 10) as plain:
            with contextlib.suppress(ConnectionError):
                return greet(plain)
            return b""

    assert await asyncio.to_thread(visit) != b"REDQ"


def test_both_ends_agree_on_where_the_files_are(paths: Paths) -> None:
    shared = KvmHypervisor(paths, run).options.shared_files
    names: Any = {str(paths.below(name)) for name in shared}
    assert {str(paths.data / "spice.pem"), str(paths.data / "spice-ca.pem")} <= names
