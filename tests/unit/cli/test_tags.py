"""The commands about tags, of three programs."""

from pathlib import Path

import pytest

from ganeti.cli import gnt_cluster, gnt_instance, gnt_node
from ganeti.cli.command import CommandTable
from tests.unit.cli.fake_master import FakeMaster, Run

PROGRAMS = [
    (gnt_cluster.table, "cluster", []),
    (gnt_node.table, "node", ["node1"]),
    (gnt_instance.table, "instance", ["web1"]),
]


@pytest.mark.parametrize(("table", "kind", "name"), PROGRAMS)
@pytest.mark.parametrize(
    ("command", "op_id"), [("add-tags", "OP_TAGS_SET"), ("remove-tags", "OP_TAGS_DEL")]
)
def test_tags_are_sent(
    master: FakeMaster,
    run: Run,
    tmp_path: Path,
    table: CommandTable,
    kind: str,
    name: list[str],
    command: str,
    op_id: str,
) -> None:
    master.job()
    (tmp_path / "tags").write_text("c\n\n d \n")
    words = [command, *name, "a", "b", f"--from={tmp_path / 'tags'}"]
    assert run(table, *words)[0] == 0
    [op] = master.args_of("SubmitJob")[0]
    assert (op["OP_ID"], op["kind"], op["tags"]) == (op_id, kind, ["a", "b", "c", "d"])
    assert op["name"] == (name[0] if name else None)


@pytest.mark.parametrize(("table", "kind", "name"), PROGRAMS)
def test_tags_are_listed(
    master: FakeMaster, run: Run, table: CommandTable, kind: str, name: list[str]
) -> None:
    master.replies["QueryTags"] = ["b", "a"]
    assert run(table, "list-tags", *name) == (0, "a\nb\n", "")
    assert master.args_of("QueryTags") == [kind, name[0] if name else ""]
