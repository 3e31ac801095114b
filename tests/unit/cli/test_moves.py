"""The commands that move instances: what they submit, and how they wait for many jobs."""

from typing import Any

import pytest

from ganeti.base.errors import ExecError
from ganeti.cli.command import CommandTable
from ganeti.cli.gnt_instance import table as instances
from ganeti.cli.gnt_node import table as nodes
from ganeti.protocols.luxi import error_to_wire
from tests.unit.cli.fake_master import FakeMaster, Run


def submitted(master: FakeMaster) -> dict[str, Any]:
    """The only opcode of the only job."""
    [op] = master.args_of("SubmitJob")[0]
    assert isinstance(op, dict)
    return op


def test_failover_has_its_options(master: FakeMaster, run: Run) -> None:
    master.job()
    master.replies["QueryInstances"] = [["web1.example.com"]]
    words = [
        "-f",
        "-n",
        "node2",
        "--ignore-consistency",
        "--shutdown-timeout=5",
        "--ignore-ipolicy",
    ]
    assert run(instances, "failover", *words, "web1")[0] == 0
    op = submitted(master)
    assert op["OP_ID"] == "OP_INSTANCE_FAILOVER"
    assert (op["instance_name"], op["target_node"]) == ("web1.example.com", "node2")
    assert (op["ignore_consistency"], op["ignore_ipolicy"], op["cleanup"]) == (True, True, False)
    assert op["shutdown_timeout"] == 5


def test_move_has_its_options(master: FakeMaster, run: Run) -> None:
    master.job()
    master.replies["QueryInstances"] = [["web1.example.com"]]
    assert run(instances, "move", "-f", "-n", "node2", "--compress=gzip", "web1")[0] == 0
    op = submitted(master)
    assert (op["OP_ID"], op["target_node"], op["compress"]) == ("OP_INSTANCE_MOVE", "node2", "gzip")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (instances, ["failover", "web1"]),
        (instances, ["move", "-n", "node2", "web1"]),
        (nodes, ["evacuate", "node1"]),
        (nodes, ["migrate", "node1"]),
        (nodes, ["failover", "node1"]),
    ],
)
def test_moves_are_confirmed(
    master: FakeMaster, run: Run, table: CommandTable, words: list[str]
) -> None:
    master.replies["QueryInstances"] = [["web1.example.com"]]
    master.replies["QueryNodes"] = [["node1.example.com", ["a", "b"]]]
    code, _out, err = run(table, *words)
    assert code == 13
    assert "--force" in err
    assert "SubmitJob" not in master.methods()


def with_jobs(master: FakeMaster, *jobs: list[Any]) -> None:
    """The opcode's own job is 7; it submits `jobs`, of which number 9 fails."""
    master.job(job_id=7)
    fails = [["error", ["error"], [error_to_wire(ExecError("no memory"))]]]

    def answer(ids: list[int], fields: list[str]) -> list[list[Any]]:
        if fields == ["summary"]:
            return [[[f"INSTANCE_MIGRATE(web{job_id})"]] for job_id in ids]
        if ids == [7]:
            return [["success", ["success"], [{"jobs": list(jobs)}]]]
        return fails if ids == [9] else [["success", ["success"], [None]]]

    master.replies["QueryJobs"] = answer


def test_all_jobs_of_a_node_are_waited_for_and_shown_in_a_table(
    master: FakeMaster, run: Run
) -> None:
    with_jobs(master, [True, 8], [True, 9], [False, "the queue is full"], [True, 10])
    master.replies["QueryNodes"] = [["node1.example.com", ["a", "b"]]]
    code, out, _err = run(nodes, "migrate", "-f", "-n", "node2", "--non-live", "node1")
    assert code == 1
    op = submitted(master)
    assert (op["OP_ID"], op["node_name"], op["live"]) == (
        "OP_NODE_MIGRATE", "node1.example.com", False,
    )  # fmt: skip
    table = [line.split() for line in out.splitlines()[-5:]]
    assert table == [
        ["Job", "Status", "Work", "Why"],
        ["-", "refused", "-", "the", "queue", "is", "full"],
        ["8", "success", "INSTANCE_MIGRATE(web8)"],
        ["9", "error", "INSTANCE_MIGRATE(web9)", "no", "memory"],
        ["10", "success", "INSTANCE_MIGRATE(web10)"],
    ]


@pytest.mark.parametrize(
    ("words", "mode"),
    [([], "all"), (["-p"], "primary-only"), (["-s"], "secondary-only"), (["--all"], "all")],
)
def test_evacuate_reports_what_is_to_leave(
    master: FakeMaster, run: Run, words: list[str], mode: str
) -> None:
    with_jobs(master)
    master.replies["QueryNodes"] = [["node1.example.com"]]
    code, out, _err = run(nodes, "evacuate", "-f", "-I", "hail", *words, "node1")
    assert code == 0
    op = submitted(master)
    assert (op["OP_ID"], op["mode"], op["iallocator"]) == ("OP_NODE_EVACUATE", mode, "hail")
    assert "Nothing to do" in out


def test_a_node_fails_over_by_one_job_for_each_instance(master: FakeMaster, run: Run) -> None:
    master.job()
    master.replies["QueryNodes"] = [["node1.example.com", ["b", "a"]]]
    assert run(nodes, "failover", "-f", "-n", "node2", "node1")[0] == 0
    jobs, _key = master.args_of("SubmitManyJobs")
    assert [(op["OP_ID"], op["instance_name"], op["target_node"]) for [op] in jobs] == [
        ("OP_INSTANCE_FAILOVER", "a", "node2"),
        ("OP_INSTANCE_FAILOVER", "b", "node2"),
    ]


@pytest.mark.parametrize("command", ["migrate", "failover"])
def test_an_empty_node_has_nothing_to_move(master: FakeMaster, run: Run, command: str) -> None:
    master.replies["QueryNodes"] = [["node1.example.com", []]]
    code, out, _err = run(nodes, command, "-f", "node1")
    assert (code, "nothing to do" in out) == (0, True)
