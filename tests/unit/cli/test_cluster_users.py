"""gnt-cluster list-users, add-user, modify-user and remove-user."""

import fcntl
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ganeti.base import files
from ganeti.base.paths import Paths
from ganeti.cli import input_file
from ganeti.cli.gnt_cluster import table
from ganeti.model.rest_users import parse_users
from tests.unit.cli.fake_master import FakeMaster, Run

BEFORE = "# people\nop {cleartext}secret operator\n\nshop secret write,name=shop-*,until=2027-12-31"


@pytest.fixture
def file(master: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    paths = Paths(tmp_path)
    paths.rapi_users.parent.mkdir(parents=True, exist_ok=True)
    paths.rapi_users.write_text(BEFORE)
    monkeypatch.setenv("GANETI_MASTER_SOCKET", str(master.path))
    master.replies["QueryClusterInfo"] = {"name": "c"}
    master.job()
    return paths.rapi_users


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_list_shows_roles_and_never_a_password(file: Path, run: Run) -> None:
    code, out, _ = run(table, "list-users", "--separator=|", "--no-headers")
    assert code == 0
    assert out == (
        "op|password|operator|operator|-\n"
        "shop|password|write|write,name=shop-*,until=2027-12-31|2027-12-31\n"
    )
    assert [one["name"] for one in json.loads(run(table, "list-users", "--json")[1])] == [
        "op",
        "shop",
    ]
    file.unlink()
    assert run(table, "list-users", "--no-headers")[:2] == (0, "")


def test_list_reports_lines_that_cannot_log_in(file: Path, run: Run) -> None:
    file.write_text("anna secret wrong\nop x read\n")
    code, out, err = run(table, "list-users", "--no-headers")
    assert (code, out.split()[0]) == (1, "op")
    assert "line 1: unknown option 'wrong'" in err


def test_new_user_has_a_digest_and_the_other_lines_stay(
    file: Path, run: Run, monkeypatch: pytest.MonkeyPatch, master: FakeMaster
) -> None:
    typed(monkeypatch, "long secret\n")
    code, out, err = run(table, "add-user", "--options", "read,name=web*", "anna")
    assert (code, out) == (0, ""), err
    text = file.read_text()
    assert text.startswith(BEFORE)
    assert "long secret" not in text
    assert file.stat().st_mode & 0o777 == 0o600
    entries, problems = parse_users(text)
    assert problems == []
    assert entries[b"anna"].accepts(b"anna", b"long secret")
    assert entries[b"anna"].user.rights.scope.names == ("web*",)
    assert "OP_CLUSTER_REDIST_CONF" in json.dumps(master.requests)
    typed(monkeypatch, "other\n")
    code, _, err = run(table, "add-user", "anna")
    assert code != 0
    assert "user anna is already in the users file" in err
    assert file.read_text() == text


def test_token_is_printed_once_and_logs_in(file: Path, run: Run) -> None:
    _, out, _ = run(table, "add-user", "--token", "--json", "--options=read", "robot")
    token = json.loads(out)["token"]
    entry = parse_users(file.read_text())[0][b"robot"]
    assert entry.is_token
    assert entry.accepts(b"robot", token.encode())
    _, again, _ = run(table, "modify-user", "--token", "robot")
    entry = parse_users(file.read_text())[0][b"robot"]
    assert entry.accepts(b"robot", again.strip().encode())
    assert not entry.accepts(b"robot", token.encode())


def test_change_of_options_keeps_the_password(
    file: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(table, "modify-user", "--options", "read", "op")[0] == 0
    assert "op {cleartext}secret read\n" in file.read_text()
    typed(monkeypatch, "new\n")
    assert run(table, "modify-user", "--password", "op")[0] == 0
    entry = parse_users(file.read_text())[0][b"op"]
    assert entry.accepts(b"op", b"new")
    assert entry.options == "read"
    assert run(table, "modify-user", "--options", "", "op")[0] == 0
    assert parse_users(file.read_text())[0][b"op"].options == ""


def test_remove_leaves_the_others(file: Path, run: Run) -> None:
    assert run(table, "remove-user", "op")[0] == 0
    assert file.read_text() == "# people\n\nshop secret write,name=shop-*,until=2027-12-31\n"
    code, _, err = run(table, "remove-user", "op")
    assert code != 0
    assert "user op is not in the users file" in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("add-user", "--options", "boss", "anna"), "unknown option 'boss'"),
        (("add-user", "--options", "read write", "anna"), "contain spaces"),
        (("add-user", "an na"), "contain spaces"),
        (("add-user", "#anna"), "must not begin with '#'"),
        (("add-user", "an:na"), "must not contain ':'"),
        (("modify-user", "--options", "boss", "op"), "unknown option 'boss'"),
        (("modify-user", "op"), "pass at least one of"),
        (("modify-user", "--password", "--token", "op"), "exclude each other"),
        (("modify-user", "--options", "read", "anna"), "user anna is not in the users file"),
    ],
)
def test_wrong_input_changes_nothing(
    file: Path, run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], why: str
) -> None:
    typed(monkeypatch, "secret\n")
    code, _, err = run(table, *words)
    assert code != 0
    assert why in err
    assert file.read_text() == BEFORE


def test_empty_password_is_refused(file: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, "\n")
    code, _, err = run(table, "add-user", "anna")
    assert code != 0
    assert "password is empty" in err
    assert file.read_text() == BEFORE


def test_failed_write_keeps_the_old_file(
    file: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ganeti.base.files.write_atomically", full)
    code, _, err = run(table, "remove-user", "op")
    assert code != 0
    assert "cannot be written: No space left on device" in err
    assert file.read_text() == BEFORE


def test_file_is_read_and_replaced_under_one_lock(
    file: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commands at once would otherwise lose what the first one wrote."""
    locked = []
    read, write = input_file.read_text, files.write_atomically

    def is_locked() -> bool:
        descriptor = os.open(file.parent, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def reading(path: str) -> str:
        locked.append(("read", is_locked()))
        return read(path)

    def writing(*args: Any, **more: Any) -> None:
        locked.append(("write", is_locked()))
        write(*args, **more)

    monkeypatch.setattr("ganeti.cli.cluster_users.read_text", reading)
    monkeypatch.setattr(files, "write_atomically", writing)
    assert run(table, "remove-user", "op")[0] == 0
    assert locked == [("read", True), ("write", True)]
    assert not is_locked()


def test_without_a_master_nothing_changes(file: Path, run: Run, master: FakeMaster) -> None:
    from ganeti.base.errors import HostError

    master.replies["QueryClusterInfo"] = HostError("this node is not the master")
    code, _, _ = run(table, "remove-user", "op")
    assert code != 0
    assert file.read_text() == BEFORE
