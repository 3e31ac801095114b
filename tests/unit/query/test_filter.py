import time
from collections.abc import Mapping
from typing import Any

import pytest

from ganeti.base.errors import InputError
from ganeti.query.fields.field import NO_DATA, Field, Need, ValueKind, field_table
from ganeti.query.filter import compile_filter
from tests.support.patience import patience

Row = Mapping[str, Any]


def _field(name: str, kind: ValueKind, **given: Any) -> Field[Row]:
    return Field(name, name, kind, "", lambda row: row.get(name, NO_DATA), **given)


FIELDS = field_table(
    (
        _field("name", ValueKind.TEXT, is_host_name=True),
        _field("status", ValueKind.TEXT, needs=frozenset((Need.INSTANCES,))),
        _field("mem", ValueKind.UNIT),
        _field("cnt", ValueKind.NUMBER),
        _field("up", ValueKind.BOOL),
        _field("tags", ValueKind.OTHER),
        _field("uuid", ValueKind.TEXT),
    )
)
ROW: Row = {
    "name": "web1.example.com",
    "mem": 2048,
    "cnt": 3,
    "up": True,
    "tags": ["a", "b"],
    "uuid": "u1",
}


def passes(raw: Any, row: Row = ROW) -> bool:
    return compile_filter(raw, FIELDS, "name").passes(row)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (None, True),
        (["=", "name", "web1.example.com"], True),
        (["==", "name", "web1"], True),
        (["==", "name", "web"], False),
        (["!=", "name", "web2"], True),
        (["!=", "name", "web1"], False),
        (["|", ["==", "name", "web2"], ["==", "name", "web1"]], True),
        (["|", ["==", "uuid", "u2"], ["==", "uuid", "u1"]], True),
        (["|", ["==", "uuid", "u2"], ["==", "uuid", "u3"]], False),
        (["|"], False),
        (["&"], True),
        (["&", ["?", "up"], ["?", "tags"]], True),
        (["!", ["?", "up"]], False),
        (["?", "status"], False),
        (["=", "status", "x"], False),
        (["!=", "status", "x"], False),
        (["<", "mem", 4096], True),
        (["<", "mem", "4g"], True),
        ([">=", "mem", "2g"], True),
        ([">", "cnt", "2.5"], True),
        (["<", "cnt", None], False),
        (["<", "name", "x"], True),
        (["<", "name", 3], False),
        (["=", "up", "yes"], True),
        (["=", "up", 1], False),
        (["=", "cnt", 3], True),
        (["=", "tags", "a"], True),
        (["=[]", "tags", "b"], True),
        (["=[]", "tags", "c"], False),
        (["=~", "name", "^web[0-9]"], True),
        (["=~", "tags", "^b$"], True),
        (["=*", "name", "web*"], True),
        (["=*", "name", "db*"], False),
    ],
)
def test_filters_choose_rows(raw: Any, expected: bool) -> None:
    assert passes(raw) is expected


@pytest.mark.requirement("A23")
@pytest.mark.parametrize(
    "raw",
    [
        "name", [], ["="], ["=", "name"], ["=", 1, 2], ["x", "name", "y"], ["=", "nosuch", 1],
        ["?", "nosuch"], ["=~", "name", "(a"], ["=~", "name", 3], ["!", ["?", "up"], ["?", "up"]],
        ["=", "cnt", "many"], ["=", "mem", "much"], ["=", "name", {}], {"a": 1}, 7,
    ],
)  # fmt: skip
def test_what_is_no_filter_is_refused(raw: Any) -> None:
    with pytest.raises(InputError):
        passes(raw)


@pytest.mark.requirement("A23")
def test_a_deep_filter_is_refused() -> None:
    raw: Any = ["?", "up"]
    for _ in range(10_000):
        raw = ["!", raw]
    with pytest.raises(InputError, match="nested deeper"):
        passes(raw)


@pytest.mark.requirement("A23")
@pytest.mark.parametrize(
    ("operator", "fits", "what"),
    [("=", 19_000, "operators"), ("=~", 400, "patterns"), ("=*", 400, "patterns")],
)
def test_a_long_filter_is_compiled_or_refused_at_once(operator: str, fits: int, what: str) -> None:
    """The master does nothing else meanwhile."""

    def compiled(count: int) -> float:
        parts = [[operator, "name", f"web{number}.a+b(c|d)"] for number in range(count)]
        begun = time.process_time()
        try:
            compile_filter(["|", *parts], FIELDS, "name")
        finally:
            longest.append(time.process_time() - begun)
        return longest[-1]

    longest = list[float]()
    compiled(fits)
    with pytest.raises(InputError, match=what):
        compiled(30_000)
    assert max(longest) < patience(), "s of processor time, which is dearer on a busy machine"


def test_a_filter_knows_what_it_needs_and_which_rows_it_names() -> None:
    compiled = compile_filter(["&", ["=", "name", "a"], ["?", "status"]], FIELDS, "name")
    assert compiled.needs == {Need.INSTANCES}
    assert compiled.named == frozenset({"a"})
    either = compile_filter(["|", ["=", "name", "a"], ["==", "name", "b"]], FIELDS, "name")
    assert either.named == frozenset({"a", "b"})
    assert compile_filter(["|", ["=", "name", "a"], ["?", "up"]], FIELDS, "name").named is None
