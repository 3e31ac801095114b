"""The table of paths: applied, checked, and never followed into what somebody else has made."""

import os
import stat
from pathlib import Path

import pytest

from ganeti.base import permissions
from ganeti.base.errors import HostError
from ganeti.base.files import write_atomically
from ganeti.base.node_files import ROOT
from ganeti.base.paths import Paths
from ganeti.base.permissions import begin_as, problems, repair, table
from ganeti.base.users import Account, ServiceUsers
from ganeti.store.etcd.files import EtcdFiles

USERS = ServiceUsers(
    {
        role: Account(role, uid, 61810, (61810,))
        for role, uid in (("masterd", 61801), ("rapi", 61802), ("confd", 61803))
    },
    daemons=61810,
    admin=61811,
)
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A node with everything that the table names, all of it root's."""
    paths = Paths(tmp_path)
    for rule in table(paths):
        is_directory = rule.mode & 0o111
        rule.path.parent.mkdir(parents=True, exist_ok=True)
        if is_directory:
            rule.path.mkdir(exist_ok=True)
        else:
            rule.path.touch()
        rule.path.chmod(0o755 if is_directory else 0o600)
    return paths


def test_no_path_is_named_twice_and_secrets_are_closed(paths: Paths) -> None:
    named = [rule.path for rule in table(paths)]
    assert len(named) == len(set(named))
    assert all(rule.mode & 0o077 == 0 for rule in table(paths) if rule.is_secret)
    assert all(rule.mode & 0o002 == 0 for rule in table(paths))


@pytest.mark.requirement("S224", "S226", "F40")
def test_repaired_paths_have_no_problems_and_their_owners(paths: Paths) -> None:
    assert problems(paths, USERS)
    assert repair(paths, USERS)
    assert problems(paths, USERS) == []
    assert repair(paths, USERS) == []
    socket = paths.luxi_socket.stat()
    assert (socket.st_uid, socket.st_gid, stat.S_IMODE(socket.st_mode)) == (61801, 61811, 0o660)
    assert paths.rapi_certificate.stat().st_uid == 0
    assert paths.kvm.stat().st_uid == 0
    repair(paths, None)
    assert paths.luxi_socket.stat().st_uid == 0


@pytest.mark.requirement("S224", "G23", "F40")
def test_each_wrong_owner_and_mode_is_reported(paths: Paths) -> None:
    repair(paths, USERS)
    os.chown(paths.register, 61803, 61810)
    paths.authority_key.chmod(0o640)
    found = problems(paths, USERS)
    assert len(found) == 2
    assert f"{paths.register} belongs to 61803:61810, not to 61801:61810 (masterd:daemons)" in found
    assert f"{paths.authority_key} has mode 0640, not 0600" in found


@pytest.mark.requirement("G23")
def test_single_user_setup_reports_only_readable_secrets(paths: Paths) -> None:
    for directory in (paths.kvm, EtcdFiles(paths).directory, paths.image_uploads):
        directory.chmod(0o700)
    assert problems(paths, None) == []
    paths.node_key.chmod(0o644)
    paths.node_certificate.chmod(0o666)
    assert problems(paths, None) == [f"other users have access to {paths.node_key} (mode 0644)"]


@pytest.mark.requirement("G24")
@pytest.mark.parametrize("how", ["link", "second name"])
def test_foreign_links_are_not_repaired(paths: Paths, tmp_path: Path, how: str) -> None:
    precious = tmp_path / "precious"
    precious.touch(mode=0o600)
    paths.register.unlink()
    if how == "link":
        paths.register.symlink_to(precious)
        assert f"{paths.register} is a symbolic link" in problems(paths, USERS)
    else:
        os.link(precious, paths.register)
    with pytest.raises(HostError, match="find out which program made it"):
        repair(paths, USERS)
    assert precious.stat().st_uid == 0


def test_a_node_without_users_begins_as_it_is(paths: Paths) -> None:
    for rule in table(paths):
        if rule.path.name == "users":
            rule.path.unlink()
    assert begin_as(paths, "masterd") is None
    assert os.geteuid() == 0


@pytest.mark.requirement("S224", "F40")
def test_a_daemon_that_root_started_puts_the_paths_right_and_gives_root_up(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    became: list[Account] = []
    monkeypatch.setattr(ServiceUsers, "of_node", lambda _paths: USERS)
    monkeypatch.setattr(permissions, "become", became.append)
    log = paths.log / "master-daemon.log"
    log.unlink()
    assert begin_as(paths, "masterd") is USERS
    assert became == [USERS.accounts["masterd"]]
    assert log.stat().st_uid == 61801
    assert problems(paths, USERS) == []


@pytest.mark.requirement("S224")
def test_the_node_daemon_puts_the_paths_right_and_stays_root(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServiceUsers, "of_node", lambda _paths: USERS)
    assert begin_as(paths, ROOT) is USERS
    assert problems(paths, USERS) == []
    assert os.geteuid() == 0


@pytest.mark.requirement("S224")
@pytest.mark.parametrize(
    ("uid", "match"), [(61803, "only root or masterd"), (61801, "run 'ganeti-users-setup'")]
)
def test_daemon_started_by_another_user_refuses_wrong_owners(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, uid: int, match: str
) -> None:
    monkeypatch.setattr(ServiceUsers, "of_node", lambda _paths: USERS)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with pytest.raises(HostError, match=match):
        begin_as(paths, "masterd")


@pytest.mark.requirement("S224")
def test_what_root_replaces_stays_with_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "register"
    write_atomically(path, b"1")
    assert path.stat().st_uid == 0
    os.chown(path, 61801, 61810)
    write_atomically(path, b"2")
    assert (path.stat().st_uid, path.stat().st_gid) == (61801, 61810)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
