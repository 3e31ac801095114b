"""gnt-cluster rolling-reboot: its plan, the steps of each node, and where it stops."""

from typing import Any

import pytest

from ganeti.base.errors import ExecError
from ganeti.cli import rolling_reboot
from ganeti.cli.gnt_cluster import table
from ganeti.protocols.luxi import error_to_wire
from tests.unit.cli.fake_master import FakeMaster, Run

WAYS = ["--command", "/bin/true {node}"]


class Nodes:
    """Three nodes of which the first is the master; a restart changes the boot id at the second question."""

    def __init__(self, master: FakeMaster) -> None:
        self.master = master
        self.asked = 0
        self.copies: dict[str, list[str]] = {}
        self.finding = ""
        self.fails = ""
        self.submitted: list[dict[str, Any]] = []
        master.job(job_id=7)
        master.replies["QueryNodes"] = self.nodes
        master.replies["QueryGroups"] = [["default"], ["other"]]
        master.replies["SubmitJob"] = self.submit
        master.replies["QueryJobs"] = self.jobs
        master.replies["WaitForJobChange"] = self.changes

    def nodes(self, names: list[str], fields: list[str], _lock: bool) -> list[list[Any]]:
        if fields == ["bootid"]:
            self.asked += 1
            return [[f"boot-{self.asked}"]]
        if fields == ["sinst_list"]:
            return [[self.copies.get(names[0], [])]]
        rows = {
            "node1": ["node1", "default", True, False, ["web1"]],
            "node2": ["node2", "default", False, False, ["web2", "web3"]],
            "node3": ["node3", "other", False, False, []],
        }
        return [rows[name] for name in names or rows]

    def submit(self, ops: list[dict[str, Any]], _key: str | None = None) -> int:
        self.submitted += ops
        return 7

    def jobs(self, _ids: list[int], _fields: list[str]) -> list[list[Any]]:
        if self.submitted[-1]["OP_ID"] == self.fails:
            return [["error", ["error"], [error_to_wire(ExecError("no memory"))]]]
        return [["success", ["success"], [{"jobs": []}]]]

    def changes(self, _id: int, _fields: Any, _info: Any, serial: int, _limit: float) -> list[Any]:
        is_verify = self.submitted[-1]["OP_ID"] == "OP_CLUSTER_VERIFY_GROUP"
        text = self.finding if is_verify and self.asked else ""
        entry = [1, [1_700_000_000, 0], "message", text]
        return [["success"], [entry] if text and not serial else []]

    def ids(self) -> list[str]:
        return [op["OP_ID"].removeprefix("OP_") for op in self.submitted]


@pytest.fixture
def nodes(master: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    monkeypatch.setattr(rolling_reboot, "ASK_EVERY_S", 0.01)
    return Nodes(master)


STEPS = [
    *("CLUSTER_VERIFY_GROUP", "NODE_MAINTENANCE_BEGIN", "CLUSTER_VERIFY_GROUP"),
    "NODE_MAINTENANCE_END",
]


def test_plan_is_shown_and_a_dry_run_does_no_more(nodes: Nodes, run: Run) -> None:
    code, out, _err = run(table, "rolling-reboot", *WAYS, "--dry-run")
    assert code == 0
    assert "node1 is the master and is left out." in out
    assert "1. node2: 2 instances leave and return" in out
    assert "2. node3: 0 instances leave and return" in out
    assert nodes.submitted == []


def test_nodes_are_restarted_one_after_the_other(nodes: Nodes, run: Run) -> None:
    code, out, _err = run(table, "rolling-reboot", "-f", *WAYS)
    assert code == 0
    assert nodes.ids() == STEPS * 2
    assert [op["node_name"] for op in nodes.submitted if "node_name" in op] == [
        *("node2", "node2", "node3", "node3"),
    ]
    assert nodes.submitted[3]["failback"] is True
    assert "Running /bin/true node2" in out
    assert "Node 2 of 2: node3, about 0 minutes left" in out
    assert "All 2 nodes have been restarted." in out


def test_copies_of_disks_on_a_restarted_node_are_reopened_before_the_check(
    nodes: Nodes, run: Run
) -> None:
    nodes.copies = {"node3": ["web5", "web4"]}
    many: list[list[dict[str, Any]]] = []

    def submit_many(jobs: list[list[dict[str, Any]]], _key: str) -> list[list[Any]]:
        many.extend(jobs)
        nodes.submitted += [op for ops in jobs for op in ops]
        return [[True, 7] for _ in jobs]

    nodes.master.replies["SubmitManyJobs"] = submit_many
    nodes.master.replies["QueryJobs"] = lambda ids, fields: nodes.jobs(ids, fields) * len(ids)
    code, out, _err = run(table, "rolling-reboot", "-f", "--groups=other", *WAYS)
    assert code == 0
    reopen = "INSTANCE_ACTIVATE_DISKS"
    assert nodes.ids() == [*STEPS[:2], reopen, reopen, *STEPS[2:]]
    assert [(op["instance_name"], op["if_wanted"]) for [op] in many] == [
        ("web4", True),
        ("web5", True),
    ]
    assert "Reopening the copies of the disks of 2 instances on node3" in out


def test_copy_that_cannot_be_reopened_is_left_to_the_check(nodes: Nodes, run: Run) -> None:
    nodes.copies = {"node3": ["web4"]}
    nodes.fails = "OP_INSTANCE_ACTIVATE_DISKS"

    def submit_many(jobs: list[list[dict[str, Any]]], _key: str) -> list[list[Any]]:
        nodes.submitted += jobs[0]
        return [[True, 7]]

    nodes.master.replies["SubmitManyJobs"] = submit_many
    code, _out, err = run(table, "rolling-reboot", "-f", "--groups=other", *WAYS)
    assert code == 0
    assert "Job 7 for web4 has failed: no memory" in err
    assert nodes.ids() == [*STEPS[:2], "INSTANCE_ACTIVATE_DISKS", *STEPS[2:]]


@pytest.mark.parametrize(
    ("by", "op"), [("powercycle", "NODE_POWERCYCLE"), ("out-of-band", "OOB_COMMAND")]
)
def test_way_of_the_restart_is_chosen(nodes: Nodes, run: Run, by: str, op: str) -> None:
    plain = nodes.jobs

    def jobs(ids: list[int], fields: list[str]) -> list[list[Any]]:
        if nodes.ids()[-1] == "OOB_COMMAND":
            return [["success", ["success"], [[[[0, "node3"], [0, None]]]]]]
        return plain(ids, fields)

    nodes.master.replies["QueryJobs"] = jobs
    assert run(table, "rolling-reboot", "-f", f"--by={by}", "--groups=other")[0] == 0
    assert nodes.ids() == [*STEPS[:2], op, *STEPS[2:]]


def test_first_problem_stops_and_names_the_nodes_that_are_left(nodes: Nodes, run: Run) -> None:
    nodes.fails = "OP_NODE_MAINTENANCE_BEGIN"
    code, _out, err = run(table, "rolling-reboot", "-f", *WAYS)
    assert code == 1
    assert nodes.ids() == STEPS[:2]
    assert "Stopped at node2." in err
    assert "--nodes=node2,node3" in err
    assert "no memory" in err


def test_new_error_of_the_node_stops(nodes: Nodes, run: Run) -> None:
    nodes.finding = "  - ERROR:ENODELVM:node:node2:its volume group is gone"
    code, _out, err = run(table, "rolling-reboot", "-f", "--wait=0", *WAYS)
    assert code == 1
    assert "node2 has restarted, but verify finds: its volume group" in err
    assert nodes.ids() == STEPS[:3]


def test_node_that_does_not_restart_stops(nodes: Nodes, run: Run) -> None:
    nodes.master.replies["QueryNodes"] = lambda names, fields, lock: (
        [["boot-1"]] if fields == ["bootid"] else nodes.nodes(names, fields, lock)
    )
    code, _out, err = run(table, "rolling-reboot", "-f", "--boot-timeout=0", *WAYS)
    assert code == 1
    assert "node2 has not restarted within 0 seconds" in err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "pass --command"),
        ([*WAYS, "--by=powercycle"], "pass --command"),
        ([*WAYS, "--nodes=node1"], "node1 is the master; first run gnt-cluster master-failover"),
        ([*WAYS, "--groups=none"], "group none does not exist"),
        ([*WAYS, "--groups=other", "--nodes=node2"], "no node of this selection"),
        ([*WAYS], "--force"),
    ],
)
def test_wrong_requests_are_refused(nodes: Nodes, run: Run, words: list[str], text: str) -> None:
    code, _out, err = run(table, "rolling-reboot", *words)
    assert code != 0
    assert text in err
    assert nodes.submitted == []
