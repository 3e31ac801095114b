"""gnt-node fence-password and fence-test."""

import io
import sys

import pytest

from ganeti.cli import node_power
from ganeti.cli.gnt_node import table as gnt_node
from tests.unit.cli.fake_master import FakeMaster, Run

PASSWORD = "hunter2-of-the-bmc"


def submitted(master: FakeMaster) -> dict[str, object]:
    [op], *_key = master.args_of("SubmitJob")
    return dict(op)


def test_password_is_read_from_standard_input(
    master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.job(result="stored")
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{PASSWORD}\n"))
    code, out, err = run(gnt_node, "fence-password", "node2")
    assert (code, out) == (0, "stored\n")
    assert PASSWORD not in out + err
    assert submitted(master)["password"] == PASSWORD


def test_password_on_a_terminal_is_asked_for_twice(
    master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.job(result="stored")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    typed = iter(["a" * 9, "a" * 8, "b" * 9, "b" * 9])
    monkeypatch.setattr(node_power, "getpass", lambda _prompt: next(typed))
    code, _, err = run(gnt_node, "fence-password", "node2")
    assert (code, "the two passwords differ" in err) == (1, True)
    assert run(gnt_node, "fence-password", "node2")[0] == 0
    assert submitted(master)["password"] == "b" * 9


def test_empty_password_is_refused_but_may_be_removed(
    master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.job(result="removed")
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    code, _, err = run(gnt_node, "fence-password", "node2")
    assert (code, "--remove" in err) == (1, True)
    assert run(gnt_node, "fence-password", "--remove", "node2")[0] == 0
    assert not submitted(master).get("password")


def test_fence_test_shows_device_status_and_plan(master: FakeMaster, run: Run) -> None:
    master.job(
        result={
            "node": "node2", "device": "fence_ipmilan", "kind": "agent", "has_password": True,
            "methods": ["power", "watchdog"], "timeout_s": 60.0, "is_on": True, "seconds": 0.42,
            "storage": {"web1": "", "web2": "it has no disks"}, "notes": ["a note"],
            "plan": "If node2 is lost: …",
        }
    )  # fmt: skip
    code, out, _ = run(gnt_node, "fence-test", "node2")
    assert code == 0
    assert out == (
        "Node: node2\nDevice: fence_ipmilan\nPower: on (answered in 0.4 s)\n"
        "Fencing methods: power watchdog\nStorage of web1: can refuse the writes of the node\n"
        "Storage of web2: it has no disks\nNote: a note\nIf node2 is lost: …\n"
    )
