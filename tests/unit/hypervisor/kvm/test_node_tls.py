"""Certificates for QEMU: there only while it reads them, and for its eyes alone."""

import os
import ssl
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm.guests import Guest
from ganeti.hypervisor.kvm.monitor import CommandRefused
from ganeti.hypervisor.kvm.node_tls import NodeTls
from ganeti.hypervisor.kvm.runtime import GuestFiles, Record
from ganeti.model.instance_spec import InstanceSpec
from tests.support.node_certificates import Authority

pytestmark = pytest.mark.requirement("A62")

UUID = "8dea39da-5dea-4e7c-9a63-1c2b3d4e5f60"
INSTANCE = InstanceSpec(
    name="web1", uuid=UUID, hypervisor="kvm", os="o", memory=96, vcpus=1, hvparams={}
)


class Qemu:
    """Reads what it is pointed at, as QEMU does: at once, and never again."""

    def __init__(self) -> None:
        self.objects: dict[str, Mapping[str, Any]] = {}
        self.read: dict[str, bytes] = {}
        self.modes: set[int] = set()
        self.fails = False

    async def __call__(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout_s: float = 20.0
    ) -> Any:
        given = arguments or {}
        if command == "object-del":
            if given["id"] not in self.objects:
                raise CommandRefused("object not found")
            del self.objects[given["id"]]
        if command == "object-add":
            if self.fails:
                raise CommandRefused("bad certificate")
            self.objects[given["id"]] = given
            if "dir" in given:
                self._look(Path(given["dir"]))
        return {}

    async def with_files(
        self, files: Sequence[int], commands: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> None:
        raise AssertionError("no file is handed over")

    def _look(self, directory: Path) -> None:
        self.modes = {stat.S_IMODE(directory.stat().st_mode)}
        for path in directory.iterdir():
            self.read[path.name] = path.read_bytes()
            self.modes.add(stat.S_IMODE(path.stat().st_mode))


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "a")


@pytest.fixture
def other(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "b")


@pytest.fixture
def tls(paths: Paths, other: Paths) -> NodeTls:
    authority = Authority()
    authority.equip(paths, "node1.example.com")
    authority.equip(other, "node2.example.com")
    return NodeTls(paths)


def guest(paths: Paths, qemu: Qemu) -> Guest:
    record = Record(instance=INSTANCE, argv=(), accelerator="tcg", boot_id="b", pid=os.getpid())
    return Guest(GuestFiles.of(paths, UUID), record, qemu)


async def test_a_sender_accepts_one_certificate_and_checks_its_name(
    paths: Paths, other: Paths, tls: NodeTls
) -> None:
    qemu = Qemu()
    peer = other.node_certificate.read_text()
    link = await tls.sending(guest(paths, qemu), peer)
    assert link.migration_parameters()["tls-hostname"] == "node2.example.com"
    assert qemu.read == {
        "ca-cert.pem": peer.encode(),
        "client-cert.pem": paths.node_certificate.read_bytes(),
        "client-key.pem": paths.node_key.read_bytes(),
    }
    assert qemu.modes == {0o700, 0o400}
    assert qemu.objects["move-credentials"]["verify-peer"] is True
    assert list(paths.kvm_tls.iterdir()) == []


async def test_a_receiver_accepts_one_node_of_the_cluster(
    paths: Paths, other: Paths, tls: NodeTls, tmp_path: Path
) -> None:
    qemu = Qemu()
    link = await tls.receiving(guest(paths, qemu), other.node_certificate.read_text())
    assert link.migration_parameters()["tls-authz"] == "move-peer"
    assert qemu.read["ca-cert.pem"] == paths.authority_certificate.read_bytes()
    identity = qemu.objects["move-peer"]["identity"]
    assert identity == "CN=node2.example.com,serialNumber=uuid-of-node2.example.com"
    group = tmp_path / "group"
    group.write_bytes(qemu.read["dh-params.pem"])
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_dh_params(str(group))
    again = await tls.receiving(guest(paths, qemu), other.node_certificate.read_text())
    assert again == link
    await tls.forget(qemu)
    assert qemu.objects == {}


async def test_nothing_stays_when_qemu_does_not_take_it(
    paths: Paths, other: Paths, tls: NodeTls
) -> None:
    qemu = Qemu()
    qemu.fails = True
    with pytest.raises(CommandRefused):
        await tls.sending(guest(paths, qemu), other.node_certificate.read_text())
    assert list(paths.kvm_tls.iterdir()) == []


async def test_what_an_interrupted_move_left_is_replaced(
    paths: Paths, other: Paths, tls: NodeTls
) -> None:
    left = paths.kvm_tls / f"tls-{UUID[:13]}"
    left.mkdir(parents=True)
    (left / "client-key.pem").write_text("old")
    qemu = Qemu()
    await tls.sending(guest(paths, qemu), other.node_certificate.read_text())
    assert qemu.read["client-key.pem"] == paths.node_key.read_bytes()


@pytest.mark.parametrize("peer", ["", "no PEM"])
async def test_a_peer_without_a_certificate_is_refused(
    paths: Paths, tls: NodeTls, peer: str
) -> None:
    qemu = Qemu()
    for act in (tls.sending, tls.receiving):
        with pytest.raises(HypervisorError, match="of no use"):
            await act(guest(paths, qemu), peer)
    assert qemu.objects == {}


async def test_a_node_without_a_certificate_moves_nothing(paths: Paths, tls: NodeTls) -> None:
    paths.node_certificate.unlink()
    with pytest.raises(HypervisorError, match="over TLS only"):
        tls.certificate()
