"""Exports that are compared with their digests: every kind of damage is named, and nothing is changed."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from ganeti.base.errors import GanetiError
from ganeti.node import export_check
from ganeti.node.carrier.progress import ProgressFile
from ganeti.node.export_check import check_export
from ganeti.protocols.export_description import (
    RAW,
    SCRIPT,
    ExportDescription,
    ExportedDisk,
    format_description,
)
from ganeti.rpc.procedures.exports import DumpCheck

MIB = 1 << 20
DATA = [os.urandom(1000) + bytes(MIB - 1000), os.urandom(2 * MIB)]


def made(directory: Path, *, compression: str = "none", data: str = RAW) -> ExportDescription:
    """An export with two disks."""
    export = ExportDescription(
        name="web1.example.com",
        os="tiny",
        compression=compression,
        data=data,
        disk_template="file",
        hypervisor="kvm",
        disks=tuple(
            ExportedDisk(
                size=len(one) // MIB, dump=f"dump{n}", sha256=hashlib.sha256(one).hexdigest()
            )
            for n, one in enumerate(DATA)
        ),
    )
    text = format_description(export, {"minmem": 64, "maxmem": 64, "vcpus": 1})
    (directory / "config.ini").write_text(text)
    for number, one in enumerate(DATA):
        packed = one
        if compression != "none":
            packed = subprocess.run(
                ["gzip", "-c"], input=one, capture_output=True, check=True
            ).stdout
        (directory / f"dump{number}").write_bytes(packed)
    return export


def checked(directory: Path, tmp_path: Path) -> list[DumpCheck]:
    return check_export(directory, ProgressFile(tmp_path / "log"))


@pytest.fixture
def export(tmp_path: Path) -> Path:
    found = tmp_path / "web1.example.com"
    found.mkdir()
    return found


@pytest.mark.requirement("S134")
@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("place", [0, 999, 100_000, -1])
def test_one_flipped_bit_is_found_and_named(
    export: Path, tmp_path: Path, compression: str, place: int
) -> None:
    made(export, compression=compression)
    good = checked(export, tmp_path)
    assert [(one.disk, one.file, one.problem) for one in good] == [
        (0, "dump0", ""),
        (1, "dump1", ""),
    ]
    content = bytearray((export / "dump1").read_bytes())
    content[place] ^= 1
    (export / "dump1").write_bytes(content)
    first, second = checked(export, tmp_path)
    assert first.problem == ""
    assert second.problem
    if compression == "none":
        assert second.problem == "its data is not what was exported (SHA-256)"


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_missing_short_and_foreign_dumps_are_named(
    export: Path, tmp_path: Path, compression: str
) -> None:
    made(export, compression=compression)
    (export / "dump0").unlink()
    os.truncate(export / "dump1", 500)
    first, second = checked(export, tmp_path)
    assert first.problem == "dump0 cannot be read: No such file or directory"
    assert ("has 500 bytes" if compression == "none" else "gzip failed") in second.problem
    (export / "dump0").symlink_to("/etc/passwd")
    first, _second = checked(export, tmp_path)
    assert "cannot be read" in first.problem


def test_the_output_of_a_script_has_any_length(export: Path, tmp_path: Path) -> None:
    found = made(export, data=SCRIPT)
    (export / "dump0").write_bytes(b"an archive")
    digest = hashlib.sha256(b"an archive").hexdigest()
    config = (export / "config.ini").read_text().replace(found.disks[0].sha256, digest)
    (export / "config.ini").write_text(config)
    assert [one.problem for one in checked(export, tmp_path)] == ["", ""]


def test_an_export_of_upstream_cannot_be_verified(export: Path, tmp_path: Path) -> None:
    made(export)
    lines = (export / "config.ini").read_text().splitlines()
    (export / "config.ini").write_text("\n".join(one for one in lines if "sha256" not in one))
    assert all("no digest" in one.problem for one in checked(export, tmp_path))


def test_a_damaged_description_is_an_error(export: Path, tmp_path: Path) -> None:
    made(export)
    (export / "config.ini").write_bytes(b"\xff\xfe")
    with pytest.raises(GanetiError, match=r"config\.ini cannot be read"):
        checked(export, tmp_path)
    assert export_check.main([str(export), str(tmp_path / "log")]) == 1


def test_the_program_prints_what_the_daemon_reads(
    export: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    made(export)
    before = sorted(one.name for one in export.iterdir())
    assert export_check.main([str(export), str(tmp_path / "log")]) == 0
    assert b'"file":"dump1"' in capfdbinary.readouterr().out
    assert sorted(one.name for one in export.iterdir()) == before
