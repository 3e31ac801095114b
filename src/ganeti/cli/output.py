"""Lists and trees on the terminal, in a form that scripts can read."""

import argparse
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ganeti.base.sizes import format_mib
from ganeti.base.terminal import escaped, say
from ganeti.protocols.query_language import both, names_filter, parse_filter

NORMAL, UNKNOWN, NO_DATA, UNAVAILABLE, OFFLINE = range(5)

_MARKS = {UNKNOWN: "??", NO_DATA: "?", UNAVAILABLE: "-", OFFLINE: "*"}
_WORDS = {
    UNKNOWN: "(unknown)",
    NO_DATA: "(nodata)",
    UNAVAILABLE: "(unavail)",
    OFFLINE: "(offline)",
}
KIND_NAMES = {
    "text": "Text",
    "bool": "Boolean",
    "number": "Number",
    "float": "Floating-point number",
    "unit": "Storage size",
    "timestamp": "Timestamp",
    "other": "Custom",
    "unknown": "Unknown",
}
_RIGHT = frozenset({"number", "unit", "float"})
_FILTER_MARKS = frozenset("=<>~!()\"' ")


def format_time(seconds: float) -> str:
    """Return a time as local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def format_value(value: Any, kind: str, units: str) -> str:
    """Return one value of a list, formatted by its kind."""
    if value is None:
        return "-"
    if kind == "bool" and isinstance(value, bool):
        return "Y" if value else "N"
    if kind == "unit" and isinstance(value, int | float):
        return format_mib(value, units)
    if kind == "timestamp" and isinstance(value, int | float):
        return format_time(value)
    if isinstance(value, list):
        return ",".join(format_value(one, kind, units) for one in value)
    if isinstance(value, dict):
        return ", ".join(f"{name}={one}" for name, one in value.items())
    return str(value)


def format_cell(status: int, value: Any, kind: str, units: str, *, is_verbose: bool) -> str:
    """Return the text of a value, or the placeholder of a missing value by its status."""
    if status == NORMAL:
        return value if isinstance(value, str) else format_value(value, kind, units)
    return (_WORDS if is_verbose else _MARKS).get(status, "?")


def format_table(
    headings: Sequence[str] | None,
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[bool] = (),
    separator: str | None = None,
) -> list[str]:
    """Return the lines of a table. Columns are padded unless there is a separator. No cell can break its line."""
    every = ([list(headings)] if headings is not None else []) + [
        [escaped(cell) for cell in row] for row in rows
    ]
    if separator is not None:
        return [separator.join(row) for row in every]
    if not every:
        return []
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    sides = [">" if at_right else "<" for at_right in right or [False] * len(widths)]
    form = " ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return [form.format(*row).rstrip() for row in every]


def wanted_fields(given: str | None, default: Sequence[str], variable: str = "") -> list[str]:
    """Return the fields of `-o`; `+` adds to the default, which an environment variable can set."""
    set_default = os.environ.get(variable) if variable else None
    fields = set_default.split(",") if set_default else list(default)
    if given is None:
        return fields
    if given.startswith("+"):
        return fields + given[1:].split(",")
    return given.split(",")


def wanted_filter(key: str, names: Sequence[str], given: str | None) -> list[Any] | None:
    """Return the filter of names and `-F`; a single argument is a filter if `-F` is empty or it has operators."""
    if len(names) == 1 and (given == "" or (given is None and _FILTER_MARKS & set(names[0]))):
        return parse_filter(names[0])
    return both(names_filter(key, list(names)), parse_filter(given) if given is not None else None)


def print_rows(
    headings: Sequence[str], rows: Sequence[Sequence[str]], args: argparse.Namespace
) -> None:
    """Show a table of texts in the form of TABLE_OPTIONS."""
    for line in format_table(None if args.no_headers else headings, rows, separator=args.separator):
        say(line, keep=args.separator or "")


def print_json(value: Any) -> int:
    """Print a value as ASCII JSON for `--json`; return 0 as the exit code."""
    say(json.dumps(value, indent=2))
    return 0


def print_objects(fields: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
    """Print rows of values as a JSON list of objects."""
    return print_json([dict(zip(fields, row, strict=True)) for row in rows])


def list_lines(
    args: argparse.Namespace, answer: Mapping[str, Any], overrides: Mapping[str, Any]
) -> list[str]:
    """Return the answer of a query as lines."""
    units = args.units or ("h" if args.separator is None else "m")
    fields = answer["fields"]

    def shown(field: Mapping[str, str], cells: Iterable[Sequence[Any]]) -> list[str]:
        own, kind, is_verbose = overrides.get(field["name"]), field["kind"], args.verbose > 0
        return [
            str(own(value))
            if own is not None and status == NORMAL
            else format_cell(status, value, kind, units, is_verbose=is_verbose)
            for status, value in cells
        ]

    columns = zip(*answer["data"], strict=True)
    shown_columns = [shown(*one) for one in zip(fields, columns, strict=bool(answer["data"]))]
    return format_table(
        None if args.no_headers else [field["title"] for field in fields],
        list(zip(*shown_columns, strict=True)),
        right=[field["kind"] in _RIGHT for field in fields],
        separator=args.separator,
    )


Tree = Any
"""A scalar, a list of trees, or a list of `(name, tree)` pairs or dictionary of trees."""


def tree_lines(tree: Tree, level: int = 0) -> list[str]:
    """Nested data as indented lines: `name: value`, and `- ` before the parts of a list."""
    indent = "  " * level
    if isinstance(tree, Mapping):
        tree = list(tree.items())
    lines: list[str] = []
    for item in tree:
        if isinstance(item, tuple):
            lines += _named_lines(item[0], item[1], level)
        elif isinstance(item, list | Mapping):
            inner = tree_lines(item, level + 1)
            lines += [f"{indent}- {inner[0].lstrip()}", *inner[1:]] if inner else []
        else:
            lines.append(f"{indent}- {escaped(str(item))}")
    return lines


def _named_lines(name: str, value: Tree, level: int) -> list[str]:
    indent, name = "  " * level, escaped(name)
    if isinstance(value, list | Mapping):
        return [f"{indent}{name}: ", *tree_lines(value, level + 1)]
    return [f"{indent}{name}: {escaped(_scalar(value))}"]


def _scalar(value: object) -> str:
    """Return a value as text; whole numbers have no fraction, as in upstream."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def print_tree(tree: Tree) -> None:
    """Show nested data."""
    for line in tree_lines(tree):
        say(line)


def or_default(own: Mapping[str, Any], actual: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters for `info`: set values plainly, others as `default (value)`."""
    return {name: own.get(name, f"default ({value})") for name, value in sorted(actual.items())}
