import contextlib
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.bootstrap import join as bootstrap_join
from ganeti.bootstrap.join import JoinedNode
from ganeti.cli.gnt_node import table
from tests.unit.cli.fake_master import FakeMaster, Run, rows_of

JOINED = JoinedNode("node2.example.com", "192.0.2.2", 1811, "ab" * 32, "uuid-2")


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    given: list[tuple[str, dict[str, Any]]] = []

    async def join(token: str, **rest: Any) -> JoinedNode:
        given.append((token, rest))
        if token == "bad":
            raise PrereqError("nobody knows it", ErrorCode.ENVIRONMENT)
        return JOINED

    @contextlib.asynccontextmanager
    async def ssh_token(host: str, **rest: Any) -> AsyncIterator[str]:
        yield f"by ssh from {host} {rest['port']}"

    monkeypatch.setattr(bootstrap_join, "join", join)
    monkeypatch.setattr(bootstrap_join, "ssh_token", ssh_token)
    return given


@pytest.fixture
def cluster(master: FakeMaster) -> FakeMaster:
    master.job()
    master.replies["QueryNodes"] = [["node1.example.com", "uuid-1"]]
    return master


Joins = list[tuple[str, dict[str, Any]]]


def token_file(tmp_path: Path, mode: int) -> Path:
    path = tmp_path / "token"
    path.write_text("secret-token\n")
    path.chmod(mode)
    return path


def test_a_token_from_a_private_file_is_used(
    cluster: FakeMaster, run: Run, joins: Joins, tmp_path: Path
) -> None:
    words = ["add", f"--token-file={token_file(tmp_path, 0o600)}", "node2.example.com", "-g", "g"]
    assert run(table, *words)[0] == 0
    [(token, rest)] = joins
    assert token == "secret-token"
    assert rest["expected_name"] == "node2.example.com"
    [op] = cluster.args_of("SubmitJob")[0]
    wanted = {
        "OP_ID": "OP_NODE_ADD", "node_name": "node2.example.com", "primary_ip": "192.0.2.2",
        "port": 1811, "certificate": "ab" * 32, "group": "g", "readd": False,
    }  # fmt: skip
    assert wanted.items() <= op.items()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_token_that_others_can_read_is_refused(
    cluster: FakeMaster, run: Run, joins: Joins, tmp_path: Path, mode: int
) -> None:
    words = ["add", f"--token-file={token_file(tmp_path, mode)}", "node2.example.com"]
    code, _out, err = run(table, *words)
    assert code == 1
    assert "0600" in err
    assert joins == []


@pytest.mark.parametrize("words", [["--token-file=-"], ["--token-stdin"]])
def test_a_token_may_come_by_standard_input(
    cluster: FakeMaster,
    run: Run,
    joins: Joins,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret-token\n"))
    assert run(table, "add", *words, "node2.example.com")[0] == 0
    assert joins[0][0] == "secret-token"


def test_no_token_at_all_is_reported(
    cluster: FakeMaster, run: Run, joins: Joins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert "the token is empty" in run(table, "add", "--token-stdin", "node2.example.com")[2]
    assert joins == []


def test_without_a_token_the_host_is_reached_by_ssh(
    cluster: FakeMaster, run: Run, joins: Joins
) -> None:
    assert run(table, "add", "--ssh-port=2222", "node2.example.com")[0] == 0
    assert joins[0][0] == "by ssh from node2.example.com 2222"


def test_a_join_that_fails_is_exit_code_12_and_no_job(
    cluster: FakeMaster, run: Run, joins: Joins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("bad\n"))
    code, _out, err = run(table, "add", "--token-stdin", "node2.example.com")
    assert code == 12
    assert "node2.example.com was not added: nobody knows it" in err
    assert "SubmitJob" not in cluster.methods()


def test_a_node_is_not_touched_if_it_is_there_already(
    cluster: FakeMaster, run: Run, joins: Joins
) -> None:
    code, _out, err = run(table, "add", "node1.example.com")
    assert code == 1
    assert "already_exists" in err
    assert run(table, "add", "--readd", "node9.example.com")[0] == 1
    assert joins == []


def test_a_node_that_is_added_again_keeps_its_identity(
    cluster: FakeMaster, run: Run, joins: Joins
) -> None:
    assert run(table, "add", "--readd", "node1.example.com")[0] == 0
    assert joins[0][1]["node_uuid"] == "uuid-1"


def test_remove_is_a_job(cluster: FakeMaster, run: Run) -> None:
    assert run(table, "remove", "node2")[0] == 0
    [op] = cluster.args_of("SubmitJob")[0]
    assert (op["OP_ID"], op["node_name"]) == ("OP_NODE_REMOVE", "node2")


def test_info_looks_as_ever(master: FakeMaster, run: Run) -> None:
    ndparams = {"ovs": False, "spindle_count": 2}
    node: dict[str, object] = {
        "name": "node1", "pip": "192.0.2.1", "sip": "192.0.2.2", "pinst_list": ["a", "b"],
        "sinst_list": [], "master_candidate": True, "drained": False, "offline": False,
        "master_capable": True, "vm_capable": True, "powered": None, "group": "default",
        "ndparams": ndparams, "custom_ndparams": {"spindle_count": 2}, "uuid": "u1",
    }  # fmt: skip
    master.replies["QueryNodes"] = rows_of(node)
    code, out, _err = run(table, "info", "node1")
    assert code == 0
    assert out == (
        "- Node name: node1\n"
        "  primary ip: 192.0.2.1\n"
        "  secondary ip: 192.0.2.2\n"
        "  master candidate: True\n"
        "  drained: False\n"
        "  offline: False\n"
        "  master_capable: True\n"
        "  vm_capable: True\n"
        "  group: default\n"
        "  UUID: u1\n"
        "  primary for instances: \n"
        "    - a\n"
        "    - b\n"
        "  secondary for instances: \n"
        "  node parameters: \n"
        "    ovs: default (False)\n"
        "    spindle_count: 2\n"
    )


def test_modify_sends_what_is_given_and_shows_what_changed(master: FakeMaster, run: Run) -> None:
    master.job(result=[["offline", False], ["nd/ovs", "default"]])
    words = ["modify", "-O", "no", "--auto-promote", "--node-parameters=-ovs", "node2"]
    code, out, _err = run(table, *words)
    assert code == 0
    assert out == "Modified node node2\n - offline -> False\n - nd/ovs -> default\n"
    [op] = master.args_of("SubmitJob")[0]
    assert (op["OP_ID"], op["offline"], op["drained"]) == ("OP_NODE_SET_PARAMS", False, None)
    assert (op["ndparams"], op["auto_promote"], op["force"]) == ({"ovs": None}, True, False)


@pytest.mark.requirement("S93")
def test_rename_sends_both_names(master: FakeMaster, run: Run) -> None:
    master.job(result="other.example.com")
    assert run(table, "rename", "node2", "other.example.com")[0] == 0
    [op] = master.args_of("SubmitJob")[0]
    assert (op["OP_ID"], op["node_name"], op["new_name"]) == (
        "OP_NODE_RENAME",
        "node2",
        "other.example.com",
    )


def test_powercycle_must_be_meant(
    cluster: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    cluster.job(result="Reboot scheduled in 5 seconds")
    assert run(table, "powercycle", "node2")[0] == 13
    assert "SubmitJob" not in cluster.methods()
    code, out, _err = run(table, "powercycle", "--force", "node2")
    assert (code, out) == (0, "Reboot scheduled in 5 seconds\n")
    [op] = cluster.args_of("SubmitJob")[0]
    assert (op["OP_ID"], op["node_name"], op["force"]) == ("OP_NODE_POWERCYCLE", "node2", True)
