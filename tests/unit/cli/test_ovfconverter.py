"""ovfconverter: a machine becomes an export and an export an OVA, or nothing is left and the reason is said."""

import errno
import os
from pathlib import Path

import pytest

from ganeti.cli.ovfconverter import table
from tests.unit.cli.fake_master import Run

MIB = 1 << 20


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "disk.raw"
    path.write_bytes(os.urandom(MIB))
    return path


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_an_image_becomes_an_export_and_that_an_ova(run: Run, tmp_path: Path, image: Path) -> None:
    out = tmp_path / "out"
    words = ["import", "--output-dir", str(out), "--name=web1", str(image)]
    assert run(table, *words)[0] == 0
    assert (out / "web1/disk0.raw").read_bytes() == image.read_bytes()
    assert run(table, "export", "--output-dir", str(out), str(out / "web1"))[0] == 0
    assert names_in(out) == ["web1", "web1.ova"]
    code, _out, err = run(table, *words)
    assert code == 1
    assert "already exists" in err


@pytest.mark.requirement("F32")
def test_without_room_nothing_is_left_and_the_reason_is_reported(
    run: Run, tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        code, _out, err = run(table, "import", "--output-dir", str(out), "--name=web1", str(image))
    assert code == 1
    assert f"{out}: No space left on device" in err
    assert names_in(out) == []
    assert run(table, "import", "--output-dir", str(out), "--name=web1", str(image))[0] == 0
    nowhere = str(tmp_path / "nowhere")
    code, _out, err = run(table, "export", "--output-dir", nowhere, str(out / "web1"))
    assert code == 1
    assert "No such file or directory" in err


@pytest.mark.parametrize("name", ["web1.new", "../web1"])
def test_a_name_that_no_export_has_is_refused(
    run: Run, tmp_path: Path, image: Path, name: str
) -> None:
    out = tmp_path / "out"
    code, _out, err = run(table, "import", "--output-dir", str(out), "--name", name, str(image))
    assert code == 1
    assert "name" in err
    assert not out.exists()
