"""Passwords of displays: from files for root's eyes, to the monitor, and nowhere else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm.passwords import password_files, read_password, set_passwords
from ganeti.model.hypervisor_params import hypervisor_defaults

NAME = "/etc/ganeti/vnc-cluster-password"


def write(root: Path, content: bytes, mode: int = 0o600) -> Paths:
    file = root / NAME.lstrip("/")
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    file.chmod(mode)
    return Paths(root)


@pytest.mark.requirement("S73", "G23")
async def test_qemu_gets_the_first_line(tmp_path: Path) -> None:
    asked: list[tuple[str, Any]] = []

    async def ask(
        command: str, arguments: Mapping[str, Any] | None = None, *, timeout_s: float = 1
    ) -> Any:
        asked.append((command, arguments))

    paths = write(tmp_path, b"s3cret pw\r\nsecond\n")
    await set_passwords(paths, hypervisor_defaults("kvm") | {"vnc_bind_address": "::1"}, ask)
    assert asked == [("set_password", {"protocol": "vnc", "password": "s3cret pw"})]


def test_a_guest_without_display_needs_no_password() -> None:
    assert password_files(hypervisor_defaults("kvm")) == []
    spice = hypervisor_defaults("kvm") | {"spice_bind": "::1", "spice_password_file": "/p"}
    assert password_files(spice) == [("spice", "spice_password_file", "/p")]


@pytest.mark.requirement("A63")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    paths = write(tmp_path, b"secret\n", mode)
    with pytest.raises(HypervisorError, match="chmod 600") as caught:
        read_password(paths, "vnc_password_file", NAME)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\nsecret\n", b"\xff\xfe", b"a\0b"])
def test_what_is_no_password_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    paths = write(tmp_path, content)
    with pytest.raises(HypervisorError, match="is not a password") as caught:
        read_password(paths, "vnc_password_file", NAME)
    assert "secret" not in str(caught.value)


def test_a_missing_file_a_link_and_a_directory_are_refused(tmp_path: Path) -> None:
    paths = write(tmp_path, b"secret\n")
    with pytest.raises(HypervisorError, match="redist-conf"):
        read_password(paths, "vnc_password_file", "/nosuch")
    (tmp_path / "link").symlink_to(tmp_path / NAME.lstrip("/"))
    with pytest.raises(HypervisorError, match="cannot be read"):
        read_password(paths, "vnc_password_file", "/link")
    with pytest.raises(HypervisorError, match="not a regular file"):
        read_password(paths, "vnc_password_file", "/etc")
