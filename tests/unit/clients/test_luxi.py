import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.errors import ErrorCode, NotMaster, PrereqError, ProtocolError
from ganeti.base.paths import Paths
from ganeti.clients import luxi
from ganeti.clients.luxi import (
    ConnectionBrokenError,
    LuxiClient,
    MasterDownError,
    NotClusterNodeError,
    socket_path,
)
from ganeti.protocols.luxi import END, Answer
from ganeti.protocols.luxi_requests import encode_answer
from tests.support.local_cluster import short_directory
from tests.unit.cli.fake_master import running_master


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    for name in ("GANETI_LUXI_SOCKET", "FORCE_LUXI_SOCKET"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def paths() -> Iterator[Paths]:
    with short_directory() as directory:
        one = Paths(directory)
        one.data.mkdir(parents=True)
        one.luxi_socket.parent.mkdir(parents=True)
        yield one


def test_calls_share_a_connection_and_errors_are_raised_again(paths: Paths) -> None:
    with running_master(paths.luxi_socket) as master, LuxiClient(paths) as client:
        master.replies["QueryConfigValues"] = ["cluster"]
        master.replies["QueryTags"] = PrereqError("no such node", ErrorCode.UNKNOWN_ENTITY)
        assert client.config_values("cluster_name") == ["cluster"]
        with pytest.raises(PrereqError, match="no such node") as caught:
            client.call("QueryTags", "node", "x")
        assert caught.value.code is ErrorCode.UNKNOWN_ENTITY
        assert client.config_values("cluster_name") == ["cluster"]
        client.close()


def test_degraded_answers_are_noticed(paths: Paths) -> None:
    with running_master(paths.luxi_socket) as master, LuxiClient(paths) as client:
        master.raw = encode_answer(Answer(True, [], degraded=True))
        client.config_values("x")
        assert client.is_degraded


@pytest.mark.parametrize("variable", ["GANETI_LUXI_SOCKET", "FORCE_LUXI_SOCKET"])
def test_the_environment_names_another_socket(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "/elsewhere/luxi")
    assert socket_path(paths) == Path("/elsewhere/luxi")


def test_a_host_without_a_cluster_is_exit_code_5(paths: Paths) -> None:
    with pytest.raises(NotClusterNodeError, match="gnt-cluster init") as caught:
        LuxiClient(paths).call("QueryClusterInfo")
    assert caught.value.exit_code == 5


def test_another_node_than_the_master_is_exit_code_11(paths: Paths) -> None:
    (paths.data / "ssconf_master_node").write_text("node2.example.com\n")
    with pytest.raises(NotMaster, match=r"run the command on node2\.example\.com") as caught:
        LuxiClient(paths).call("QueryClusterInfo")
    assert caught.value.exit_code == 11


def test_a_master_whose_daemon_is_down_names_the_remedy(paths: Paths) -> None:
    (paths.data / "ssconf_master_node").write_text("node1.example.com\n")
    with pytest.raises(MasterDownError, match="start ganeti-masterd"):
        LuxiClient(paths).call("QueryClusterInfo")
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    dead.bind(str(paths.luxi_socket))
    dead.close()
    with pytest.raises(MasterDownError, match="Connection refused"):
        LuxiClient(paths).call("QueryClusterInfo")


def test_a_line_that_breaks_leaves_the_outcome_open(paths: Paths) -> None:
    with running_master(paths.luxi_socket) as master, LuxiClient(paths) as client:
        master.raw = b""
        with pytest.raises(ConnectionBrokenError, match=r"during SubmitJob .* unknown"):
            client.submit_job([])
        master.raw = None
        master.replies["SubmitJob"] = 3
        assert client.submit_job([]) == 3


@pytest.mark.requirement("F16")
def test_a_key_goes_with_a_submission_if_there_is_one(paths: Paths) -> None:
    with running_master(paths.luxi_socket) as master, LuxiClient(paths) as client:
        master.replies["SubmitJob"] = 3
        client.submit_job([])
        client.submit_job([], "k1")
        assert [args for _method, args in master.requests] == [[[]], [[], "k1"]]


def test_a_silent_master_is_not_waited_for_for_ever(paths: Paths) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(paths.luxi_socket))
    listener.listen(1)
    with listener, pytest.raises(MasterDownError, match=r"within 0\.05 s"):
        LuxiClient(paths, timeout_s=0.05).call("QueryClusterInfo")


@pytest.mark.parametrize("raw", [b"hello" + END, encode_answer(Answer(True, 1)) * 2, b"\xff" + END])
def test_something_else_than_an_answer_is_refused_and_hung_up_on(paths: Paths, raw: bytes) -> None:
    with running_master(paths.luxi_socket) as master, LuxiClient(paths) as client:
        master.raw = raw
        with pytest.raises(ProtocolError):
            client.call("QueryClusterInfo")
        master.raw = None
        master.replies["QueryClusterInfo"] = {"name": "c"}
        assert client.cluster_info() == {"name": "c"}


def test_a_path_longer_than_an_address_is_no_obstacle(tmp_path: Path) -> None:
    paths = Paths(tmp_path / ("x" * 120))
    paths.luxi_socket.parent.mkdir(parents=True)
    here = Path.cwd()
    os.chdir(paths.luxi_socket.parent)
    try:
        with running_master(Path("ganeti-query")) as master:
            master.replies["QueryClusterInfo"] = {"name": "c"}
            with LuxiClient(paths) as client:
                assert client.cluster_info() == {"name": "c"}
    finally:
        os.chdir(here)


@pytest.mark.requirement("S195")
def test_waiting_continues_until_the_job_has_ended_and_logged_all(paths: Paths) -> None:
    line = [1, [5, 0], "message", "a"]
    last = [2, [6, 0], "message", "b"]
    news = iter([[["queued"], []], "nochange", [["running"], [line]], [["success"], [last]],
                 [["success"], []]])  # fmt: skip
    with running_master(paths.luxi_socket) as master, LuxiClient(paths) as client:
        master.replies["WaitForJobChange"] = lambda *_args: next(news)
        changes = list(client.wait_for_job(7))
        asked = [args[2:] for _method, args in master.requests]
    assert [change.status for change in changes] == [
        "queued", "queued", "running", "success", "success"
    ]  # fmt: skip
    assert [change.is_keepalive for change in changes] == [False, True, False, False, False]
    assert [entry for change in changes for entry in change.entries] == [line, last]
    assert asked == [
        [None, None, luxi.WAIT_S],
        [["queued"], None, luxi.WAIT_S],
        [["queued"], None, luxi.WAIT_S],
        [["running"], 1, luxi.WAIT_S],
        [["success"], 2, luxi.WAIT_S],
    ]


def test_final_states_are_those_of_the_model() -> None:
    from ganeti.model.names import JobStatus

    assert {one.value for one in JobStatus if one.is_final} == luxi.FINAL
