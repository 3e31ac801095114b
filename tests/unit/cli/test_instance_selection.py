"""Choosing many instances, and the commands that do more to them than switch them."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from ganeti.cli.gnt_instance.table import table
from tests.unit.cli.fake_master import FakeMaster, Run

ROWS = [
    ["a", "n1", [], ["web"]],
    ["b", "n2", ["n1"], ["web", "old"]],
    ["c", "n3", ["n2"], []],
]
NODE_ROWS = [["n1", ["rack1"]], ["n2", ["rack2"]], ["n3", ["rack2", "ssd"]]]


@pytest.fixture
def cluster(master: FakeMaster) -> FakeMaster:
    """Three instances on three nodes; nobody is there to be asked."""

    def instances(names: list[str], fields: list[str], _lock: bool) -> Any:
        return [[name] for name in names] if fields == ["name"] else ROWS

    def nodes(names: list[str], fields: list[str], _lock: bool) -> Any:
        return [[name] for name in names] if fields == ["name"] else NODE_ROWS

    master.job()
    master.replies["QueryInstances"] = instances
    master.replies["QueryNodes"] = nodes
    return master


def submitted(master: FakeMaster) -> list[dict[str, Any]]:
    jobs, _key = master.args_of("SubmitManyJobs")
    return [op for [op] in jobs]


@pytest.mark.parametrize("command", ["startup", "shutdown", "reboot", "reinstall"])
@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("b a b", "ba"),
        ("--instance c", "c"),
        ("--all", "abc"),
        ("--node n1", "ab"),
        ("-n n1 n3", "abc"),
        ("--primary n2 n3", "bc"),
        ("--secondary n1", "b"),
        ("--tags old web", "ab"),
        ("--node-tags rack1", "ab"),
        ("--pri-node-tags ssd", "c"),
        ("--sec-node-tags rack2", "c"),
    ],
)
def test_instances_are_chosen_in_one_of_the_ways(
    cluster: FakeMaster, run: Run, command: str, words: str, names: str
) -> None:
    assert run(table, command, *words.split(), "--force-multiple")[0] == 0
    assert [op["instance_name"] for op in submitted(cluster)] == list(names)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "no instances are selected"),
        ("--all a", "accepts no names"),
        ("--tags", "pass names of tags"),
        ("--tags x --all", "use only one selection, not all and tags"),
        ("--tags nosuch", "no instance matches the selection"),
    ],
)
def test_a_choice_that_means_nothing_is_refused(
    cluster: FakeMaster, run: Run, words: str, text: str
) -> None:
    code, _out, err = run(table, "startup", *words.split(), "--force-multiple")
    assert code == 1
    assert text in err
    assert "SubmitManyJobs" not in cluster.methods()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("a", 13),
        ("a -f", 0),
        ("a --force-multiple", 0),
        ("a b -f", 13),
        ("--all -f", 13),
        ("--all --force-multiple", 0),
    ],
)
def test_a_reinstallation_must_be_meant(
    cluster: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch, words: str, code: int
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert run(table, "reinstall", *words.split())[0] == code
    assert ("SubmitManyJobs" in cluster.methods()) is (code == 0)


def test_a_reinstallation_has_its_parameters(cluster: FakeMaster, run: Run) -> None:
    words = (
        "a -f -o tiny+x -O a=1,b=2 --os-parameters-private p=q --os-parameters-secret s=t"
        " --force-variant"
    )
    assert run(table, "reinstall", *words.split())[0] == 0
    [op] = submitted(cluster)
    assert op["os_type"] == "tiny+x"
    assert op["force_variant"]
    assert op["osparams"] == {"a": "1", "b": "2"}
    assert op["osparams_private"] == {"p": "q"}
    assert op["osparams_secret"] == {"s": "t"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "wanted"), [("1\n", "tiny+b"), ("plain\n", "plain"), ("\n", ""), ("9\n", "")]
)
def test_an_os_can_be_selected(
    cluster: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch, typed: str, wanted: str
) -> None:
    cluster.job(result=[["tiny", ["a", "b"]], ["plain", []]])
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    code, out, _err = run(table, "reinstall", "-f", "--select-os", "a")
    assert "  1: tiny+b\n" in out
    if wanted:
        assert code == 0
        assert submitted(cluster)[0]["os_type"] == wanted
    else:
        assert code == 13
        assert "SubmitManyJobs" not in cluster.methods()


def test_rename_sends_both_names(cluster: FakeMaster, run: Run) -> None:
    cluster.job(result="shop.example.com")
    code, out, _err = run(table, "rename", "--no-ip-check", "--name-check", "a", "shop")
    assert code == 0
    assert out.endswith("Renamed instance a to shop.example.com\n")
    [op] = cluster.args_of("SubmitJob")[0]
    assert (op["instance_name"], op["new_name"]) == ("a", "shop")
    assert (op["name_check"], op["ip_check"]) == (True, False)


def test_a_file_of_instances_is_created_by_a_job_for_each(
    cluster: FakeMaster, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "many.json"
    file.write_text(
        json.dumps(
            [
                {
                    "instance_name": "x",
                    "disk_template": "file",
                    "disks": [{"size": 1024}],
                    "nics": [{"link": "br1"}],
                    "os_type": "tiny",
                    "beparams": {"memory": 64},
                },
                {"instance_name": "y", "disk_template": "diskless", "pnode": "n1"},
            ]
        )
    )
    code, out, _err = run(table, "batch-create", "-I", "hail", str(file))
    assert code == 0
    assert "x        7   success\n" in out
    first, second = submitted(cluster)
    assert (first["OP_ID"], first["iallocator"]) == ("OP_INSTANCE_CREATE", "hail")
    assert [(disk["size"], disk["adopt"]) for disk in first["disks"]] == [(1024, None)]
    assert (second["pnode"], second["iallocator"]) == ("n1", None)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("{}", "must be a list"),
        ("[]", "must be a list"),
        ("[1]", "instances[0]: must be an object"),
        ('[{"instance_name": "x"}, {"instance_name": "y", "colour": 1}]', "colour"),
        ('[{"instance_name": 7}]', "instances[0].instance_name"),
        ('[{"disk_template": "file"}]', "instance_name"),
    ],
)
def test_a_wrong_file_of_instances_creates_nothing(
    cluster: FakeMaster, run: Run, tmp_path: Path, content: str, text: str
) -> None:
    file = tmp_path / "many.json"
    file.write_text(content)
    code, _out, err = run(table, "batch-create", str(file))
    assert code == 1
    assert text in err
    assert cluster.requests == []


def test_a_missing_file_is_named(cluster: FakeMaster, run: Run, tmp_path: Path) -> None:
    code, _out, err = run(table, "batch-create", str(tmp_path / "nosuch"))
    assert code == 1
    assert "nosuch: does not exist" in err


def test_submit_names_the_instance_of_each_job(cluster: FakeMaster, run: Run) -> None:
    cluster.replies["SubmitManyJobs"] = [[True, 30], [True, 31]]
    code, out, _err = run(table, "startup", "a", "b", "--force-multiple", "--submit")
    assert (code, out) == (0, "30: a\n31: b\n")
