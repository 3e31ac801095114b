"""move-instance: what it asks of both clusters, in which order, and what becomes of failures."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from ganeti.base import certificates, domain_secret
from ganeti.base.errors import ErrorCode, ExecError, GanetiError, InputError, PrereqError
from ganeti.cli import move_instance
from ganeti.cli.move_instance import Changes, MoveOptions, import_opcode, move, run
from ganeti.cli.remote_clusters import JobUpdate, RestAccess, connect
from ganeti.model.instance_view import NicView

NAME = "web1.example.com"
INSTANCE: dict[str, Any] = {
    "name": NAME,
    "config_state": "up",
    "disk_template": "file",
    "disks": [{"size": 512, "mode": "rw", "name": None}],
    "nics": [
        NicView(None, "n", None, "aa:00:00:00:00:01", "bridged", "br0", "", None, None),
    ],
    "os": "tiny",
    "os_instance": {"ns1": "a"},
    "hypervisor": "kvm",
    "hv_instance": {"acpi": False},
    "be_instance": {"maxmem": 256},
    "tags": ["blue"],
}  # fmt: skip
PREPARED = {"handshake": [0, "d", "s"], "x509_key_name": ["k", "d", "s"], "x509_ca": "source"}
SAID = {"disks": [["192.0.2.1", 4000, "m", "d", "s"]], "x509_ca": "target"}


class FakeCluster:
    """A cluster that answers each kind of opcode; an exception is how its job fails."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.ops: list[Any] = []
        self.canceled: list[int] = []

    def cancel(self, job_id: int) -> None:
        self.canceled.append(job_id)
        raise ExecError("it does not answer")

    def submit(self, op: Any) -> int:
        self.ops.append(op)
        return len(self.ops)

    def watch(self, job_id: int) -> Iterator[JobUpdate]:
        op = self.ops[job_id - 1].op_id()
        if op == "OP_INSTANCE_CREATE" and not isinstance(self.answers.get("said"), Exception):
            yield JobUpdate("running", [("message", "* creating"), ("remote-import", SAID)])
        yield JobUpdate("success", [])

    def result(self, job_id: int) -> Any:
        op = self.ops[job_id - 1].op_id()
        answer = self.answers.get("said") if op == "OP_INSTANCE_CREATE" else self.answers[op]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def kinds(self) -> list[str]:
        return [op.op_id() for op in self.ops]


def source(**more: Any) -> FakeCluster:
    return FakeCluster(
        {
            "OP_INSTANCE_QUERY_DATA": {NAME: INSTANCE},
            "OP_BACKUP_PREPARE": PREPARED,
            "OP_BACKUP_EXPORT": [True, [True]],
            **more,
        }
    )


@pytest.mark.requirement("S203", "S212", "S215")
def test_the_source_is_prepared_then_the_target_waits_then_the_data_goes() -> None:
    one, other, said = source(), FakeCluster({}), list[str]()
    move(one, other, "web1", MoveOptions(compress="zstd"), said.append)
    assert one.kinds == ["OP_INSTANCE_QUERY_DATA", "OP_BACKUP_PREPARE", "OP_BACKUP_EXPORT"]
    [made] = other.ops
    assert (made.instance_name, made.mode, made.start) == (NAME, "remote-import", True)
    assert (made.source_handshake, made.source_x509_ca) == (PREPARED["handshake"], "source")
    assert (made.disks[0].size, made.nics[0].mac, made.tags) == (512, "aa:00:00:00:00:01", ["blue"])
    assert (made.hvparams, made.beparams, made.osparams) == (
        *({"acpi": False}, {"maxmem": 256}),
        {"ns1": "a"},
    )
    export = one.ops[-1]
    assert (export.target_node, export.destination_x509_ca) == (SAID["disks"], "target")
    assert (export.x509_key_name, export.remove_instance) == (PREPARED["x509_key_name"], True)
    assert (export.compress, made.compress) == ("zstd", "zstd")
    assert said[-1] == "moved"


@pytest.mark.requirement("S218", "S241")
@pytest.mark.parametrize("refuses", ["target", "import", "export"])
def test_key_of_a_move_that_fails_is_removed_from_the_source(
    monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    one, other = source(), FakeCluster({})
    error = PrereqError("no room", ErrorCode.NO_RESOURCES)
    if refuses == "target":
        monkeypatch.setattr(other, "submit", Mock(side_effect=error))
    elif refuses == "import":
        monkeypatch.setattr(other, "watch", Mock(side_effect=error))
    else:
        one.answers["OP_BACKUP_EXPORT"] = error
    with pytest.raises(PrereqError):
        move(one, other, "web1", MoveOptions(), lambda _text: None)
    assert one.kinds[-1] == "OP_BACKUP_ABANDON"
    assert one.ops[-1].x509_key_name == PREPARED["x509_key_name"]


@pytest.mark.requirement("S221", "S217")
def test_the_destination_may_be_another_in_what_was_given() -> None:
    one, other = source(), FakeCluster({})
    options = MoveOptions(
        True, "web9.example.com", "node1:node2", None, "drbd", "none", start=False
    )
    move(one, other, NAME, options, lambda _text: None)
    [made] = other.ops
    assert (made.instance_name, made.pnode, made.snode) == ("web9.example.com", "node1", "node2")
    assert (made.disk_template, made.start, made.nics[0].mac) == ("drbd", False, "auto")
    assert made.source_instance_name == NAME
    assert one.ops[-1].remove_instance is False


@pytest.mark.requirement("S221")
def test_values_may_be_others_at_the_destination(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = {"/one": source(), "/other": FakeCluster({})}
    monkeypatch.setattr(move_instance, "connect", lambda where, _access: clusters[where])
    words = ["--net=0:mac=auto,link=br1,ip=none", "-B", "maxmem=512m,minmem=default", "-O", "x=y"]
    assert run(["/one", "/other", *words, "-H", "acpi=default,kernel_path=/k", NAME]) == 0
    [made] = clusters["/other"].ops
    nic = made.nics[0]
    assert (nic.mac, nic.mode, nic.link, nic.ip) == ("auto", "bridged", "br1", None)
    assert (made.beparams, made.hvparams) == ({"maxmem": 512}, {"kernel_path": "/k"})
    assert made.osparams == {"ns1": "a", "x": "y"}


@pytest.mark.parametrize(
    ("network", "change", "found"),
    [
        ("net1", {}, ("net1", None)),
        ("net1", {"name": "n2"}, ("net1", None)),
        ("net1", {"link": "br9"}, (None, "br9")),
        ("net1", {"network": None}, (None, None)),
        ("net1", {"network": "net2"}, ("net2", None)),
        (None, {"network": "net2"}, ("net2", None)),
        (None, {"vlan": "7"}, (None, "br0")),
    ],
)
def test_a_network_and_a_link_take_the_place_of_each_other(
    network: str | None, change: dict[str, Any], found: tuple[Any, Any]
) -> None:
    info = {"name": network} if network else None
    nic = NicView("nic", "n", "192.0.2.7", "aa:00:00:00:00:01", "bridged", "br0", "", network, info)
    options = MoveOptions(changes=Changes(nics={0: change}))
    made: Any = import_opcode({**INSTANCE, "nics": [nic]}, PREPARED, options)
    assert (made.nics[0].network, made.nics[0].link) == found
    assert made.nics[0].ip == "192.0.2.7"


def test_a_password_is_asked_for_at_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[RestAccess] = []

    def fake(_where: str, access: RestAccess) -> FakeCluster:
        known.append(access)
        return source() if len(known) == 1 else FakeCluster({})

    monkeypatch.setattr(move_instance, "connect", fake)
    monkeypatch.setattr(move_instance, "getpass", lambda prompt: f"for {prompt}")
    clusters = ["a.example.com", "b.example.com"]
    for terminal, words, wanted in (
        (True, ["--src-username=u"], ["for Password of u at a.example.com: "] * 2),
        (True, ["--src-username=u", "--dest-username=v"],
         ["for Password of u at a.example.com: ", "for Password of v at b.example.com: "]),
        (False, ["--src-username=u"], ["", ""]),
    ):  # fmt: skip
        monkeypatch.setattr("sys.stdin.isatty", lambda answer=terminal: answer)
        known.clear()
        run([*clusters, *words, NAME])
        assert [access.password for access in known] == wanted


def test_a_destination_that_refuses_lets_nothing_be_sent() -> None:
    one, other = source(), FakeCluster({"said": ExecError("no memory")})
    with pytest.raises(GanetiError, match="no memory"):
        move(one, other, NAME, MoveOptions(), lambda _text: None)
    assert "OP_BACKUP_EXPORT" not in one.kinds


@pytest.mark.requirement("S218")
def test_a_destination_does_not_wait_for_a_source_that_failed() -> None:
    one, other = source(OP_BACKUP_EXPORT=ExecError("the link is down")), FakeCluster({})
    with pytest.raises(ExecError, match="the link is down"):
        move(one, other, NAME, MoveOptions(), lambda _text: None)
    assert other.canceled == [1]
    one, other = source(), FakeCluster({})
    move(one, other, NAME, MoveOptions(), lambda _text: None)
    assert other.canceled == []


@pytest.mark.requirement("S218")
def test_who_is_interrupted_before_the_disks_are_sent_sends_none() -> None:
    one, other = source(), FakeCluster({})
    with pytest.raises(ExecError, match="before anything was sent"):
        move(one, other, NAME, MoveOptions(), lambda _text: None, is_stopped=lambda: True)
    assert "OP_BACKUP_EXPORT" not in one.kinds
    assert other.canceled == [1]


WAITER = """
import sys, threading, time
from ganeti.cli.move_instance import _in_threads

def work(name):
    print("begun", flush=True)
    stop.wait(20)
    time.sleep(float(sys.argv[1]))
    print("ended", flush=True)
    return True

stop = threading.Event()
sys.exit(0 if _in_threads(work, ["web1"], 1, stop) else 1)
"""


@pytest.mark.requirement("S218")
@pytest.mark.parametrize(("times", "ended", "status"), [(1, "ended\n", 0), (2, "", -signal.SIGINT)])
def test_an_interrupt_waits_for_what_is_being_sent_and_a_second_one_does_not(
    times: int, ended: str, status: int
) -> None:
    words = [sys.executable, "-c", WAITER, "0.5" if times == 1 else "20"]
    with subprocess.Popen(words, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert "no further moves begin" in process.stderr.readline()
        if times > 1:
            process.send_signal(signal.SIGINT)
        assert (process.stdout.read(), process.wait(15)) == (ended, status)


def test_several_are_moved_and_one_failure_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters = {"/one": source(), "/other": FakeCluster({})}
    monkeypatch.setattr(move_instance, "connect", lambda where, _access: clusters[where])
    assert run(["/one", "/other", "--parallel=2", NAME]) == 0
    clusters["/one"].answers["OP_BACKUP_EXPORT"] = ExecError("the link is down")
    assert run(["/one", "/other", NAME, NAME]) == 1
    assert "was not moved: the link is down" in capsys.readouterr().err


def test_wrong_words_are_refused() -> None:
    with pytest.raises(InputError, match="--src-username"):
        connect("cluster.example.com", RestAccess())
    with pytest.raises(InputError):
        connect("no name/", RestAccess(username="u", password="p"))
    for words in (
        ["a.example.com", "b.example.com", "x", "--src-rapi-port=0"],
        ["a.example.com", "b.example.com", "x", "--src-username=u", "--src-password-file=/nowhere"],
        ["a.example.com", "b.example.com", "x", "--src-username=u"],
        ["/a", "/b", "x", "y", "--dest-instance-name=z"],
        ["/a", "/b", "x", "--dest-secondary-node=n"],
        ["/a", "/b", "x", "--parallel=0"],
        ["/a", "/b", "x", "--dest-primary-node=n", "--iallocator=hail"],
        ["/a", "/b", "x", "y", "--net=0:mac=auto"],
        ["/a", "/b", "x", "y", "-B", "vcpus=2"],
        ["/a", "/b", "x", "y", "-H", "acpi=true"],
        ["/a", "/b", "x", "y", "-O", "a=b"],
        ["/a", "/b", "x", "--net=0:speed=9"],
        ["/a", "/b", "x", "--net=0:mac"],
        ["/a", "/b", "x", "--net=mac=auto"],
    ):
        with pytest.raises(InputError):
            run(words)


def test_an_instance_of_upstream_reports_no_tags() -> None:
    told = {name: value for name, value in INSTANCE.items() if name != "tags"}
    op: Any = import_opcode(told, PREPARED, MoveOptions())
    assert op.tags == []


def test_an_answer_that_is_not_understood_ends_one_move_and_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, target = source(OP_INSTANCE_QUERY_DATA={NAME: {"name": NAME}}), FakeCluster({})
    clusters = {"/one": one, "/other": target}
    monkeypatch.setattr(move_instance, "connect", lambda where, _access: clusters[where])
    assert run(["/one", "/other", NAME, NAME]) == 1
    said = capsys.readouterr().err.splitlines()
    why = "was not moved: a cluster sent an invalid answer (KeyError"
    assert [line.partition(": ")[2].startswith(why) for line in said] == [True, True]


class UpstreamCluster(FakeCluster):
    """A destination of upstream's kind, whose job succeeds also if disks were not imported."""

    def __init__(self, warning: str = "") -> None:
        super().__init__({"OP_INSTANCE_REMOVE": None})
        certificate = certificates.for_transfer(
            certificates.new_key(), "node1.example.com", time.time()
        )
        signed = domain_secret.sign_certificate("secret", certificate.decode())
        self._said = [("remote-import", {**SAID, "x509_ca": signed}), ("message", warning)]

    def watch(self, job_id: int) -> Iterator[JobUpdate]:
        yield JobUpdate("running", self._said)
        yield JobUpdate("success", [])


@pytest.mark.requirement("G14")
def test_the_source_is_removed_only_after_the_job_of_upstream_has_ended() -> None:
    one = source(OP_INSTANCE_REMOVE=None)
    move(one, UpstreamCluster(), "web1", MoveOptions(), list[str]().append)
    assert one.kinds[-2:] == ["OP_BACKUP_EXPORT", "OP_INSTANCE_REMOVE"]
    assert [op.remove_instance for op in one.ops if op.op_id() == "OP_BACKUP_EXPORT"] == [False]
    assert one.ops[-1].instance_name == NAME
    one = source()
    move(one, UpstreamCluster(), "web1", MoveOptions(keep_source=True), list[str]().append)
    assert one.kinds[-1] == "OP_BACKUP_EXPORT"


@pytest.mark.requirement("G14")
def test_the_source_is_kept_if_upstream_did_not_import_every_disk() -> None:
    one = source()
    warning = " - WARNING: Some disks for instance web1 on node n1 were not imported successfully"
    with pytest.raises(ExecError, match="did not import every disk"):
        move(one, UpstreamCluster(warning), "web1", MoveOptions(), list[str]().append)
    assert one.kinds[-1] == "OP_BACKUP_EXPORT"
