"""The users of a node's daemons: their file, and giving up the rights of root."""

import grp
import os
import pwd
from pathlib import Path

import pytest

from ganeti.base.errors import ConfigurationError, HostError
from ganeti.base.paths import Paths
from ganeti.base.users import (
    Account,
    ServiceUsers,
    become,
    format_names,
    parse_names,
    users_file,
)

NAMES = {role: f"gnt-{role}" for role in ("masterd", "rapi", "confd", "daemons", "admin")}
ME = Account("somebody", 61700, 61701, (61701, 61702))


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """A node whose host knows the usual users."""
    uids = {"gnt-masterd": 901, "gnt-rapi": 902, "gnt-confd": 903, "root-too": 0}
    gids = {"gnt-daemons": 911, "gnt-admin": 912}

    def getpwnam(name: str) -> pwd.struct_passwd:
        return pwd.struct_passwd((name, "x", uids[name], 7, "", "/", "/bin/false"))

    def getgrnam(name: str) -> grp.struct_group:
        return grp.struct_group((name, "x", gids[name], []))

    monkeypatch.setattr(pwd, "getpwnam", getpwnam)
    monkeypatch.setattr(grp, "getgrnam", getgrnam)
    paths = Paths(tmp_path)
    paths.etc.mkdir(parents=True)
    return paths


def test_names_are_written_and_read_back() -> None:
    assert parse_names(format_names(NAMES), "users") == NAMES


@pytest.mark.parametrize(
    "text",
    [
        "",
        format_names(NAMES).replace("gnt-rapi", "Gnt Rapi"),
        format_names(NAMES).replace("gnt-rapi", ""),
        format_names(NAMES).replace("rapi = gnt-rapi\n", ""),
        format_names(NAMES) + "rapi = other\n",
        format_names(NAMES) + "noded = gnt-noded\n",
        format_names(NAMES).replace("=", ":"),
    ],
)
def test_a_damaged_file_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="users"):
        parse_names(text, "users")


@pytest.mark.requirement("S224")
def test_a_node_without_the_file_has_a_single_user(paths: Paths) -> None:
    assert ServiceUsers.of_node(paths) is None


@pytest.mark.requirement("S224")
def test_daemons_have_a_common_group_and_the_masters_clients_one_more(paths: Paths) -> None:
    users_file(paths).write_text(format_names(NAMES))
    users = ServiceUsers.of_node(paths)
    assert users is not None
    assert (users.daemons, users.admin) == (911, 912)
    assert users.accounts["masterd"] == Account("gnt-masterd", 901, 911, (911, 912))
    assert users.accounts["rapi"] == Account("gnt-rapi", 902, 911, (911, 912))
    assert users.accounts["confd"] == Account("gnt-confd", 903, 911, (911,))


@pytest.mark.parametrize(
    ("name", "match"),
    [("gnt-gone", "gnt-gone.*run ganeti-users-setup"), ("root-too", "the rights of root")],
)
def test_a_user_that_is_gone_or_is_root_is_refused(paths: Paths, name: str, match: str) -> None:
    users_file(paths).write_text(format_names({**NAMES, "rapi": name}))
    with pytest.raises(ConfigurationError, match=match):
        ServiceUsers.of_node(paths)


def in_child(function: object) -> str:
    """What a function says in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            try:
                said = str(function())  # type: ignore[operator] # a function of this module
            except HostError as err:
                said = f"HostError: {err}"
            os.write(writer, said.encode())
        finally:
            os._exit(0)
    os.close(writer)
    try:
        with os.fdopen(reader) as file:
            return file.read()
    finally:
        os.waitpid(child, 0)


@pytest.mark.requirement("S227")
def test_rights_of_root_are_dropped_permanently(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has rights to give up")
    monkeypatch.setattr(os, "access", lambda _path, _mode: True)

    def drop() -> tuple[object, ...]:
        become(ME)
        try:
            os.setuid(0)
        except PermissionError:
            return os.getresuid(), os.getresgid(), sorted(os.getgroups()), os.umask(0)
        return ("root again",)

    wanted = ((61700,) * 3, (61701,) * 3, [61701, 61702], 0o027)
    assert in_child(drop) == str(wanted)


@pytest.mark.requirement("S227")
def test_unreadable_program_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has rights to give up")
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    assert "somebody cannot read" in in_child(lambda: become(ME))


@pytest.mark.requirement("S227")
def test_only_root_can_become_another_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can try this")

    def twice() -> None:
        os.setresuid(61799, 61799, 61799)
        become(ME)

    assert "HostError: cannot change to the user somebody" in in_child(twice)
