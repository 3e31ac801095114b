"""Where the UEFI variables of a guest are, and which firmware they fit."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm import firmware
from ganeti.model.instance_spec import InstanceSpec

UUID = "8dea39da-5dea-4e7c-9a63-1c2b3d4e5f60"
INSTANCE = InstanceSpec(
    name="web1",
    uuid=UUID,
    hypervisor="kvm",
    os="tiny",
    memory=96,
    vcpus=1,
    hvparams={},
    disk_template="plain",
)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "node")


@pytest.fixture
def builds(tmp_path: Path) -> Path:
    """The firmware as Debian has it, with variables of 4 and of 2 bytes."""
    directory = tmp_path / "OVMF"
    directory.mkdir()
    for size, blank in (("_4M", b"new!"), ("", b"ol")):
        (directory / f"OVMF_CODE{size}.fd").write_bytes(b"code")
        (directory / f"OVMF_VARS{size}.fd").write_bytes(blank)
    return directory


def test_variables_lie_beside_a_shared_disk_and_else_on_the_node(paths: Paths) -> None:
    shared = replace(INSTANCE, disk_template="sharedfile")
    where = firmware.variables_path(paths, shared, ["/srv/shared/web1/disk0"])
    assert where == Path("/srv/shared/web1/disk0.uefi-variables")
    here = paths.uefi_variables / f"{UUID}.uefi-variables"
    for template, disks in (("plain", ["/dev/x"]), ("file", ["/srv/f"]), ("sharedfile", [])):
        instance = replace(INSTANCE, disk_template=template)
        assert firmware.variables_path(paths, instance, disks) == here


def test_a_new_guest_gets_the_preferred_build_and_keeps_what_it_wrote(
    paths: Paths, builds: Path
) -> None:
    first = firmware.prepare(paths, INSTANCE, [], builds)
    assert first.code == builds / "OVMF_CODE_4M.fd"
    assert first.variables.read_bytes() == b"new!"
    assert first.variables.stat().st_mode & 0o777 == 0o600
    assert first.variables.parent.stat().st_mode & 0o777 == 0o700
    first.variables.write_bytes(b"mine")
    assert firmware.prepare(paths, INSTANCE, [], builds) == first
    assert first.variables.read_bytes() == b"mine"


def test_a_guest_keeps_the_build_that_it_began_with(paths: Paths, builds: Path) -> None:
    firmware.write(paths, INSTANCE, [], b"ab")
    assert firmware.prepare(paths, INSTANCE, [], builds).code == builds / "OVMF_CODE.fd"


def test_variables_that_fit_no_firmware_are_named_and_not_touched(
    paths: Paths, builds: Path
) -> None:
    firmware.write(paths, INSTANCE, [], b"three")
    with pytest.raises(HypervisorError, match="have 5 bytes, which fits no firmware"):
        firmware.prepare(paths, INSTANCE, [], builds)
    assert firmware.read(paths, INSTANCE, []) == b"three"


def test_a_node_without_firmware_reports_what_to_install(paths: Paths, builds: Path) -> None:
    for code in builds.glob("OVMF_CODE*"):
        code.unlink()
    with pytest.raises(HypervisorError, match="install ovmf"):
        firmware.prepare(paths, INSTANCE, [], builds)
    assert firmware.read(paths, INSTANCE, []) is None


def test_variables_that_cannot_be_used_are_an_error_with_their_path(
    paths: Paths, builds: Path
) -> None:
    paths.uefi_variables.parent.mkdir(parents=True)
    paths.uefi_variables.write_text("in the way")
    with pytest.raises(HypervisorError, match=UUID):
        firmware.prepare(paths, INSTANCE, [], builds)
    with pytest.raises(HypervisorError, match="cannot be written"):
        firmware.write(paths, INSTANCE, [], b"x")


@pytest.mark.parametrize("content", [b"", bytes(firmware.SIZE_LIMIT + 1)], ids=["none", "too many"])
def test_a_wrong_number_of_bytes_is_not_taken(paths: Paths, content: bytes) -> None:
    with pytest.raises(HypervisorError, match="are not UEFI variables"):
        firmware.write(paths, INSTANCE, [], content)
    assert firmware.read(paths, INSTANCE, []) is None


def test_a_file_that_is_too_large_is_not_read_as_variables(paths: Paths) -> None:
    firmware.write(paths, INSTANCE, [], b"x")
    with firmware.variables_path(paths, INSTANCE, []).open("r+b") as file:
        file.truncate(firmware.SIZE_LIMIT + 1)
    with pytest.raises(HypervisorError, match="more than 4194304 bytes"):
        firmware.read(paths, INSTANCE, [])


def test_forgetting_twice_is_fine_and_leaves_nothing(paths: Paths) -> None:
    firmware.write(paths, INSTANCE, [], b"ab")
    for _ in range(2):
        firmware.forget(paths, INSTANCE, [])
        assert firmware.read(paths, INSTANCE, []) is None
