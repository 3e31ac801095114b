"""gnt-backup: what it submits and prints."""

from typing import Any

import pytest

from ganeti.cli.gnt_backup import IMAGE_FORMATS, table
from ganeti.cli.ovfconverter import FORMATS
from ganeti.images import package
from tests.unit.cli.fake_master import FakeMaster, Run


def submitted(master: FakeMaster) -> dict[str, Any]:
    """The only opcode of the only job."""
    [op] = master.args_of("SubmitJob")[0]
    assert isinstance(op, dict)
    return op


def test_an_export_reports_where_and_how(master: FakeMaster, run: Run) -> None:
    master.job()
    master.replies["QueryInstances"] = [["web1.example.com"]]
    words = ["-n", "node2", "--compress=zstd", "--noshutdown", "--long-sleep", "web1"]
    assert run(table, "export", *words)[0] == 0
    op = submitted(master)
    assert (op["OP_ID"], op["instance_name"], op["target_node"]) == (
        "OP_BACKUP_EXPORT",
        "web1.example.com",
        "node2",
    )
    assert (op["compress"], op["shutdown"], op["long_sleep"]) == ("zstd", False, True)
    assert run(table, "export", "web1")[0] == 2


def test_an_import_leaves_the_rest_to_the_export(master: FakeMaster, run: Run) -> None:
    master.job()
    words = ["-n", "node3:node4", "--src-node=node2", "--src-dir=web1.example.com", "-t", "drbd",
             "-B", "memory=1g", "--identify-defaults", "web2.example.com"]  # fmt: skip
    assert run(table, "import", *words)[0] == 0
    op = submitted(master)
    assert (op["OP_ID"], op["mode"], op["start"]) == ("OP_INSTANCE_CREATE", "import", False)
    assert (op["pnode"], op["snode"], op["src_node"], op["src_path"]) == (
        *("node3", "node4", "node2"),
        "web1.example.com",
    )
    assert op["beparams"] == {"memory": 1024}
    assert op["identify_defaults"] is True
    assert not op.get("disks")
    assert not op.get("nics")


def test_an_image_is_on_the_master_by_default(master: FakeMaster, run: Run) -> None:
    master.job()
    master.replies["QueryClusterInfo"] = {"master": "node1.example.com"}
    assert run(table, "import", "--image=/srv/ganeti/images/a.ova", "web2")[0] == 0
    op = submitted(master)
    assert (op["src_path"], op["src_format"]) == ("/srv/ganeti/images/a.ova", "auto")
    assert op["src_node"] == "node1.example.com"
    for words in (["--format=raw"], ["--image=/a", "--src-dir=web1"]):
        assert run(table, "import", *words, "web2")[0] == 1
    assert package.SOURCE_FORMATS == IMAGE_FORMATS == FORMATS


def test_an_import_may_have_one_larger_disk(master: FakeMaster, run: Run) -> None:
    master.job()
    assert run(table, "import", "-s", "10g", "-H", "kvm:acpi=false", "web2.example.com")[0] == 0
    op = submitted(master)
    assert op["disks"][0]["size"] == 10240
    assert (op["hypervisor"], op["hvparams"]) == ("kvm", {"acpi": "false"})


def test_a_list_may_be_of_one_node(master: FakeMaster, run: Run) -> None:
    fields = [
        {"name": name, "title": name.title(), "kind": "text", "doc": ""}
        for name in ("node", "export")
    ]
    rows = [[[0, "node1"], [0, "web1.example.com"]], [[0, "node2"], [2, None]]]
    master.replies["Query"] = {"fields": fields, "data": rows}
    master.replies["QueryNodes"] = [["node1"], ["node2"]]
    code, out, _err = run(table, "list", "--node=node1", "--node=node2")
    assert (code, out.splitlines()) == (
        0,
        ["Node  Export", "node1 web1.example.com", "node2 ?"],
    )
    kind, names, filter_ = master.args_of("Query")
    assert (kind, names) == ("export", ["node", "export"])
    assert filter_ == ["|", ["==", "node", "node1"], ["==", "node", "node2"]]
    # A wrong name is refused there.
    assert master.args_of("QueryNodes")[0] == ["node1", "node2"]


@pytest.mark.requirement("A42")
def test_a_removal_names_the_instance(master: FakeMaster, run: Run) -> None:
    master.job()
    assert run(table, "remove", "web1.example.com")[0] == 0
    op = submitted(master)
    assert (op["OP_ID"], op["instance_name"]) == ("OP_BACKUP_REMOVE", "web1.example.com")
