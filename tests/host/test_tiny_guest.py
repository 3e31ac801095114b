"""The OS definition `tiny`: its scripts, run by hand."""

import os
import sys
from pathlib import Path

import pytest

from tests.support.patience import ran
from tests.support.tiny_guest import (
    CHECKOUT,
    MIB,
    RING_AT,
    build_tiny_guest,
    disk_heartbeats,
    install,
    make_disk,
    run_script,
)

pytestmark = [pytest.mark.host, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def guest() -> Path:
    return build_tiny_guest()


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return make_disk(tmp_path / "disk")


def settings(disk: Path) -> dict[str, str]:
    with disk.open("rb") as file:
        lines = file.read(4096).rstrip(b"\0").decode().splitlines()
    assert lines[0] == "GANETI-TINY 1"
    return dict(line.split("=", 1) for line in lines[1:])


def test_the_definition_has_every_file_that_api_20_asks_for(guest: Path) -> None:
    definition = guest / "tiny"
    assert (definition / "ganeti_api_version").read_text().split() == ["20"]
    assert (definition / "variants.list").read_text().split() == ["default"]
    names = [line.split()[0] for line in (definition / "parameters.list").read_text().splitlines()]
    assert names == ["heartbeat_interval", "ignore_acpi"]
    for script in ("create", "verify", "rename"):
        assert os.access(definition / script, os.X_OK), script
    assert (guest / "vmlinuz").stat().st_size > MIB
    assert (guest / "initrd").read_bytes()[:6] == b"070701"


def test_building_again_changes_nothing(guest: Path) -> None:
    before = (guest / "initrd").stat().st_ino
    assert build_tiny_guest() == guest
    assert (guest / "initrd").stat().st_ino == before


def test_build_without_downloads_leaves_nothing_and_reports_the_reason(tmp_path: Path) -> None:
    """Without the programs of Debian's package system."""
    done = ran(
        [sys.executable, str(CHECKOUT / "guest/build.py"), "--output", str(tmp_path / "out")],
        env={"PATH": str(tmp_path)},
        limit_s=60,
    )
    assert done.returncode == 1
    assert "the test guest cannot be built" in done.stderr
    assert not (tmp_path / "out").exists()


def test_create_takes_the_host_name_from_the_instance_and_empties_the_ring(
    guest: Path, disk: Path
) -> None:
    with disk.open("r+b") as file:
        file.seek(RING_AT)
        file.write(b"000000000007 00000002\n")
    install(guest, disk, "web1.example.com", heartbeat_interval="0.5", ignore_acpi="yes")
    found = settings(disk)
    assert found["hostname"] == "web1.example.com"
    assert found["heartbeat_interval"] == "0.5"
    assert found["ignore_acpi"] == "yes"
    assert disk_heartbeats(disk) == {}
    assert disk.stat().st_size == 64 * MIB


def test_create_prints_nothing_to_standard_output(guest: Path, disk: Path) -> None:
    done = run_script(guest, "create", INSTANCE_NAME="web1", DISK_0_PATH=str(disk))
    assert done.returncode == 0
    assert done.stdout == ""
    assert "tiny is installed" in done.stderr


def test_create_refuses_what_it_cannot_install_on(guest: Path, tmp_path: Path) -> None:
    small = make_disk(tmp_path / "small", mib=16)
    for environment, said in (
        ({"INSTANCE_NAME": "web1"}, "has no disk"),
        ({"INSTANCE_NAME": "web1", "DISK_0_PATH": str(tmp_path / "none")}, "does not exist"),
        ({"INSTANCE_NAME": "web1", "DISK_0_PATH": str(small)}, "needs at least 40"),
        ({"INSTANCE_NAME": "web 1;id", "DISK_0_PATH": str(small)}, "is no host name"),
    ):
        done = run_script(guest, "create", **environment)
        assert done.returncode != 0
        assert said in done.stderr
    assert small.read_bytes() == bytes(16 * MIB)


def test_rename_changes_the_host_name_and_nothing_else(guest: Path, disk: Path) -> None:
    install(guest, disk, "web1.example.com", ignore_acpi="yes")
    before = settings(disk)
    done = run_script(
        guest,
        "rename",
        INSTANCE_NAME="web2.example.com",
        OLD_INSTANCE_NAME="web1.example.com",
        DISK_0_PATH=str(disk),
    )
    assert done.returncode == 0, done.stderr
    assert settings(disk) == before | {"hostname": "web2.example.com"}


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, ""),
        ({"OSP_HEARTBEAT_INTERVAL": "1", "OSP_IGNORE_ACPI": "no"}, ""),
        ({"OSP_HEARTBEAT_INTERVAL": "", "OSP_IGNORE_ACPI": ""}, ""),
        ({"OSP_HEARTBEAT_INTERVAL": "soon"}, "heartbeat_interval"),
        ({"OSP_HEARTBEAT_INTERVAL": "0"}, "heartbeat_interval"),
        ({"OSP_HEARTBEAT_INTERVAL": "1\n2"}, "heartbeat_interval"),
        ({"OSP_HEARTBEAT_INTERVAL": "$(reboot)"}, "heartbeat_interval"),
        ({"OSP_IGNORE_ACPI": "perhaps"}, "ignore_acpi"),
    ],
)
@pytest.mark.requirement("S146", "S144")
def test_verify_names_the_wrong_parameter(
    guest: Path, parameters: dict[str, str], said: str
) -> None:
    done = run_script(guest, "verify", "parameters", **parameters)
    assert (done.returncode == 0) is (said == "")
    assert said in done.stderr
