"""What the service manager hears."""

import socket
from pathlib import Path

import pytest

from ganeti.base.systemd import SOCKET_VARIABLE, notify


@pytest.mark.parametrize("is_abstract", [False, True])
def test_notification_reaches_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_abstract: bool
) -> None:
    path = f"{tmp_path.name}-notify" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + path if is_abstract else path)
        manager.settimeout(5)
        monkeypatch.setenv(SOCKET_VARIABLE, "@" + path if is_abstract else path)
        assert notify("READY=1")
        assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/at/all", "vsock:2:1"])
def test_notification_without_a_listener_is_ignored(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv(SOCKET_VARIABLE, address)
    assert not notify("READY=1")
