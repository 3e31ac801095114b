"""gnt-node power, health and restricted-command; gnt-cluster command, copyfile and epo."""

from typing import Any

import pytest

from ganeti.cli import cluster_nodes
from ganeti.cli.errors import EXIT_CONFIRMATION
from ganeti.cli.gnt_cluster import table as gnt_cluster
from ganeti.cli.gnt_node import table as gnt_node
from tests.unit.cli.fake_master import FakeMaster, Run

NODES = [
    ["node1", True, "default", False, True, []],
    ["node2", False, "default", False, True, ["web1", "web2"]],
    ["node3", False, "other", False, None, []],
]


def ops(master: FakeMaster) -> list[tuple[str, dict[str, Any]]]:
    """All submitted opcodes, in order."""
    found = []
    for method, args in master.requests:
        jobs = [args[0]] if method == "SubmitJob" else args[0] if method == "SubmitManyJobs" else []
        found += [(op["OP_ID"], op) for job in jobs for op in job]
    return found


def test_power_status_is_a_table(master: FakeMaster, run: Run) -> None:
    master.job(
        result=[
            [[0, "node1"], [0, {"powered": True}]],
            [[0, "node2"], [0, {"powered": False}]],
            [[0, "node3"], [3, None]],
        ]
    )
    code, out = run(gnt_node, "power", "status", "--separator=|", "--no-headers")[:2]
    assert (code, out.split()) == (0, ["node1|powered", "node2|unpowered", "node3|unavailable"])
    [(op_id, op)] = ops(master)
    assert (op_id, op["command"], op["node_names"]) == ("OP_OOB_COMMAND", "power-status", [])


def test_nodes_are_switched_off_only_if_that_is_meant(master: FakeMaster, run: Run) -> None:
    master.job(result=[[[0, "node2"], [0, None]]])
    assert run(gnt_node, "power", "off", "node2")[0] == EXIT_CONFIRMATION
    assert ops(master) == []
    assert run(gnt_node, "power", "-f", "--ignore-status", "off", "node2")[0] == 0
    [(_, op)] = ops(master)
    assert (op["command"], op["ignore_status"]) == ("power-off", True)


def test_what_could_not_be_switched_is_an_error(master: FakeMaster, run: Run) -> None:
    master.job(result=[[[0, "node2"], [2, None]]])
    assert run(gnt_node, "power", "on", "node2", "--power-delay=0.5")[0] == 1
    assert ops(master)[0][1]["power_delay"] == 0.5


@pytest.mark.parametrize(
    "words", [("power", "on"), ("power", "on", "node2", "--all"), ("power", "up", "node2")]
)
def test_power_commands_that_cannot_be_meant(
    master: FakeMaster, run: Run, words: tuple[str, ...]
) -> None:
    assert run(gnt_node, *words)[0] == 1
    assert ops(master) == []


def test_health_is_a_table(master: FakeMaster, run: Run) -> None:
    master.job(result=[[[0, "node1"], [0, [["fan", "OK"], ["disk", "CRITICAL"]]]]])
    out = run(gnt_node, "health", "node1", "--separator=|")[1]
    assert out.split()[1:] == ["node1|disk|CRITICAL", "node1|fan|OK"]


def test_restricted_commands_show_what_nodes_reported(master: FakeMaster, run: Run) -> None:
    master.job(result=[[True, "up 3 days"], [False, "no"]])
    code, out = run(gnt_node, "restricted-command", "-M", "uptime", "node1", "node2")[:2]
    assert code == 1
    assert "node1: up 3 days\n" in out
    assert "node2: the command failed on node2" in out


def test_restricted_commands_run_on_a_group_and_may_only_be_submitted(
    master: FakeMaster, run: Run
) -> None:
    master.replies["QueryNodes"] = [["node1", "default", False], ["node2", "default", True]]
    master.job(result=[[True, "up 3 days"]])
    code, out = run(gnt_node, "restricted-command", "-g", "default", "uptime")[:2]
    assert (code, out) == (0, "up 3 days\n")
    assert ops(master)[0][1]["nodes"] == ["node1"]
    code, out = run(gnt_node, "restricted-command", "--submit", "uptime", "node1")[:2]
    assert out == "JobID: 7\n"
    assert run(gnt_node, "restricted-command", "uptime")[0] == 1
    assert run(gnt_node, "restricted-command", "-g", "default", "uptime", "node1")[0] == 1


def test_out_of_band_programs_get_the_time_that_is_reported(master: FakeMaster, run: Run) -> None:
    master.job(result=[[[0, "node1"], [0, []]]])
    run(gnt_node, "health", "node1", "--oob-timeout=7")
    assert ops(master)[0][1]["timeout"] == 7


def test_a_line_of_shell_is_run_on_the_nodes_of_a_group(master: FakeMaster, run: Run) -> None:
    master.replies["QueryNodes"] = [["node1", "default", False], ["node3", "other", False]]
    master.job(result=[["node3", 0, "hello"]])
    code, out = run(gnt_cluster, "command", "-g", "other", "echo hello")[:2]
    assert code == 0
    assert "node: node3\nhello\nreturn code = 0" in out
    [(_, op)] = ops(master)
    assert (op["command"], op["node_names"]) == ("echo hello", ["node3"])


def test_a_file_that_a_node_does_not_take_is_an_error(master: FakeMaster, run: Run) -> None:
    master.job(result=[["node2", ""], ["node3", "it is not allowed"]])
    code, out = run(gnt_cluster, "copyfile", "/etc/motd")[:2]
    assert (code, out) == (1, "/etc/motd was not copied to node3: it is not allowed\n")


@pytest.fixture
def epo_cluster(master: FakeMaster) -> FakeMaster:
    master.job(result=[[[0, "node2"], [0, None]]])
    master.replies["QueryNodes"] = NODES
    master.replies["QueryInstances"] = [["web1", "up"], ["web2", "down"]]
    master.replies["QueryConfigValues"] = [None]
    master.replies["SetWatcherPause"] = None
    return master


def test_epo_stops_guests_then_marks_nodes_then_switches_them_off(
    epo_cluster: FakeMaster, run: Run
) -> None:
    assert run(gnt_cluster, "epo", "--all", "-f")[0] == 0
    done = ops(epo_cluster)
    assert [op_id for op_id, _op in done] == [
        "OP_INSTANCE_SHUTDOWN",
        "OP_NODE_SET_PARAMS",
        "OP_NODE_SET_PARAMS",
        "OP_OOB_COMMAND",
    ]
    assert (done[0][1]["instance_name"], done[0][1]["no_remember"]) == ("web1", True)
    assert {op["node_name"] for _, op in done[1:3]} == {"node2", "node3"}
    assert (done[3][1]["command"], done[3][1]["node_names"]) == ("power-off", ["node2"])
    pauses = [args[0] for method, args in epo_cluster.requests if method == "SetWatcherPause"]
    assert pauses[0] is not None
    assert pauses[-1] is None


def test_epo_ends_where_a_guest_does_not_stop(epo_cluster: FakeMaster, run: Run) -> None:
    epo_cluster.job(status="error", result=["OpExecError", ["it does not end"]])
    assert run(gnt_cluster, "epo", "--all", "-f")[0] == 1
    assert [op_id for op_id, _op in ops(epo_cluster)] == ["OP_INSTANCE_SHUTDOWN"]


def test_epo_switches_on_then_takes_back_then_starts(
    epo_cluster: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    epo_cluster.replies["QueryNodes"] = [["node2", False, "default", True, False, ["web1", "web2"]]]
    assert run(gnt_cluster, "epo", "--on", "-f", "node2")[0] == 0
    done = ops(epo_cluster)
    assert [op_id for op_id, _op in done] == [
        "OP_OOB_COMMAND",
        "OP_NODE_SET_PARAMS",
        "OP_INSTANCE_STARTUP",
    ]
    assert done[0][1]["command"] == "power-on"
    assert done[1][1]["offline"] is False
    assert done[2][1]["if_wanted"] is True
    assert cluster_nodes.ON_LIMIT_S > cluster_nodes.ON_INTERVAL_S


def test_epo_leaves_the_master_alone_and_asks(epo_cluster: FakeMaster, run: Run) -> None:
    assert "cannot switch the master off" in run(gnt_cluster, "epo", "-f", "node1")[2]
    assert run(gnt_cluster, "epo", "--all")[0] == EXIT_CONFIRMATION
    assert "pass the names of nodes" in run(gnt_cluster, "epo")[2]
    assert "pass the names of nodes" in run(gnt_cluster, "epo", "--groups", "--all", "-f")[2]
    assert run(gnt_cluster, "epo", "--groups", "nosuch", "-f")[0] == 0
    assert ops(epo_cluster) == []
