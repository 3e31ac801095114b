"""gnt-filter: what it asks for and prints."""

import json

import pytest

from ganeti.cli.gnt_filter import table as gnt_filter
from tests.unit.cli.fake_master import FakeMaster, Run, rows_of

UUID = "00000000-0000-4000-f000-000000000001"
PREDICATES = [["jobid", [">", "id", "watermark"]]]
FIELDS = ("uuid", "watermark", "priority", "predicates", "action", "reason_trail")
ROW = [
    UUID,
    12,
    0,
    PREDICATES,
    ["RATE_LIMIT", 10],
    [["gnt:user", "why\x1b", 1_700_000_000 * 10**9]],
]


@pytest.mark.parametrize(
    ("words", "uuid", "priority", "predicates", "action"),
    [
        (["add"], None, 0, [], "CONTINUE"),
        (["add", "--action=RATE_LIMIT 10", f"--predicates={json.dumps(PREDICATES)}"], None, 0,
         PREDICATES, ["RATE_LIMIT", 10]),
        (["replace", "--priority=7", "--action=PAUSE", UUID], UUID, 7, [], "PAUSE"),
    ],
)  # fmt: skip
def test_a_filter_is_made_and_its_uuid_printed(
    master: FakeMaster,
    run: Run,
    words: list[str],
    uuid: str | None,
    priority: int,
    predicates: list[object],
    action: object,
) -> None:
    master.replies["ReplaceFilter"] = UUID
    code, out, _err = run(gnt_filter, *words, "--reason=maintenance")
    assert (code, out) == (0, f"{UUID}\n")
    *given, reasons = master.args_of("ReplaceFilter")
    assert given == [uuid, priority, predicates, action]
    assert [reason[:2] for reason in reasons] == [
        ["gnt:user", "maintenance"], ["gnt:client:gnt-filter", words[0]],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words", [["--predicates=["], ["--predicates=" + "[" * 100_000], ["--priority=x"], ["--action=RATE_LIMIT x"]]
)  # fmt: skip
def test_what_is_no_filter_is_refused_before_the_master_is_asked(
    master: FakeMaster, run: Run, words: list[str]
) -> None:
    assert run(gnt_filter, "add", *words)[0] == 1
    assert master.requests == []


def test_filters_are_shown_and_deleted(master: FakeMaster, run: Run) -> None:
    master.replies |= {
        "QueryFilters": rows_of(dict(zip(FIELDS, ROW, strict=True))),
        "DeleteFilter": None,
    }
    code, out, _err = run(gnt_filter, "info")
    assert code == 0
    lines = out.splitlines()
    assert lines[:6] == [
        f"UUID: {UUID}", "  Watermark: 12", "  Priority: 0", "  Predicates:",
        '    ["jobid", [">", "id", "watermark"]]', "  Action: RATE_LIMIT 10",
    ]  # fmt: skip
    assert lines[7].endswith("gnt:user: why\\x1b")
    assert run(gnt_filter, "delete", UUID)[0] == 0
    assert master.args_of("DeleteFilter") == [UUID]


def test_a_list_has_the_fields_of_upstream(master: FakeMaster, run: Run) -> None:
    names = ["uuid", "watermark", "priority", "predicates", "action", "reason_trail"]
    fields = [{"name": one, "title": one, "kind": "other", "doc": ""} for one in names]
    master.replies["Query"] = {"fields": fields, "data": [[[0, value] for value in ROW]]}
    code, out, _err = run(gnt_filter, "list", "--separator=;", "--no-headers")
    assert (code, out.split(";")[4]) == (0, '["RATE_LIMIT", 10]')
    assert master.args_of("Query") == ["filter", names, None]
