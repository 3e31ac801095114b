"""What moves that nobody finished leave on a node."""

from pathlib import Path

import pytest

from ganeti.base.clock import SystemClock
from ganeti.base.paths import Paths
from ganeti.node.carrier.keys import TransferKeys
from ganeti.tools.leftovers import forget_old_keys

DAY_S = 24 * 3600.0


@pytest.mark.requirement("S219", "S216", "S205")
def test_a_key_is_forgotten_when_its_certificate_has_expired(tmp_path: Path) -> None:
    paths, clock = Paths(tmp_path), SystemClock()
    now = clock.time()
    assert forget_old_keys(paths, now) == []
    keys = TransferKeys(paths.transfer_keys, clock)
    keys.create("x509-00000001", "web1.example.com")
    assert forget_old_keys(paths, now + DAY_S - 60) == []
    assert keys.names() == ["x509-00000001"]
    [said] = forget_old_keys(paths, now + DAY_S + 60)
    assert "x509-00000001" in said
    assert keys.names() == []


@pytest.mark.requirement("A43")
def test_no_link_is_followed(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "node")
    paths.transfer_keys.mkdir(parents=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    (paths.transfer_keys / "x509-00000001").symlink_to(other)
    assert forget_old_keys(paths, SystemClock().time() + 2 * DAY_S) == []
    assert (other / "file").exists()
