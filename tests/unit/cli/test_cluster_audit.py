import json
import time
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.node_files import AUDIT_LOG, MASTER_AUDIT_LOG
from ganeti.base.paths import Paths
from ganeti.cli.gnt_cluster import table
from tests.unit.cli.fake_master import Run


def record(user: str, age_s: float, **more: Any) -> str:
    base = {
        "time": time.time() - age_s, "user": user, "address": "192.0.2.7", "method": "PUT",
        "path": "/2/modify", "status": 200, "jobs": [],
    }  # fmt: skip
    return json.dumps({**base, **more})


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    path = Paths(tmp_path).log / AUDIT_LOG
    path.parent.mkdir(parents=True)
    lines = [
        record("anna", 7200, jobs=[7]),
        record("bob", 60, status=403, why="lacks the right"),
        "half a rec",
        '{"time": "never"}',
        record("anna", 10, reason="maintenance", path="/2/tags\u001b[2J"),
    ]
    path.write_text("\n".join(lines))
    return path


def users(out: str) -> list[str]:
    return [line.split()[2] for line in out.splitlines()[1:]]


def test_the_log_is_a_table_that_steers_no_terminal(log: Path, run: Run) -> None:
    code, out, _err = run(table, "audit")
    assert code == 0
    assert users(out) == ["anna", "bob", "anna"]
    assert "lacks the right" in out
    assert "maintenance" in out
    assert "\x1b" not in out


def test_desired_states_can_be_set(log: Path, run: Run) -> None:
    assert users(run(table, "audit", "--user", "anna")[1]) == ["anna", "anna"]
    assert users(run(table, "audit", "--since", "1h")[1]) == ["bob", "anna"]
    assert users(run(table, "audit", "--job", "7")[1]) == ["anna"]
    assert users(run(table, "audit", "-n", "1")[1]) == ["anna"]
    lines = run(table, "audit", "--json", "--user", "bob")[1].splitlines()
    assert [json.loads(line)["status"] for line in lines] == [403]


def test_without_a_log_there_is_nothing_to_show(log: Path, run: Run) -> None:
    log.unlink()
    code, out, _err = run(table, "audit")
    assert (code, len(out.splitlines())) == (0, 1)


def test_what_commands_asked_for_and_jobs_changed_stands_between(log: Path, run: Run) -> None:
    changed = {
        "kind": "instance", "name": "web1", "change": "changed",
        "differences": {"beparams.maxmem": [128, 256]},
    }  # fmt: skip
    lines = [
        record("uid 0", 300, method="SubmitJob", path="INSTANCE_SET_PARAMS(web1)", jobs=[8]),
        record("job 8", 200, method="changed", path="instance web1", jobs=[8], objects=[changed]),
    ]
    log.with_name(MASTER_AUDIT_LOG).write_text("\n".join(lines))
    _code, out, _err = run(table, "audit")
    assert [line.split()[2] for line in out.splitlines()[1:]] == [
        "anna",
        "root",
        "job",
        "bob",
        "anna",
    ]
    assert "beparams.maxmem: 128 -> 256" in out
    _code, out, _err = run(table, "audit", "--user", "root")
    assert len(out.splitlines()) == 2
    _code, out, _err = run(table, "audit", "--job", "8")
    assert len(out.splitlines()) == 3
