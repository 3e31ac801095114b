"""gnt-node list-storage, modify-storage, repair-storage, volumes."""

import json
from typing import Any

import pytest

from ganeti.cli.gnt_node import table
from tests.unit.cli.fake_master import FakeMaster, Run


def submitted(master: FakeMaster) -> dict[str, Any]:
    (ops, *_key) = master.args_of("SubmitJob")
    op: dict[str, Any] = json.loads(json.dumps(ops[0]))
    return op


@pytest.mark.requirement("S1", "S2")
def test_any_kind_is_listed_as_a_table(master: FakeMaster, run: Run) -> None:
    master.job(result=[["node1", "dummy", "d0", 2048, 512, 1536, True]])
    code, out, _err = run(table, "list-storage", "-t", "dummy", "node1")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["Node", "Type", "Name", "Size", "Used", "Free", "Allocatable"],
        ["node1", "dummy", "d0", "2.0G", "512M", "1.5G", "Y"],
    ]
    op = submitted(master)
    assert (op["OP_ID"], op["storage_type"], op["nodes"]) == (
        "OP_NODE_QUERY_STORAGE",
        "dummy",
        ["node1"],
    )


@pytest.mark.requirement("S4", "S5")
@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (["--allocatable=no", "node1", "lvm-pv", "/dev/sdb"], {"allocatable": False}),
        (["--allocatable", "yes", "node1", "lvm-pv", "/dev/sdb"], {"allocatable": True}),
        (["--create", "node1", "file", "/srv/x"], {"present": True}),
        (["--delete", "node1", "file", "/srv/x"], {"present": False}),
    ],
)
def test_what_is_to_change_is_reported_in_the_opcode(
    master: FakeMaster, run: Run, words: list[str], changes: dict[str, Any]
) -> None:
    master.job()
    assert run(table, "modify-storage", *words)[0] == 0
    op = submitted(master)
    assert op["changes"] == changes
    assert [op["node_name"], op["storage_type"], op["name"]] == words[-3:]


def test_a_change_of_nothing_calls_no_node(master: FakeMaster, run: Run) -> None:
    said = (0, "No changes to perform, exiting.\n", "")
    assert run(table, "modify-storage", "node1", "lvm-pv", "/dev/sdb") == said
    assert master.requests == []


def test_a_repair_names_the_unit(master: FakeMaster, run: Run) -> None:
    master.job()
    words = ["--ignore-consistency", "-f", "node1", "lvm-vg", "xenvg"]
    assert run(table, "repair-storage", *words)[0] == 0
    op = submitted(master)
    assert (op["OP_ID"], op["name"]) == ("OP_REPAIR_NODE_STORAGE", "xenvg")
    assert op["ignore_consistency"] is True


def test_volumes_are_listed_for_scripts(master: FakeMaster, run: Run) -> None:
    master.job(result=[["d0", 64], ["d1", None]])
    options = ["-o", "name,size", "--no-headers", "--separator=|"]
    assert run(table, "volumes", *options)[1].splitlines() == ["d0|64", "d1|-"]
    assert submitted(master)["output_fields"] == ["name", "size"]
