"""`gnt-backup key`: what each action sends and shows."""

from pathlib import Path

import pytest

from ganeti.base.backup_ciphers import key_id
from ganeti.cli.gnt_backup import table
from ganeti.protocols.paper_key import parse_paper
from tests.unit.cli.fake_master import FakeMaster, Run

KEY = bytes(range(32))


def test_export_prints_a_page_that_gives_the_key_back(master: FakeMaster, run: Run) -> None:
    found = {"key_id": key_id(KEY), "secret": KEY.hex(), "made": 0.0, "cluster": "c.example.com"}
    master.replies["ReadBackupKey"] = found
    code, out, _err = run(table, "key", "export")
    assert code == 0
    assert parse_paper(out) == KEY
    assert "cluster c.example.com, made on 1970-01-01" in out
    assert ("ReadBackupKey", [None]) in master.requests
    run(table, "key", "export", key_id(KEY))
    assert ("ReadBackupKey", [key_id(KEY)]) in master.requests


def test_import_sends_the_text_of_a_file(master: FakeMaster, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("the groups")
    master.job(result="0123456789abcdef")
    code, out, _err = run(table, "key", "import", str(file), "--activate")
    assert code == 0
    assert "Added backup key 0123456789abcdef" in out
    [op] = master.args_of("SubmitJob")[0]
    assert (op["secret"], op["is_active"]) == ("the groups", True)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("key nothing", "must be one of: create, list, export, import, retire"),
        ("key import", "name the file"),
        ("key retire", "name the key"),
        ("key create x", "omit the argument"),
        ("key create --activate", "only for import"),
        ("key import --force x", "only for retire"),
        ("decrypt a b", "--key-file=FILE"),
    ],
)
def test_wrong_command_lines(master: FakeMaster, run: Run, words: str, why: str) -> None:
    code, _out, err = run(table, *words.split())
    assert code
    assert why in err
    assert not master.requests
