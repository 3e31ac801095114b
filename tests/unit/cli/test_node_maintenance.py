"""gnt-node maintenance: what it submits, how it follows the jobs, and how it stops."""

from typing import Any

import pytest

from ganeti.base.errors import ExecError
from ganeti.cli.gnt_node import table
from ganeti.protocols.luxi import error_to_wire
from tests.unit.cli.fake_master import FakeMaster, Run


def with_jobs(master: FakeMaster, *jobs: int, failing: int = 0) -> None:
    """The opcode's own job is 7; it submits `jobs`."""
    master.job(job_id=7)
    master.replies["QueryNodes"] = lambda names, _fields, _lock: [
        [f"{name}.example.com"] for name in names
    ]

    def answer(ids: list[int], fields: list[str]) -> list[list[Any]]:
        if fields == ["summary"]:
            return [[[f"INSTANCE_MIGRATE(web{job_id})"]] for job_id in ids]
        if ids == [7]:
            return [["success", ["success"], [{"jobs": [[True, job_id] for job_id in jobs]}]]]
        error = error_to_wire(ExecError("no memory"))
        return [["error", ["error"], [error]] if failing in ids else ["success", ["success"], [1]]]

    master.replies["QueryJobs"] = answer


def submitted(master: FakeMaster) -> list[dict[str, Any]]:
    return [args[0][0] for method, args in master.requests if method == "SubmitJob"]


def test_nodes_are_emptied_one_after_the_other_with_progress(master: FakeMaster, run: Run) -> None:
    with_jobs(master, 8, 9)
    code, out, _err = run(table, "maintenance", "on", "-I", "hail", "node1", "node2")
    assert code == 0
    ops = submitted(master)
    assert {op["OP_ID"] for op in ops} == {"OP_NODE_MAINTENANCE_BEGIN"}
    assert [op["node_name"] for op in ops] == ["node1.example.com", "node2.example.com"]
    assert ops[0]["iallocator"] == "hail"
    assert "1 of 2: job 8, INSTANCE_MIGRATE(web8)" in out
    assert "2 of 2: job 9, INSTANCE_MIGRATE(web9), about 0 s left" in out
    assert "node1.example.com is in maintenance: 2 instances" in out


def test_first_problem_ends_the_command_and_says_what_to_do(master: FakeMaster, run: Run) -> None:
    with_jobs(master, 8, 9, failing=8)
    code, out, err = run(table, "maintenance", "on", "node1", "node2")
    assert code == 1
    assert len(submitted(master)) == 1
    assert "job 9" not in out
    assert "job 8, INSTANCE_MIGRATE(web8): no memory" in err
    assert "gnt-node maintenance on node1.example.com" in err


def test_end_returns_instances_on_request(master: FakeMaster, run: Run) -> None:
    with_jobs(master, 8)
    code, out, _err = run(table, "maintenance", "off", "--failback", "--wait=30", "node1")
    assert code == 0
    [op] = submitted(master)
    assert op["OP_ID"] == "OP_NODE_MAINTENANCE_END"
    assert (op["failback"], op["wait"]) == (True, 30)
    assert "node1.example.com is in service" in out


@pytest.mark.parametrize("option", ["--shutdown", "--allow-failover"])
def test_stops_of_guests_are_confirmed(master: FakeMaster, run: Run, option: str) -> None:
    with_jobs(master)
    code, _out, err = run(table, "maintenance", "on", option, "node1")
    assert code == 13
    assert "--force" in err
    assert submitted(master) == []
    assert run(table, "maintenance", "on", "-f", option, "node1")[0] == 0


@pytest.mark.parametrize(
    "words",
    [["pause", "node1"], ["on"], ["on", "--failback", "node1"], ["off", "--shutdown", "node1"]],
)
def test_wrong_words_are_refused(master: FakeMaster, run: Run, words: list[str]) -> None:
    code, _out, err = run(table, "maintenance", *words)
    assert code == 1
    assert err
    assert master.methods() == []
