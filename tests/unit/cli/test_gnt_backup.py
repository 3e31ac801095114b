"""gnt-backup: what it submits and prints."""

import json
from typing import Any

import pytest

from ganeti.cli.backup_schedules import SCHEDULE_KIND
from ganeti.cli.gnt_backup import table
from ganeti.cli.ovfconverter import FORMATS
from ganeti.clients.fields import SCHEDULE
from ganeti.images import package
from ganeti.model.image_source import SOURCE_FORMATS
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
    assert package.SOURCE_FORMATS == SOURCE_FORMATS == FORMATS


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


SCHEDULE_INFO = {
    **dict.fromkeys(SCHEDULE),
    "name": "nightly", "calendar": "Mon..Fri 22:30", "time_zone": "Europe/Berlin", "all_instances": False,
    "instances": ["web1.example.com"], "instance_tags": ["prod"], "groups": [], "at_once": 2, "per_node": 1,
    "bandwidth": 50, "keep_rules": {"last": 0, "daily": 7}, "alert_after": 0, "paused": False, "owner": "rest:ann",
    "runs": [
        {"instance": "web1.example.com", "state": "failing", "last": 1e9, "backup": "20261127-180500", "due": 1.8e9,
         "running": False, "job": 7, "failures": 1, "error": "no space"},
        {"instance": "web2.example.com", "state": "waiting", "last": None, "backup": None, "due": None,
         "running": True, "job": 8, "failures": 0, "error": None},
    ],
}  # fmt: skip


@pytest.mark.parametrize(("words", "kind", "fields"), [
    (["add", "--calendar=daily", "--all-instances=yes", "-n", "node2", "--keep-daily=7", "nightly"], "ADD",
     {"calendar": "daily", "all_instances": True, "node": "node2", "keep_daily": 7}),
    (["modify", "nightly", "--instances=web1,web2", "--window=22:00-06:00", "--at-once=4"], "SET_PARAMS",
     {"instances": ["web1", "web2"], "window": "22:00-06:00", "at_once": 4}),
    (["pause", "nightly"], "SET_PARAMS", {"is_paused": True}),
    (["resume", "nightly"], "SET_PARAMS", {"is_paused": False}),
    (["remove", "nightly"], "REMOVE", {}),
    (["run", "nightly"], "RUN", {}),
    (["run", "nightly", "web1", "web2"], "RUN", {"instances": ["web1", "web2"]}),
])  # fmt: skip
def test_schedule_submits_what_it_is_given(
    words: list[str], kind: str, fields: dict[str, Any], master: FakeMaster, run: Run
) -> None:
    master.job(result=["web1.example.com"] if kind == "RUN" else None)
    code, out, _err = run(table, "schedule", *words)
    assert (code, out) == (0, "Saving web1.example.com\n" if kind == "RUN" else "")
    op = submitted(master)
    assert (op["OP_ID"], op["schedule_name"]) == (f"OP_BACKUP_SCHEDULE_{kind}", "nightly")
    given = {name: one for name, one in op.items() if one not in (None, [], 0) and name != "reason"}
    assert given.items() >= {k: v for k, v in fields.items() if v is not False}.items()


@pytest.mark.parametrize(("words", "why"), [
    (["stop", "nightly"], "must be one of: list, add"),
    (["remove"], "name the schedule"),
    (["remove", "nightly", "--at-once=2"], "is only for add and modify"),
    (["add", "nightly", "web1"], "only for run; use --instances"),
])  # fmt: skip
def test_schedule_refuses_words_without_a_meaning(
    words: list[str], why: str, master: FakeMaster, run: Run
) -> None:
    code, _out, err = run(table, "schedule", *words)
    assert code == 1
    assert why in err
    assert master.methods() == []


def test_schedule_info_shows_each_instance(master: FakeMaster, run: Run) -> None:
    asked = list(dict.fromkeys(name for line in SCHEDULE_KIND.info for name in line.fields))
    master.replies["QuerySchedules"] = [[SCHEDULE_INFO[name] for name in asked]]
    code, out, _err = run(table, "schedule", "info", "nightly")
    assert code == 0
    assert "instances web1.example.com; instances with tags prod" in out
    assert "daily=7" in out
    assert "failing, last backup 20261127-180500, next 2027-01-15" in out
    assert "; job 7: no space" in out
    assert "waiting, no backup yet, next -, job 8 runs" in out
    master.replies["QuerySchedules"] = [[SCHEDULE_INFO[name] for name in SCHEDULE]]
    code, out, _err = run(table, "schedule", "info", "--json")
    assert (code, json.loads(out)[0]["owner"]) == (0, "rest:ann")


def test_schedule_list_asks_for_the_named_ones(master: FakeMaster, run: Run) -> None:
    master.replies["Query"] = {"fields": [], "data": []}
    assert run(table, "schedule", "list", "nightly")[0] == 0
    kind, fields, filter_ = master.args_of("Query")
    assert (kind, fields[0]) == ("schedule", "name")
    assert filter_ == ["|", ["==", "name", "nightly"]]


def test_drill_names_a_backup(master: FakeMaster, run: Run) -> None:
    result = {"point": "20261127-080000", "seen": "login:", "seconds": 2.5, "lines": ["\x1b[2J login:"],
              "memory": 96, "accelerator": "tcg"}  # fmt: skip
    master.job(result=result)
    words = ["--timeout=60", "--expect=ready", "--memory=256", "web1", "20261127-080000"]
    code, out, _err = run(table, "drill", *words)
    assert code == 0
    assert out.splitlines()[-2:] == [
        r"  \x1b[2J login:",
        "Backup 20261127-080000 of web1 boots: 'login:' after 2.5 s (96 MiB, tcg)",
    ]
    op = submitted(master)
    assert (op["OP_ID"], op["instance_name"], op["point"]) == ("OP_BACKUP_DRILL", "web1", words[-1])
    assert (op["timeout"], op["expect"], op["memory"]) == (60, "ready", 256)


def test_drill_takes_the_last_backup_by_default(master: FakeMaster, run: Run) -> None:
    master.job()
    assert run(table, "drill", "--submit", "--agent", "web1")[0] == 0
    op = submitted(master)
    assert op.get("point") is None
    assert op["agent"] is True
