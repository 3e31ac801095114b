import json

import pytest

from ganeti.cli.manual import PROGRAMS, table_of
from ganeti.clients.fields import INSTANCE
from tests.unit.cli.fake_master import FakeMaster, Run

SHOWING = ("List", "Show", "Find", "Count", "Print")
PRINTS_JSON_ALWAYS = ("mon-collector",)


@pytest.mark.parametrize(
    "prog", [one for one in PROGRAMS if one not in (*PRINTS_JSON_ALWAYS, "ovfconverter")]
)
def test_every_command_that_lists_or_shows_can_print_json(prog: str) -> None:
    lacking = [
        command.name
        for command in table_of(prog).commands.values()
        if command.summary.startswith(SHOWING)
        and not any("--json" in one.flags for one in command.options)
    ]
    assert lacking == []


def answered(fields: list[str], *rows: list[object], kind: str = "text") -> dict[str, object]:
    described = [{"name": name, "title": name, "kind": kind, "doc": ""} for name in fields]
    cells = [[[2, None] if cell == "?" else [0, cell] for cell in row] for row in rows]
    return {"fields": described, "data": cells}


def test_list_as_json_has_the_fields_of_rest_and_null_for_what_is_not_there(
    master: FakeMaster, run: Run
) -> None:
    master.replies["Query"] = lambda _kind, fields, _filter: answered(
        fields, ["web1\n", *("?" for _ in fields[1:])]
    )
    code, out, _ = run(table_of("gnt-instance"), "list", "--json")
    assert code == 0
    assert json.loads(out) == [{"name": "web1\n", **dict.fromkeys(INSTANCE[1:])}]


def test_list_as_json_has_only_the_fields_that_are_named(
    master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNT_INSTANCE_LIST", "name,os")
    master.replies["Query"] = lambda _kind, fields, _filter: answered(fields, ["web1", 128])
    code, out, _ = run(table_of("gnt-instance"), "list", "--json", "-o", "name,oper_ram")
    assert (code, json.loads(out)) == (0, [{"name": "web1", "oper_ram": 128}])


def test_unknown_field_keeps_its_exit_code_with_json(master: FakeMaster, run: Run) -> None:
    master.replies["Query"] = answered(["nosuch"], ["?"], kind="unknown")
    code, out, _ = run(table_of("gnt-node"), "list", "--json", "-o", "nosuch")
    assert (code, json.loads(out)) == (14, [{"nosuch": None}])


def test_log_of_a_job_stays_out_of_json(master: FakeMaster, run: Run) -> None:
    master.job(
        "looking at the nodes", result=[["node1", 1, "web1", "disk/0", "primary", "node2", "ok"]]
    )
    code, out, _ = run(table_of("gnt-node"), "list-drbd", "--json", "node1")
    assert code == 0
    [row] = json.loads(out)
    assert row["peer_node"] == "node2"


def test_exit_code_is_that_of_the_text_form_with_json(master: FakeMaster, run: Run) -> None:
    disk = {"disk": 0, "node": "node1", "status": "missing", "percent": None, "seconds_left": None,
            "problem": "", "state": ""}  # fmt: skip
    master.job(result=[disk])
    code, out, _ = run(table_of("gnt-instance"), "disk-status", "--json", "web1")
    assert (code, json.loads(out)) == (1, [disk])


def test_missing_job_is_named_on_standard_error_and_others_are_printed(
    master: FakeMaster, run: Run
) -> None:
    master.replies["QueryJobs"] = lambda _ids, fields: [
        [5 if name == "id" else "success" for name in fields], None
    ]  # fmt: skip
    code, out, err = run(table_of("gnt-job"), "info", "--json", "5", "6")
    assert (code, [job["id"] for job in json.loads(out)]) == (1, [5])
    assert err == "Job 6 not found\n"
