import argparse
import io
import sys
from typing import Any, Self

import pytest

from ganeti.cli import objects
from ganeti.cli.output import (
    format_table,
    format_value,
    list_lines,
    or_default,
    tree_lines,
    wanted_fields,
    wanted_filter,
)


@pytest.mark.parametrize(
    ("value", "kind", "units", "text"),
    [
        (True, "bool", "h", "Y"),
        (False, "bool", "h", "N"),
        (258019, "unit", "h", "252.0G"),
        (892, "unit", "h", "892M"),
        (24105, "unit", "m", "24105"),
        (24105, "unit", "g", "23.5"),
        (1_700_000_000.5, "timestamp", "h", "2023-11-14 22:13:20"),
        (None, "other", "h", "-"),
        ([], "other", "h", ""),
        (["a", "b"], "other", "h", "a,b"),
        ([512, 2048], "unit", "h", "512M,2.0G"),
        ({"a": 1, "b": ""}, "other", "h", "a=1, b="),
        (7, "number", "h", "7"),
        ("x", "text", "h", "x"),
    ],
)
def test_values_are_shown_by_their_kind(value: Any, kind: str, units: str, text: str) -> None:
    assert format_value(value, kind, units) == text


def _args(**given: Any) -> argparse.Namespace:
    default = {"no_headers": False, "separator": None, "units": None, "verbose": 0}
    return argparse.Namespace(**{**default, **given})


ANSWER = {
    "fields": [
        {"name": "name", "title": "Node", "kind": "text", "doc": ""},
        {"name": "mfree", "title": "MFree", "kind": "unit", "doc": ""},
        {"name": "x", "title": "x", "kind": "unknown", "doc": ""},
    ],
    "data": [
        [[0, "node1"], [0, 2048], [1, None]],
        [[0, "node2"], [2, None], [1, None]],
        [[0, "node3"], [4, None], [1, None]],
        [[0, "node4"], [3, None], [1, None]],
    ],
}


def test_columns_are_padded_numbers_to_the_right() -> None:
    assert list_lines(_args(), ANSWER, {}) == [
        "Node  MFree x",
        "node1  2.0G ??",
        "node2     ? ??",
        "node3     * ??",
        "node4     - ??",
    ]


def test_a_separator_ends_padding_and_units() -> None:
    assert list_lines(_args(separator="|"), ANSWER, {})[:2] == ["Node|MFree|x", "node1|2048|??"]


def test_headings_can_be_left_out_and_gaps_be_spelt() -> None:
    assert list_lines(_args(no_headers=True, verbose=1, separator=":"), ANSWER, {}) == [
        "node1:2048:(unknown)",
        "node2:(nodata):(unknown)",
        "node3:(offline):(unknown)",
        "node4:(unavail):(unknown)",
    ]


def test_an_empty_table_is_its_headings() -> None:
    assert format_table(["A", "BB"], []) == ["A BB"]
    assert format_table(None, []) == []


def test_fields_come_from_option_environment_or_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wanted_fields(None, ("a", "b"), "GNT_X") == ["a", "b"]
    assert wanted_fields("+c", ("a", "b"), "GNT_X") == ["a", "b", "c"]
    monkeypatch.setenv("GNT_X", "z,y")
    assert wanted_fields(None, ("a",), "GNT_X") == ["z", "y"]
    assert wanted_fields("+c", ("a",), "GNT_X") == ["z", "y", "c"]
    assert wanted_fields("c,d", ("a",), "GNT_X") == ["c", "d"]


def test_names_and_filters_become_one_filter() -> None:
    assert wanted_filter("name", [], None) is None
    assert wanted_filter("name", ["a"], None) == ["|", ["==", "name", "a"]]
    assert wanted_filter("name", ["a == 1"], None) == ["=", "a", 1]
    assert wanted_filter("name", ["a"], "b") == ["&", ["|", ["==", "name", "a"]], ["?", "b"]]


def test_trees_are_indented() -> None:
    tree = [
        [
            ("Instance name", "web1"),
            ("Nodes", [[("primary", "n1"), ("group", "g")], [("secondaries", "")]]),
            ("Tags", []),
            ("Parameters", {"a": True, "b": None}),
            ("List", ["x", "y"]),
        ]
    ]
    assert tree_lines(tree) == [
        "- Instance name: web1",
        "  Nodes: ",
        "    - primary: n1",
        "      group: g",
        "    - secondaries: ",
        "  Tags: ",
        "  Parameters: ",
        "    a: True",
        "    b: None",
        "  List: ",
        "    - x",
        "    - y",
    ]


def test_parameters_that_are_not_set_show_their_default() -> None:
    assert or_default({"b": 2}, {"b": 2, "a": 1}) == {"a": "default (1)", "b": 2}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "separator", "is_coloured"),
    [
        ({"TERM": "xterm"}, None, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, None, False),
        ({"TERM": "dumb"}, None, False),
        ({"TERM": "xterm"}, ";", False),
    ],
)
def test_only_on_a_terminal_headings_and_errors_stand_out(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    separator: str | None,
    is_coloured: bool,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    rows = [[[0, "web1"], [0, "running"]], [[0, "web2\x1b[1m"], [0, "ERROR_down"]]]
    fields = [
        {"name": name, "title": name.title(), "kind": "text", "doc": ""}
        for name in ("name", "status")
    ]
    answer = {"fields": fields, "data": rows}

    class Client:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_error: object) -> None:
            pass

        def query(self, *_args: object) -> dict[str, Any]:
            return answer

    monkeypatch.setattr(objects, "LuxiClient", Client)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    args = argparse.Namespace(
        output=None, no_headers=False, separator=separator, units=None, verbose=0, is_json=False
    )
    kind = objects.ObjectKind(query="instance", listed=("name", "status"))
    assert objects.print_list(args, kind) == 0
    heading, fine, wrong = terminal.getvalue().splitlines()
    assert heading.startswith("\x1b[1m") == is_coloured
    assert wrong.startswith("\x1b[31m") == is_coloured
    assert "\x1b" not in fine
    assert "web2\\x1b[1m" in wrong
