"""The program of the carrier, run in this process: what it leaves beside its order."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ganeti.node.backups import throttle
from ganeti.node.carrier.flow import BURST_S, paced
from ganeti.node.carrier.frames import Pieces
from ganeti.node.carrier.program import main

MIB = 1024 * 1024


def carried_out(directory: Path, **order: Any) -> tuple[int, str]:
    """Carry an order out; return the exit status, and the result or the error."""
    file = directory / "stream.order"
    file.write_text(json.dumps(order))
    status = main([str(file)])
    return status, file.with_suffix(".error" if status else ".result").read_text()


@pytest.mark.requirement("G12")
def test_copy_reports_its_length(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"data" * MIB)
    target.write_bytes(b"x" * 5 * MIB)
    ends = {"source": {"path": str(source)}, "sink": {"path": str(target)}}
    status, text = carried_out(tmp_path, size=4 * MIB, **ends)
    assert status == 0
    assert json.loads(text)["data_bytes"] == 4 * MIB
    assert target.read_bytes() == b"data" * MIB + b"x" * MIB


@pytest.mark.parametrize(
    ("end", "steps_back"),
    [
        ({"source": {"path": "none", "changes": {"export": "disk"}}}, True),
        ({"sink": {"image": {"directory": "none", "file": "f", "backing": "", "disk": "d", "size": 1}}}, True),
        ({"source": {"path": "none", "changes": {}}}, False),
        ({}, False),
    ],
)  # fmt: skip
def test_only_programs_of_backups_step_back_behind_guests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: dict[str, Any], *, steps_back: bool
) -> None:
    called = list[None]()
    monkeypatch.setattr(throttle, "step_back", lambda: called.append(None))
    file = str(tmp_path / "none")
    status, _ = carried_out(
        tmp_path, size=MIB, **({"source": {"path": file}, "sink": {"path": file}} | end)
    )
    assert (status, bool(called)) == (1, steps_back)


def test_copy_shares_blocks_where_the_file_system_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ioctl of XFS and btrfs, played: the whole content, and the rest of a larger target stays."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"data" * MIB)
    target.write_bytes(bytes(5 * MIB))
    seen = []

    def clone(new: int, old: int) -> None:
        seen.append((new, old))
        os.pwrite(new, os.pread(old, 4 * MIB, 0), 0)

    monkeypatch.setattr("ganeti.node.carrier.ends.clone", clone)
    ends = {"source": {"path": str(source)}, "sink": {"path": str(target)}}
    status, text = carried_out(tmp_path, size=4 * MIB, **ends)
    assert (status, len(seen)) == (0, 1)
    assert json.loads(text)["data_bytes"] == 4 * MIB
    assert target.read_bytes() == b"data" * MIB + bytes(MIB)
    for length in (3 * MIB, 5 * MIB):  # a source of another size than recorded, a target too small
        os.truncate(target, 4 * MIB)
        os.truncate(source, length)
        carried_out(tmp_path, size=4 * MIB, **ends)
    target.write_bytes(b"")
    os.truncate(source, 4 * MIB)
    carried_out(tmp_path, size=4 * MIB, **ends)
    assert len(seen) == 1


@pytest.mark.requirement("F32")
@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ({"source": {"path": "short"}, "sink": {"path": "target"}}, "the data ends at byte 5"),
        ({"source": {"path": "none"}, "sink": {"path": "target"}}, "No such file"),
        ({"source": {"path": "long"}, "sink": {"path": "/dev/full"}}, "free some space"),
        ({"source": {"path": "long"}, "sink": {"argv": ["false"]}}, "exit status 1"),
        ({"source": {"argv": ["false"]}, "sink": {"path": "target"}}, "exit status 1"),
    ],
)
def test_failed_copy_reports_the_reason(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], ends: dict[str, Any], text: str
) -> None:
    (tmp_path / "short").write_bytes(b"short")
    (tmp_path / "long").write_bytes(b"long" * MIB)
    (tmp_path / "target").touch()
    for end in ends.values():
        if "path" in end and not end["path"].startswith("/"):
            end["path"] = str(tmp_path / end["path"])
    status, error = carried_out(tmp_path, size=4 * MIB, **ends)
    assert status == 1
    assert text in error
    assert error in capfd.readouterr().err


def test_limited_rate_holds_for_data_and_not_for_zeros() -> None:
    now, slept = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    def pieces() -> Pieces:
        yield 0, b"x" * MIB
        yield 64 * MIB, b""
        yield 0, b"x" * MIB
        now[0] += 60  # The source is slow; what was not sent meanwhile must not follow as a burst.
        for _ in range(8):
            yield 0, b"x" * MIB

    found = list(paced(pieces(), 2 * MIB, now=lambda: now[0], sleep=sleep))
    assert sum(zeros + len(data) for zeros, data in found) == 74 * MIB
    assert sum(slept) == pytest.approx(0.5 + 0.5 + 8 * 0.5 - BURST_S)
    slept.clear()
    assert len(list(paced(pieces(), 0, now=lambda: now[0], sleep=sleep))) == 11
    assert slept == []
