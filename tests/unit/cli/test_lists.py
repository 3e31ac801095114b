"""Lists beside those of the original: answers and outputs are cut from captures."""

from typing import Any

import pytest

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.cli.gnt_debug import table as gnt_debug
from ganeti.cli.gnt_instance.table import table as gnt_instance
from ganeti.cli.gnt_job import table as gnt_job
from ganeti.cli.gnt_node import table as gnt_node
from tests.unit.cli.fake_master import FakeMaster, Run, rows_of


def fields(*definitions: str) -> list[dict[str, str]]:
    found = []
    for one in definitions:
        name, title, kind = one.split()
        found.append({"name": name, "title": title, "kind": kind, "doc": "about it"})
    return found


INSTANCES = {
    "fields": fields(
        "name Instance text",
        "hypervisor Hypervisor text",
        "os OS text",
        "pnode Primary_node text",
        "status Status text",
        "oper_ram Memory unit",
    ),
    "data": [
        [[0, "cap1.peer"], [0, "fake"], [0, "peernoop+default"], [0, "peernode1"],
         [0, "ADMIN_down"], [3, None]],
        [[0, "inst00000.peer"], [0, "fake"], [0, "peernoop+default"], [0, "peernode1"],
         [0, "running"], [0, 512]],
    ],
}  # fmt: skip

NODES = {
    "fields": fields(
        "name Node text", "dtotal DTotal unit", "dfree DFree unit", "mtotal MTotal unit",
        "mnode MNode unit", "mfree MFree unit", "pinst_cnt Pinst number", "sinst_cnt Sinst number",
    ),
    "data": [
        [[0, "peernode1"], [0, 258019], [0, 76602], [0, 24105], [0, 892], [0, 22268], [0, 40], [0, 0]],
        [[0, "peernode4"], [0, 258019], [0, 76602], [0, 24105], [0, 892], [0, 22248], [0, 41], [0, 0]],
    ],
}  # fmt: skip

JOBS = {
    "fields": fields("id ID number", "status Status text", "summary Summary other"),
    "data": [
        [[0, 1], [0, "success"], [0, ["CLUSTER_POST_INIT"]]],
        [[0, 12], [0, "error"], [0, ["TEST_DELAY(0.0)", "TEST_DELAY(1.0)"]]],
    ],
}


def test_instances_are_listed_as_ever(master: FakeMaster, run: Run) -> None:
    master.replies["Query"] = INSTANCES
    code, out, err = run(gnt_instance, "list")
    assert (code, err) == (0, "")
    assert out == (
        "Instance       Hypervisor OS               Primary_node Status     Memory\n"
        "cap1.peer      fake       peernoop+default peernode1    ADMIN_down      -\n"
        "inst00000.peer fake       peernoop+default peernode1    running      512M\n"
    )
    names = ["name", "hypervisor", "os", "pnode", "status", "oper_ram"]
    assert master.args_of("Query") == ["instance", names, None]


def test_nodes_are_listed_as_ever(master: FakeMaster, run: Run) -> None:
    master.replies["Query"] = NODES
    assert run(gnt_node, "list")[1] == (
        "Node      DTotal DFree MTotal MNode MFree Pinst Sinst\n"
        "peernode1 252.0G 74.8G  23.5G  892M 21.7G    40     0\n"
        "peernode4 252.0G 74.8G  23.5G  892M 21.7G    41     0\n"
    )
    names = ["name", "dtotal", "dfree", "mtotal", "mnode", "mfree", "pinst_cnt", "sinst_cnt"]
    assert master.args_of("Query") == ["node", names, None]


def test_jobs_are_listed_as_ever(master: FakeMaster, run: Run) -> None:
    master.replies["Query"] = JOBS
    assert run(gnt_job, "list")[1] == (
        "ID Status  Summary\n"
        " 1 success CLUSTER_POST_INIT\n"
        "12 error   TEST_DELAY(0.0),TEST_DELAY(1.0)\n"
    )


def test_many_fields_are_shown_by_their_kinds(master: FakeMaster, run: Run) -> None:
    row: list[Any] = ["cap1.peer", True, [], 32, 0, ["tag1"], 1795222502.68]
    master.replies["Query"] = {
        "fields": fields(
            "name Instance text", "oper_state Running bool", "snodes Secondary_Nodes other",
            "be/memory ConfigMaxMem unit", "disk_usage DiskUsage unit", "tags Tags other",
            "ctime CTime timestamp",
        ),
        "data": [[[0, value] for value in row]],
    }  # fmt: skip
    code, out, _err = run(gnt_instance, "list", "-o", "name,oper_state", "cap1.peer")
    assert code == 0
    assert out == (
        "Instance  Running Secondary_Nodes ConfigMaxMem DiskUsage Tags CTime\n"
        "cap1.peer Y                                32M        0M tag1 2026-11-21 00:55:02\n"
    )
    wanted = ["instance", ["name", "oper_state"], ["|", ["==", "name", "cap1.peer"]]]
    assert master.args_of("Query") == wanted


def test_list_options_change_the_form(master: FakeMaster, run: Run) -> None:
    master.replies["Query"] = NODES
    code, out, _err = run(gnt_node, "list", "--no-head", "--separator=:", "-o", "+role")
    assert code == 0
    assert out.splitlines()[0] == "peernode1:258019:76602:24105:892:22268:40:0"
    assert master.args_of("Query")[1][-2:] == ["sinst_cnt", "role"]


def test_the_environment_sets_default_fields(
    master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.replies["Query"] = {"fields": [], "data": []}
    monkeypatch.setenv("GNT_NODE_LIST", "name,role")
    run(gnt_node, "list")
    assert master.args_of("Query")[1] == ["name", "role"]


def test_filters_are_sent_as_lists(master: FakeMaster, run: Run) -> None:
    master.replies["Query"] = INSTANCES
    run(gnt_instance, "list", "-F", 'status == "running" and not admin_up')
    assert master.args_of("Query")[2] == [
        "&",
        ["=", "status", "running"],
        ["!", ["?", "admin_up"]],
    ]


def test_a_filter_that_makes_no_sense_is_the_users_error(master: FakeMaster, run: Run) -> None:
    code, _out, err = run(gnt_instance, "list", "-F", "status ==")
    assert code == 1
    assert "error type: wrong_input" in err
    assert master.requests == []


def test_an_unknown_field_is_shown_and_is_exit_code_14(master: FakeMaster, run: Run) -> None:
    master.replies["Query"] = {
        "fields": fields("name Node text", "nosuch nosuch unknown"),
        "data": [[[0, "node1"], [1, None]]],
    }
    code, out, err = run(gnt_node, "list", "-o", "name,nosuch")
    assert (code, err) == (14, "Warning: Queried for unknown fields nosuch\n")
    assert out == "Node  nosuch\nnode1 ??\n"


def test_fields_can_be_listed(master: FakeMaster, run: Run) -> None:
    master.replies["QueryFields"] = {"fields": fields("name Node text", "mfree MFree unit")}
    code, out, _err = run(gnt_node, "list-fields", "name", "mfree")
    assert code == 0
    assert out == (
        "Name  Type         Title Description\n"
        "name  Text         Node  about it\n"
        "mfree Storage size MFree about it\n"
    )  # fmt: skip


def test_jobs_can_be_chosen_by_number_and_state(master: FakeMaster, run: Run) -> None:
    master.replies["Query"] = JOBS
    run(gnt_job, "list", "1", "12", "--running")
    assert master.args_of("Query")[2] == [
        "&",
        ["|", ["=", "id", 1], ["=", "id", 12]],
        ["|", ["=", "status", "running"], ["=", "status", "canceling"]],
    ]


def test_locks_show_owners_and_waiters(master: FakeMaster, run: Run) -> None:
    master.replies["Query"] = {
        "fields": fields(
            "name Name other", "mode Mode other", "owner Owner other", "pending Pending other"
        ),
        "data": [
            [[0, "node/u1"], [0, "exclusive"], [0, ["12"]], [0, [["shared", ["13", "14"]]]]],
            [[0, "cluster/BGL"], [0, None], [0, None], [0, []]],
        ],
    }
    assert run(gnt_debug, "locks")[1] == (
        "Name        Mode      Owner Pending\n"
        "node/u1     exclusive 12    shared:13,14\n"
        "cluster/BGL -         -     -\n"
    )
    run(gnt_debug, "locks", "cluster/BGL")  # a free lock is shown if it is named
    filters = [args[2] for name, args in master.requests if name == "Query"]
    in_use = ["|", ["?", "owner"], ["?", "pending"]]
    assert filters == [in_use, ["|", ["==", "name", "cluster/BGL"]]]


def test_what_the_master_refuses_is_shown_in_the_form_of_old(master: FakeMaster, run: Run) -> None:
    master.replies["Query"] = PrereqError("there is no field x", ErrorCode.WRONG_INPUT)
    code, out, err = run(gnt_node, "list")
    assert (code, out) == (1, "")
    assert err == (
        "Failure: prerequisites not met for this operation:\n"
        "error type: wrong_input, error details:\nthere is no field x\n"
    )


EVIL = "x\x1b[2J\nJob 9 succeeded\u202e\x07"


@pytest.mark.requirement("A56")
def test_a_name_that_was_refused_steers_no_terminal(master: FakeMaster, run: Run) -> None:
    summary = f"INSTANCE_CREATE({EVIL})"
    master.replies["Query"] = {
        "fields": JOBS["fields"],
        "data": [[[0, 1], [0, "error"], [0, [summary]]]],
    }
    moment = [1_700_000_000, 0]
    master.replies["QueryPendingUndo"] = []
    job = {
        "id": 1, "status": "error", "priority": 0, "received_ts": moment, "start_ts": moment,
        "end_ts": moment, "opstatus": ["error"], "opresult": [["OpPrereqError", [EVIL]]],
        "ops": [{"OP_ID": "OP_INSTANCE_CREATE", "instance_name": EVIL, EVIL: 1}],
        "oplog": [[[1, moment, "message", EVIL]]],
        "opstart": [moment], "opexec": [moment], "opend": [moment],
    }  # fmt: skip
    master.replies["QueryJobs"] = rows_of(job)
    shown = [
        run(gnt_job, "list"),
        run(gnt_job, "list", "--separator", "\x1f"),
        run(gnt_job, "info", "1"),
    ]
    for code, out, err in shown:
        assert code == 0
        assert err == ""
        assert "\\x1b[2J\\nJob 9 succeeded\\u202e\\x07" in out
        assert not {"\x1b", "\x07", "\u202e"} & set(out)
    assert "error\x1fINSTANCE" in shown[1][1]


@pytest.mark.requirement("A56")
def test_errors_and_logs_of_jobs_steer_no_terminal(master: FakeMaster, run: Run) -> None:
    master.job("one\nJob\x1b[2J", result=["OpExecError", [EVIL]], status="error")
    around = [(7, "waiting", [EVIL], [], EVIL, None), (8, "queued", [EVIL], [7], None, None)]
    master.replies["Query"] = {"data": [[[0, value] for value in row] for row in around]}
    code, out, err = run(gnt_job, "watch", "7")
    assert code == 1
    assert not {"\x1b", "\x07", "\u202e"} & set(out + err)
    said = [line for line in out.splitlines() if line.endswith(("one", "Job\\x1b[2J"))]
    assert [line[:24] for line in said] == ["Tue Nov 14 22:13:21 2023"] * 2
