"""The questions of `gnt-cluster init`: their defaults from the host's facts, and the command line that they lead to."""

import argparse
import shlex
from typing import Any

import pytest

from ganeti.base.errors import InputError
from ganeti.cli.command import parser_of
from ganeti.cli.errors import NeedsConfirmation
from ganeti.cli.gnt_cluster import table
from ganeti.cli.init_questions import (
    FILE_STORAGE,
    LOOPBACK,
    NONE,
    Host,
    Interview,
    questions,
    templates,
)
from ganeti.model.host_facts import HostFacts, Link
from tests.unit.cli.fake_master import Run

NAME = "node1.example.com"
BRIDGE = Link(is_bridge=True, is_up=True, mtu=1500)
CARD = Link(is_bridge=False, is_up=True, mtu=1500)
ADDRESSES = {"cluster.example.com": "192.0.2.10", "here.example.com": LOOPBACK}


def host(**given: Any) -> Host:
    facts: dict[str, Any] = {
        "name": NAME,
        "volume_groups": {"small": 10, "large": 4096},
        "links": {"eth0": CARD, "br1": BRIDGE},
        **given.pop("facts", {}),
    }
    more: dict[str, Any] = {
        "interfaces": ("eth0", "br1"),
        "address": "192.0.2.1",
        "own": "192.0.2.1",
        **given,
    }
    return Host(HostFacts(**facts), resolve=ADDRESSES.get, **more)


def args_of(*words: str) -> argparse.Namespace:
    return parser_of("gnt-cluster", table.commands["init"]).parse_args(words)


def interview(
    known: Host, answers: list[str], *words: str
) -> tuple[argparse.Namespace, Interview, list[str]]:
    """The command line after these answers, and everything that was shown."""
    left, shown, args = list(answers), list[str](), args_of(*words)

    def ask(prompt: str) -> str:
        shown.append(prompt)
        return left.pop(0)

    args.given_words = words
    one = Interview(known, ask, shown.append)
    one.fill(args)
    assert left == []
    return args, one, shown


def test_defaults_come_from_the_host() -> None:
    args, _one, shown = interview(host(), [""] * 7)
    assert (args.cluster_name, args.master_netdev, args.nicparams) == (
        "cluster.example.com", "br1", ["mode=bridged,link=br1"],
    )  # fmt: skip
    assert (args.enabled_hypervisors, args.vg_name, args.file_storage_dir, args.state) == (
        "kvm", "large", FILE_STORAGE, "embedded",
    )  # fmt: skip
    assert args.enabled_disk_templates == "drbd,plain,file,diskless"
    assert "large (4.0G free), small (10M free)" in "".join(shown)
    assert all(len(line) < 200 for line in shown)


def test_command_line_without_questions_means_the_same() -> None:
    args, one, _ = interview(
        host(), ["", "eth0", "", "fake", NONE, "/srv/disks", "etcd"], "-C", "3"
    )
    again = args_of(*shlex.split(one.command(args))[2:])
    assert {**vars(again), "given_words": args.given_words} == vars(args)
    assert list(questions(host(), again)) == []
    assert again.enabled_disk_templates == "file,diskless"


def test_options_of_the_command_line_are_not_asked_for() -> None:
    words = ["--vg-name=", "--master-netdev=", "-N", "link=br9", "--enabled-hypervisors=fake",
             "--file-storage-dir=/srv/x", "--state=etcd", "--enabled-disk-templates=file"]  # fmt: skip
    args, one, shown = interview(host(), ["cluster.example.com"], *words)
    assert len(shown) == 2
    assert one.words == []
    assert args.vg_name == ""


@pytest.mark.parametrize(
    ("known", "dest", "default", "why"),
    [
        (host(facts={"kvm_problem": "/dev/kvm does not exist"}), "enabled_hypervisors", "fake", "/dev/kvm does not"),
        (host(facts={"qemu_problem": "the program qemu does not exist"}), "enabled_hypervisors", "fake", "qemu"),
        (host(facts={"volume_groups": {}, "lvm_problem": "the program vgs does not exist"}), "vg_name", NONE, "vgs"),
        (host(facts={"volume_groups": {}}), "vg_name", NONE, "disks are files then"),
        (host(interfaces=()), "master_netdev", NONE, "another system"),
        (host(own=LOOPBACK), "primary_ip", "192.0.2.1", "only loopback addresses"),
        (host(own=""), "primary_ip", "192.0.2.1", "has no address"),
    ],
)  # fmt: skip
def test_missing_parts_of_the_host_are_explained(
    known: Host, dest: str, default: str, why: str
) -> None:
    [found] = [one for one in questions(known, args_of("cluster.example.com")) if one.dest == dest]
    assert found.default == default
    assert why in found.why


def test_bridge_is_asked_for_only_where_there_is_one() -> None:
    dests = [
        one.dest for one in questions(host(interfaces=("eth0",)), args_of("cluster.example.com"))
    ]
    assert "nicparams" not in dests
    assert "master_ip" not in dests


@pytest.mark.parametrize("name", ["new.example.com", "here.example.com"])
def test_name_without_an_address_needs_one(name: str) -> None:
    args, one, shown = interview(host(), [name, "127.0.0.1", "x", "", "192.0.2.99", *[""] * 6])
    assert args.master_ip == "192.0.2.99"
    assert "--master-ip=192.0.2.99" in one.words
    assert sum("is not an address of the network" in line for line in shown) == 2


@pytest.mark.parametrize(
    ("dest", "answer"),
    [
        ("cluster_name", NAME), ("cluster_name", "a b"), ("cluster_name", "-x"), ("master_netdev", "eth9"),
        ("enabled_hypervisors", "xen"), ("vg_name", "other"), ("file_storage_dir", "disks"),
        ("file_storage_dir", "/srv/../etc"), ("state", "files"),
    ],
)  # fmt: skip
def test_wrong_answer_is_refused(dest: str, answer: str) -> None:
    words = [] if dest == "cluster_name" else ["cluster.example.com"]
    found = next(one for one in questions(host(), args_of(*words)) if one.dest == dest)
    with pytest.raises(InputError):
        found.value(answer)


def test_wrong_answer_is_asked_again_with_the_reason() -> None:
    _, _, shown = interview(host(), [NAME, "", *[""] * 6])
    assert "is the name of this node" in "".join(shown)


@pytest.mark.parametrize(
    ("answers", "result"),
    [([""], ""), (["none"], ""), (["a b", "anna"], "anna"), (["#x", "anna"], "anna")],
)
def test_administrator_is_optional(answers: list[str], result: str) -> None:
    left = list(answers)
    assert Interview(host(), lambda _: left.pop(0), lambda _: None).administrator() == result


@pytest.mark.parametrize(("answer", "result"), [("", True), ("y", True), ("n", False)])
def test_creation_is_confirmed(answer: str, result: bool) -> None:
    assert Interview(host(), lambda _: answer, lambda _: None).is_confirmed() is result


def test_templates_follow_from_the_host() -> None:
    without = host(facts={"drbd_problem": "the kernel module drbd is not loaded"})
    assert templates(without, "large") == "plain,file,diskless"
    assert templates(without, "") == "file,diskless"


@pytest.mark.parametrize("words", [[], ["--yes"], ["--state=etcd"]])
def test_script_never_sees_a_question(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    def asked(_prompt: str) -> str:
        raise AssertionError("a question")

    monkeypatch.setattr("builtins.input", asked)
    code, out, err = run(table, "init", *words)
    assert (code, out) == (2, "")
    assert "required: cluster_name" in err


def test_end_of_the_input_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from ganeti.cli.init_questions import ask_on_terminal

    def end(_prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", end)
    with pytest.raises(NeedsConfirmation, match="nothing was changed"):
        ask_on_terminal("Name: ")
