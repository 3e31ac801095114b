"""Which backup `gnt-backup mount` shows, and what it refuses."""

from pathlib import Path

import pytest

from ganeti.base.errors import GanetiError, HostError
from ganeti.base.paths import Paths
from ganeti.node.backups import mount
from tests.support.backup_store import BLOCK, BackupStore

TARGET = "/srv/ganeti/backup"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(tmp_path)
    place = found.below(TARGET)
    place.mkdir(parents=True)
    for name in ("web1.example.com", "web2.example.com", "web2.example.org", "web2"):
        (place / name).mkdir()
    return found


def test_instance_is_found_by_its_full_name_or_a_unique_short_one(paths: Paths) -> None:
    assert mount.place_of(paths, "web1", "") == (TARGET, "web1.example.com")
    assert mount.place_of(paths, "web2.example.org", TARGET) == (TARGET, "web2.example.org")
    assert mount.place_of(paths, "web2", "") == (TARGET, "web2")


@pytest.mark.parametrize(
    ("name", "target", "why"),
    [
        ("web3", "", "this node has no backups of web3 in /srv/ganeti/backup; run the command on"),
        ("web", "", "this node has no backups of web "),
        ("web2.example", "", "web2.example can be web2.example.com, web2.example.org; pass the full"),
        ("web1", "/etc", "/etc"),
        ("../web1", "", "this node has no backups of ../web1"),
    ],
)  # fmt: skip
@pytest.mark.requirement("A42")
def test_others_are_refused(paths: Paths, name: str, target: str, why: str) -> None:
    (paths.below(TARGET) / "web2").rmdir()
    with pytest.raises(GanetiError) as refused:
        mount.place_of(paths, name, target)
    assert why in str(refused.value)


def test_last_backup_is_shown_unless_another_is_named(paths: Paths, tmp_path: Path) -> None:
    place = paths.below(TARGET) / "web1.example.com"
    with (
        pytest.raises(GanetiError, match="there is no usable backup"),
        mount.opened_disks(paths, TARGET, "web1.example.com", ""),
    ):
        pass
    store = BackupStore(place, tmp_path)
    points = [store.save(bytes([number]) * BLOCK) for number in (1, 2)]
    for given, number in (("", 2), (points[0], 1)):
        with mount.opened_disks(paths, TARGET, "web1.example.com", given) as (point, chains):
            assert point.point == points[number - 1]
            assert chains["0"].read(0, 3) == bytes([number]) * 3
    with (
        pytest.raises(HostError, match="it does not exist; there are"),
        mount.opened_disks(paths, TARGET, "web1.example.com", "20200101-000000"),
    ):
        pass


def test_socket_is_removed_at_the_end() -> None:
    with mount.listening() as (path, listener):
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert listener.getsockname() == str(path)
    assert not path.parent.exists()
