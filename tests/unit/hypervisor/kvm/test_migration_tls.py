"""Certificates for QEMU: there only while it reads them, and for its eyes alone."""

import os
import ssl
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganeti.base import certificates
from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm.guests import Guest
from ganeti.hypervisor.kvm.migration_tls import CREDENTIALS, MigrationTls
from ganeti.hypervisor.kvm.monitor import CommandRefused
from ganeti.hypervisor.kvm.runtime import GuestFiles, Record
from ganeti.model.instance_spec import InstanceSpec
from tests.support.single_questions import SingleQuestions

pytestmark = pytest.mark.requirement("A62")

UUID = "8dea39da-5dea-4e7c-9a63-1c2b3d4e5f60"
INSTANCE = InstanceSpec(
    name="web1", uuid=UUID, hypervisor="kvm", os="o", memory=96, vcpus=1, hvparams={}
)


class Died(BaseException):
    """This daemon."""


class Qemu(SingleQuestions):
    """Reads what it is pointed at, as QEMU does: at once, and never again."""

    def __init__(self) -> None:
        self.objects: dict[str, Mapping[str, Any]] = {}
        self.read: dict[str, bytes] = {}
        self.modes: set[int] = set()
        self.fails = self.dies = False
        self.directory = Path()

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
            self.directory = Path(given["dir"])
            self._look(self.directory)
            if self.dies:
                raise Died
        if command == "qom-list":
            return [{"name": "type"}, *({"name": name} for name in self.objects)]
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
def shared(tmp_path: Path) -> Path:
    return tmp_path / "shared"


@pytest.fixture
def tls(tmp_path: Path, shared: Path) -> MigrationTls:
    """Of the source."""
    return MigrationTls(Paths(tmp_path / "a"), shared=shared)


@pytest.fixture
def other(tmp_path: Path, shared: Path) -> MigrationTls:
    """Of the target."""
    return MigrationTls(Paths(tmp_path / "b"), shared=shared)


def guest(tmp_path: Path, qemu: Qemu, uuid: str = UUID) -> Guest:
    instance = msgspec.structs.replace(INSTANCE, uuid=uuid)
    record = Record(instance=instance, argv=(), accelerator="tcg", boot_id="b", pid=os.getpid())
    return Guest(GuestFiles.of(Paths(tmp_path / "a"), uuid), record, qemu)


@pytest.mark.requirement("G22", "G23")
async def test_each_end_accepts_the_very_certificate_of_the_other(
    tmp_path: Path, shared: Path, tls: MigrationTls, other: MigrationTls
) -> None:
    target, source = Qemu(), Qemu()
    offered = tls.identity(UUID)
    link, answered = await other.receiving(guest(tmp_path, target), offered)
    assert link.migration_parameters()["tls-hostname"] == ""
    link = await tls.sending(guest(tmp_path, source), answered)
    assert link.migration_parameters()["tls-hostname"] == f"target.{UUID}.migration"
    for qemu, end, own, accepted in (
        (target, "server", answered, offered),
        (source, "client", offered, answered),
    ):
        assert qemu.read["ca-cert.pem"] == accepted.encode()
        assert qemu.read[f"{end}-cert.pem"] == own.encode()
        assert certificates.is_pair(own.encode(), qemu.read[f"{end}-key.pem"])
        assert qemu.modes == {0o711, 0o400}
        assert qemu.objects[CREDENTIALS]["verify-peer"] is True
    assert list(shared.iterdir()) == []
    group = tmp_path / "group"
    group.write_bytes(target.read["dh-params.pem"])
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_dh_params(str(group))
    await tls.forget(source)
    assert source.objects == {}


async def test_keys_are_new_for_each_migration(tls: MigrationTls) -> None:
    first, second = tls.identity(UUID), tls.identity(UUID)
    assert first != second


async def test_a_certificate_for_another_instance_or_end_is_refused(
    tmp_path: Path, tls: MigrationTls, other: MigrationTls
) -> None:
    qemu = Qemu()
    foreign = "11111111-1111-4111-8111-111111111111"
    for wrong in (tls.identity(foreign), "", "no PEM"):
        with pytest.raises(HypervisorError, match="certificate is invalid"):
            await other.receiving(guest(tmp_path, qemu), wrong)
    own = tls.identity(UUID)
    for wrong in (own, "", "no PEM"):
        with pytest.raises(HypervisorError, match="certificate is invalid"):
            await tls.sending(guest(tmp_path, qemu), wrong)
    assert qemu.objects == {}


async def test_a_key_that_a_restart_lost_reports_that_nothing_has_moved(
    tmp_path: Path, tls: MigrationTls, other: MigrationTls, shared: Path
) -> None:
    _, answered = await other.receiving(guest(tmp_path, Qemu()), tls.identity(UUID))
    qemu = Qemu()
    successor = MigrationTls(Paths(tmp_path / "a"), shared=shared)
    with pytest.raises(HypervisorError, match="nothing has moved: repeat the migration"):
        await successor.sending(guest(tmp_path, qemu), answered)
    tls.discard(UUID)
    with pytest.raises(HypervisorError, match="repeat the migration"):
        await tls.sending(guest(tmp_path, qemu), answered)
    assert qemu.objects == {}


async def test_nothing_stays_when_qemu_does_not_take_it(
    tmp_path: Path, tls: MigrationTls, other: MigrationTls, shared: Path
) -> None:
    qemu = Qemu()
    qemu.fails = True
    with pytest.raises(CommandRefused):
        await other.receiving(guest(tmp_path, qemu), tls.identity(UUID))
    assert list(shared.iterdir()) == []


@pytest.mark.requirement("G23")
async def test_what_a_dead_daemon_left_is_removed(
    tmp_path: Path, tls: MigrationTls, other: MigrationTls, shared: Path
) -> None:
    qemu = Qemu()
    qemu.dies = True  # this daemon, the moment QEMU is told
    with pytest.raises(Died):
        await other.receiving(guest(tmp_path, qemu), tls.identity(UUID))
    # A killed process would not have removed them.
    kept = qemu.directory
    kept.mkdir(parents=True)
    (kept / "server-key.pem").write_text("a key")
    other_node = MigrationTls(Paths(tmp_path / "c"), shared=shared)
    assert other_node.leftovers() == []
    assert other.leftovers() == [UUID[:13]]
    successor = MigrationTls(Paths(tmp_path / "b"), shared=shared)
    successor.remove_files(UUID[:13])
    assert list(shared.iterdir()) == []
    await successor.clean_up(guest(tmp_path, qemu))
    assert qemu.objects == {}
    await successor.clean_up(guest(tmp_path, qemu))
