"""Audit logs, read from their ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from ganeti.base import audit_file
from ganeti.base.audit_file import AuditQuery, append_record, latest_records, merged


def written(path: Path, *records: dict[str, Any]) -> Path:
    for one in records:
        append_record(path, one)
    return path


def times(found: list[dict[str, Any]]) -> list[float]:
    return [one["time"] for one in found]


def test_newest_records_come_first_whatever_the_blocks_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "log", *({"time": n, "path": "x" * n} for n in range(1, 60)))
    for block in (1, 7, 100, 10_000):
        monkeypatch.setattr(audit_file, "_BLOCK", block)
        assert times(latest_records(path, AuditQuery(1000))) == list(range(59, 0, -1))
        assert times(latest_records(path, AuditQuery(3, since=58))) == [59, 58]


def test_what_is_no_record_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('half\n{"time": "x"}\n[]\n' + json.dumps({"time": 3}) + '\n{"ti')
    assert times(latest_records(path, AuditQuery(9))) == [3]
    assert latest_records(tmp_path / "none", AuditQuery(9)) == []


def test_only_the_end_of_a_large_log_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "_BLOCK", 64)
    monkeypatch.setattr(audit_file, "LOOKED_AT", 128)
    path = written(tmp_path / "log", *({"time": n} for n in range(1000)))
    found = times(latest_records(path, AuditQuery(1000)))
    assert found[0] == 999
    assert len(found) < 20


@pytest.mark.parametrize(
    ("record", "is_about"),
    [
        ({"path": "/2/instances/web1/startup"}, True),
        ({"path": "INSTANCE_STARTUP(web1), TAGS_SET"}, True),
        ({"path": "INSTANCE_STARTUP(web10)"}, False),
        ({"objects": [{"kind": "instance", "name": "web1"}]}, True),
        ({"objects": [{"kind": "instance", "name": "web2"}]}, False),
        ({}, False),
    ],
)
def test_records_about_an_object_name_it(record: dict[str, Any], *, is_about: bool) -> None:
    assert AuditQuery(1, about="web1").fits(record) is is_about


def test_logs_are_merged_by_time() -> None:
    found = merged(([{"time": 9}, {"time": 2}], [{"time": 5}]), 2)
    assert times(found) == [9, 5]
