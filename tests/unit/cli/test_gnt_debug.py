import io
import json
from pathlib import Path
from typing import Any

import pytest

from ganeti.cli.gnt_debug import table
from tests.unit.cli.fake_master import FakeMaster, Run

OPS: list[dict[str, Any]] = [{"OP_ID": "OP_TEST_DELAY", "duration": 0, "reason": []}]


def test_jobs_from_files_are_submitted_together(
    master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    master.job("hello")
    (tmp_path / "job").write_text(json.dumps(OPS))
    words = ["submit-job", "--job-repeat=2", str(tmp_path / "job")]
    code, out, _err = run(table, *words)
    assert code == 0
    assert out.splitlines()[:2] == ["JobID: 7", "JobID: 8"]
    assert master.args_of("SubmitManyJobs")[0] == [OPS, OPS]


def test_jobs_from_standard_input_are_separate(
    master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.job()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(OPS).encode())))
    assert run(table, "submit-job", "--each", "--submit", "-") == (0, "JobID: 7\n", "")
    assert master.methods() == ["SubmitJob"]


@pytest.mark.parametrize("text", ["{", "{}", ""])
def test_a_file_without_opcodes_is_refused(
    master: FakeMaster, run: Run, tmp_path: Path, text: str
) -> None:
    (tmp_path / "job").write_text(text)
    code, _out, err = run(table, "submit-job", str(tmp_path / "job"))
    assert code == 1
    assert "wrong_input" in err


@pytest.mark.parametrize("text", ["-1", "x", "nan", "1e10"])
def test_a_duration_is_a_number_of_seconds(master: FakeMaster, run: Run, text: str) -> None:
    code, _out, err = run(table, "delay", "--", text)
    assert code == 1
    assert "not a number of seconds" in err


def test_an_allocator_can_be_asked(master: FakeMaster, run: Run) -> None:
    master.job(result='{"success": true}')
    words = "iallocator --dir=in --memory=1g -c 2 -t sharedfile --disk 0:size=1g -I hail x.invalid"
    assert run(table, *words.split()) == (0, '{"success": true}\n', "")
    [op] = master.args_of("SubmitJob")[0]
    wanted = {"direction": "in", "memory": 1024, "vcpus": 2, "iallocator": "hail"}
    assert {**wanted, "name": "x.invalid"}.items() <= op.items()
    assert op["disks"][0]["size"] == 1024


def test_jobs_of_the_test_are_compared_with_how_they_should_end(
    master: FakeMaster, run: Run
) -> None:
    master.job()
    code, out, _err = run(table, "test-jobqueue")
    assert code == 1
    words = [line.split(":")[0] for line in out.splitlines()]
    assert words == ["ok", "WRONG", "ok", "WRONG", "ok"]
    jobs = master.args_of("SubmitManyJobs")[0]
    assert jobs[3][0]["depends"] == [[-2, ["success"]]]


def test_of_secrets_only_the_length_is_shown(master: FakeMaster, run: Run) -> None:
    master.job(result={"root": 7})
    words = ["test-osparams", "--os-parameters-secret", "root=geheim!"]
    assert run(table, *words)[:2] == (0, "root: 7 characters\n")


def test_upstreams_flush_of_the_configuration_asks_whether_the_master_serves(
    master: FakeMaster, run: Run
) -> None:
    master.replies["QueryClusterInfo"] = {"master": "node1"}
    assert run(table, "wconfd", "flushconfig")[0] == 0
    assert run(table, "wconfd", "echo", "a", "b")[1] == "a b\n"
    assert master.methods() == ["QueryClusterInfo"] * 2
    assert run(table, "wconfd", "readlocks")[0] == 1
