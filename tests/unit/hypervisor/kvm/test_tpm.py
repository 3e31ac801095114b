"""The state of TPMs: whose it is, what it may hold, and how it goes along."""

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm import nvram, tpm
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.model.instance_spec import DiskSpec, InstanceSpec

pytestmark = pytest.mark.requirement("G11", "A55")

UUID = "8dea39da-5dea-4e7c-9a63-1c2b3d4e5f60"
INSTANCE = InstanceSpec(
    name="web1", uuid=UUID, hypervisor="kvm", os="o", memory=96, vcpus=1, hvparams={}
)
DISK = DiskSpec(uuid="d", index=0, size=1, template="sharedfile", logical_id=("loop", "/1"))
OURS = (os.geteuid(), os.getegid())


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[Paths]:
    monkeypatch.setattr(tpm, "_program", lambda: "/usr/bin/swtpm")
    with tempfile.TemporaryDirectory(prefix="gnt-") as name:
        paths = Paths(Path(name))
        GuestFiles.of(paths, UUID).prepare()
        yield paths


def launch(paths: Paths, *, is_new: bool = False, owner: tuple[int, int] = OURS) -> tpm.Launch:
    files = GuestFiles.of(paths, UUID)
    files.tpm.unlink(missing_ok=True)
    with tpm.prepared(paths, files, UUID, owner, is_new=is_new) as found:
        with socket.socket(socket.AF_UNIX) as qemu:
            qemu.connect(str(files.tpm))
        for descriptor in found.descriptors:
            os.fstat(descriptor)
        return found


def test_swtpm_inherits_what_it_needs_and_opens_nothing_by_its_path(paths: Paths) -> None:
    found = launch(paths)
    assert f"dir=/proc/self/fd/{found.descriptors[0]},mode=0600" in found.words
    assert f"type=unixio,fd={found.descriptors[1]}" in found.words
    assert "--terminate" in found.words
    assert stat.S_IMODE(GuestFiles.of(paths, UUID).tpm.stat().st_mode) == 0o600
    assert stat.S_IMODE((paths.tpm_states / UUID).stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_state_belongs_to_the_user_of_each_start_who_gets_no_right_with_it(
    paths: Paths,
) -> None:
    tpm.write(paths, UUID, b"state")
    found = launch(paths, owner=(61300, 61301))
    for path in (paths.tpm_states / UUID, paths.tpm_states / UUID / tpm.STATE):
        assert (path.stat().st_uid, path.stat().st_gid) == (61300, 61301)
    assert found.launcher[1:] == [
        *("--reuid=61300", "--regid=61301", "--clear-groups"),
        *("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--"),
    ]


@pytest.mark.parametrize("kind", ["link", "hard link", "other", "pipe"])
def test_what_a_taken_over_guest_has_put_there_is_not_given_away(
    paths: Paths, kind: str, tmp_path: Path
) -> None:
    tpm.write(paths, UUID, b"state")
    secret = paths.root / "secret"
    secret.write_text("of the host")
    state = paths.tpm_states / UUID / tpm.STATE
    planted = state if kind != "other" else state.with_name("other")
    planted.unlink(missing_ok=True)
    match kind:
        case "link":
            planted.symlink_to(secret)
        case "hard link":
            planted.hardlink_to(secret)
        case "pipe":
            os.mkfifo(planted)
        case _:
            planted.write_text("x")
    with pytest.raises(HypervisorError, match="which does not belong to the TPM"):
        launch(paths)
    if kind != "other":
        with pytest.raises(HypervisorError, match=r"not a separate regular file|cannot be read"):
            tpm.read(paths, UUID)


def test_a_guest_that_comes_brings_its_own_state(paths: Paths) -> None:
    tpm.write(paths, UUID, b"of an earlier stay")
    launch(paths, is_new=True)
    assert tpm.read(paths, UUID) is None


def test_it_goes_along_with_the_variables_of_the_firmware(paths: Paths) -> None:
    other = Paths(paths.root / "other")
    assert nvram.read(paths, INSTANCE, []) is None
    tpm.write(paths, UUID, b"state")
    variables = paths.uefi_variables / f"{UUID}.uefi-variables"
    variables.parent.mkdir(parents=True)
    variables.write_bytes(b"variables")
    carried = nvram.read(paths, INSTANCE, [])
    assert carried is not None
    nvram.write(other, INSTANCE, [], carried)
    assert nvram.read(other, INSTANCE, []) == carried
    for _ in range(2):
        nvram.forget(paths, INSTANCE, [], everywhere=False)
        assert nvram.read(paths, INSTANCE, []) is None
    with pytest.raises(HypervisorError):
        nvram.write(other, INSTANCE, [], b"no NVRAM")
    assert nvram.read(other, INSTANCE, []) == carried


def test_variables_beside_shared_disks_stay_until_the_instance_is_removed(paths: Paths) -> None:
    shared = InstanceSpec(
        name="web1", uuid=UUID, hypervisor="kvm", os="o", memory=96, vcpus=1, hvparams={},
        disk_template="sharedfile", disks=(DISK,),
    )  # fmt: skip
    disk = str(paths.root / "disk")
    variables = Path(f"{disk}.uefi-variables")
    variables.write_bytes(b"variables")
    assert nvram.read(paths, shared, [disk]) is None
    tpm.write(paths, UUID, b"state")
    nvram.forget(paths, shared, [disk], everywhere=False)
    assert variables.exists()
    assert tpm.read(paths, UUID) is None
    nvram.forget(paths, shared, [disk], everywhere=True)
    assert not variables.exists()


@pytest.mark.parametrize("size", [0, tpm.SIZE_LIMIT + 1])
def test_no_state_has_this_size(paths: Paths, size: int) -> None:
    with pytest.raises(HypervisorError):
        tpm.write(paths, UUID, bytes(size))


def test_a_node_without_swtpm_reports_what_to_install(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tpm, "_program", lambda: None)
    assert tpm.missing() == "tpm: swtpm is not installed on this node; install swtpm"
    with pytest.raises(HypervisorError, match="install swtpm"):
        launch(paths)
