"""What is removed from a host with the programs, and what stays."""

from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.tools.leave_host import host_paths, main


def test_logs_sockets_and_caches_go_and_data_of_guests_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = Paths(tmp_path)
    for path in (paths.log, paths.run, paths.image_work, paths.uefi_variables, paths.etc):
        path.mkdir(parents=True)
    (paths.log / "node-daemon.log").touch()
    assert main([str(tmp_path), "--check"]) == 0
    assert paths.log.exists()
    assert main([str(tmp_path)]) == 0
    left = [paths.log, paths.run, paths.image_work, paths.etc, paths.uefi_variables]
    assert [path.exists() for path in left] == [False, False, False, False, True]
    assert f"left: {paths.uefi_variables}" in capsys.readouterr().out


def test_a_host_in_a_cluster_or_with_guests_keeps_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = Paths(tmp_path)
    paths.data.mkdir(parents=True)
    paths.register.touch()
    assert main([str(tmp_path)]) == 1
    assert "node-cleanup --yes-do-it" in capsys.readouterr().err
    paths.register.unlink()
    paths.kvm.mkdir(parents=True)
    (paths.kvm / "0123.json").touch()
    assert main([str(tmp_path)]) == 1
    assert "stop them first" in capsys.readouterr().err


def test_the_package_removes_no_directory_that_others_share() -> None:
    assert [str(path) for path in host_paths(Paths())] == [
        "/etc/ganeti/users", "/var/cache/ganeti/images", "/var/log/ganeti", "/var/run/ganeti",
    ]  # fmt: skip
