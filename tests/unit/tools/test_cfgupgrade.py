"""A kept configuration in the form of 3.0."""

import json
import stat
from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.tools.cfgupgrade import main, upgraded
from ganeti.upstream import forms
from ganeti.upstream.forms import VERSION_3_0, parse
from tests.unit.upstream import sample

OLD = sample.encoded(sample.older(sample.document()))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a configuration of 2.8, on its master."""
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path / "root"))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    (tmp_path / "config.data").write_bytes(OLD)
    return tmp_path


def test_an_old_form_becomes_the_new_one_and_the_file_is_kept(place: Path) -> None:
    assert main([f"--path={place}", "--force"]) == 0
    path = place / "config.data"
    (backup,) = place.glob("config.data.backup-*")
    assert backup.read_bytes() == OLD
    assert {stat.S_IMODE(one.stat().st_mode) for one in (path, backup)} == {0o600}
    new = json.loads(path.read_bytes())
    assert new["version"] == VERSION_3_0
    assert new["nodes"].keys() == set(sample.NODES)
    assert new["cluster"]["secret_of_the_future"] == {"a": 1}
    assert new["serial_no"] == 8
    assert parse(path.read_bytes()) == new
    written = path.read_bytes()
    assert main([f"--path={place}", "--force"]) == 0
    assert path.read_bytes() == written


def test_a_dry_run_writes_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--path={place}", "--dry-run", "--verbose"]) == 0
    said = capsys.readouterr().out
    assert "would be written" in said
    assert "nodes: 2" in said
    assert [path.name for path in place.iterdir()] == ["config.data"]
    assert (place / "config.data").read_bytes() == OLD


def test_only_the_master_converts_and_asks_for_confirmation(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"--path={place}"]) == 1
    assert "--force" in capsys.readouterr().err
    monkeypatch.setenv("GANETI_HOSTNAME", "other.example.com")
    assert main([f"--path={place}", "--force"]) == 1
    assert "--ignore-hostname" in capsys.readouterr().err
    assert (place / "config.data").read_bytes() == OLD
    assert main([f"--path={place}", "--force", "--ignore-hostname"]) == 0


def test_upgrade_scripts_continue_with_a_state_of_this_implementation(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = Paths(place / "root")
    assert main(["--force"]) == 1
    assert "does not exist" in capsys.readouterr().err
    paths.data.mkdir(parents=True)
    paths.node_certificate.touch()
    assert main(["--force"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert main(["--force", "--downgrade"]) == 1


@pytest.mark.parametrize("version", [3000000, 3010000])
def test_a_newer_form_is_not_touched(version: int) -> None:
    assert upgraded(sample.encoded({**sample.document(), "version": version})) == (None, [])


def test_a_form_that_would_be_read_otherwise_is_not_written(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = forms.parse

    def lossy(data: bytes) -> forms.Document:
        document = real(data)
        return document if data == OLD else {**document, "instances": {}}

    monkeypatch.setattr(forms, "parse", lossy)
    assert main([f"--path={place}", "--force"]) == 1
    assert "another meaning" in capsys.readouterr().err
    assert (place / "config.data").read_bytes() == OLD
