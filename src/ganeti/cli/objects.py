"""Declarations of the kinds of objects, and the commands that show them."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ganeti.base.terminal import Style, say
from ganeti.cli.command import Command, CommandTable
from ganeti.cli.errors import EXIT_UNKNOWN_FIELD
from ganeti.cli.options import FIELD_NAMES, JSON, LIST_OPTIONS, TABLE_OPTIONS
from ganeti.cli.output import (
    KIND_NAMES,
    Tree,
    list_lines,
    print_json,
    print_objects,
    print_rows,
    print_tree,
    wanted_fields,
    wanted_filter,
)
from ganeti.clients.fields import BY_KIND, with_memory
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument


class Shown(NamedTuple):
    """One line of `info`, or several lines below one label."""

    label: str
    fields: tuple[str, ...]
    value: Callable[..., Tree]
    """Return the text after the label from the values of the fields; None omits an optional line."""
    is_optional: bool


def shown(
    label: str, *fields: str, value: Callable[..., Tree] = lambda one: one, optional: bool = False
) -> Shown:
    """Return a line of `info`; without `value` it shows one field unchanged."""
    return Shown(label, fields, value, optional)


def described(lines: Iterable[Shown], found: Mapping[str, Any]) -> list[tuple[str, Tree]]:
    """Return the tree of `info` for one object; a field that an older master does not know is None."""
    values = [(one, one.value(*(found.get(name) for name in one.fields))) for one in lines]
    return [(one.label, value) for one, value in values if value is not None or not one.is_optional]


class ObjectKind(NamedTuple):
    """A kind of object for `list`, `list-fields` and `info`."""

    query: str
    """Name of the kind in queries."""
    listed: tuple[str, ...]
    """The fields that `list` shows by default."""
    variable: str = ""
    """The environment variable that replaces the default fields."""
    formats: Mapping[str, Callable[[Any], str]] = MappingProxyType({})
    """Formats of some fields in `list`; other fields are formatted by their kind."""
    names: Argument | None = None
    """Arguments of `list` and `info`."""
    key: str = "name"
    """The field that contains these names."""
    list_help: str = ""
    info_help: str = ""
    rows: str = ""
    """Name of the objects in LUXI, for `info`."""
    info: tuple[Shown, ...] = ()
    lines: Callable[[LuxiClient, dict[str, Any]], Iterable[str]] | None = None
    """Lines of `info` for one object, if they are not a tree."""
    more: tuple[str, ...] = ()
    """Further fields that `lines` needs."""
    json: tuple[str, ...] = ()
    """Fields of `info --json`; default: those of the REST interface."""

    def named(self, args: argparse.Namespace) -> list[str]:
        """Return the names on a command line."""
        found: list[str] = getattr(args, self.names.name) if self.names else []
        return found


def print_list(
    args: argparse.Namespace,
    kind: ObjectKind,
    filter_: list[Any] | None = None,
    *,
    default: Sequence[str] = (),
) -> int:
    """Query and show a list; exit code 14 if a field is unknown. `default` replaces the fields of the kind.

    As JSON, an object has the fields of REST unless -o names fields; a missing value is null.
    """
    default = default or kind.listed
    if args.is_json:
        fields = wanted_fields(args.output, BY_KIND.get(kind.query, default))
    else:
        fields = wanted_fields(args.output, default, kind.variable)
    with LuxiClient() as client:
        answer = client.query(kind.query, fields, filter_)
    unknown = [one["name"] for one in answer["fields"] if one["kind"] == "unknown"]
    if unknown:
        say(f"Warning: Queried for unknown fields {', '.join(unknown)}", file=sys.stderr)
    if args.is_json:
        names = [one["name"] for one in answer["fields"]]
        values = [[value for _status, value in row] for row in answer["data"]]
        objects = [dict(zip(names, row, strict=True)) for row in values]
        print_json([with_memory(one) for one in objects] if kind.query == "instance" else objects)
    else:
        lines = list_lines(args, answer, kind.formats)
        for line, style in zip(lines, _styles(args, answer), strict=True):
            say(line, keep=args.separator or "", style=style)
    return EXIT_UNKNOWN_FIELD if unknown else 0


def _styles(args: argparse.Namespace, answer: Mapping[str, Any]) -> Iterator[Style | None]:
    """Highlight the heading and rows with an error state; with a separator the text is plain."""
    is_plain = args.separator is not None
    if not args.no_headers:
        yield None if is_plain else Style.HEADING
    names = [one["name"] for one in answer["fields"]]
    states = [at for at, name in enumerate(names) if name == "status"]
    for row in answer["data"]:
        is_wrong = any(str(row[at][1]).upper().startswith("ERROR") for at in states)
        yield Style.WRONG if is_wrong and not is_plain else None


def add_list(table: CommandTable, kind: ObjectKind) -> None:
    """Add the commands list and list-fields of a kind whose objects are selected by name."""

    def list_objects(args: argparse.Namespace) -> int:
        return print_list(args, kind, wanted_filter(kind.key, kind.named(args), args.filter))

    more = [f"{kind.variable} in the environment replaces the default fields."] * bool(
        kind.variable
    )
    summary, *rest = kind.list_help.splitlines()
    doc = "\n\n".join([summary, " ".join([*rest, *more])])
    names = [kind.names] if kind.names else []
    table.add(Command("list", list_objects, (*names, *LIST_OPTIONS), doc=doc))
    add_list_fields(table, kind)


def add_list_fields(table: CommandTable, kind: ObjectKind) -> None:
    """Add the command list-fields."""

    @table.command("list-fields", FIELD_NAMES, *TABLE_OPTIONS)
    def list_fields(args: argparse.Namespace) -> int:
        """List the fields of the list command."""
        with LuxiClient() as client:
            found = client.query_fields(kind.query, args.fields)
        if args.is_json:
            print_json(found)
        else:
            rows = [
                [one["name"], KIND_NAMES.get(one["kind"], one["kind"]), one["title"], one["doc"]]
                for one in found
            ]
            print_rows(["Name", "Type", "Title", "Description"], rows, args)
        is_unknown = any(one["kind"] == "unknown" for one in found)
        return EXIT_UNKNOWN_FIELD if is_unknown else 0


def print_info(args: argparse.Namespace, kind: ObjectKind, names: Sequence[str]) -> int:
    """Show objects of a kind that LUXI gives as rows of fields; no names: all."""
    asked = [*(name for line in kind.info for name in line.fields), *kind.more]
    fields = (kind.json or BY_KIND[kind.query]) if args.is_json else list(dict.fromkeys(asked))
    with LuxiClient() as client:
        rows = client.rows(kind.rows, names, fields)
        if args.is_json:
            return print_objects(fields, rows)
        found = [dict(zip(fields, row, strict=True)) for row in rows]
        if kind.lines is None:
            print_tree([described(kind.info, one) for one in found])
            return 0
        for one in found:
            for line in kind.lines(client, one):
                say(line)
    return 0


def add_info(table: CommandTable, kind: ObjectKind) -> None:
    """Add the command info of a kind."""

    def info(args: argparse.Namespace) -> int:
        return print_info(args, kind, kind.named(args))

    names = [kind.names] if kind.names else []
    table.add(Command("info", info, (*names, JSON), ("show",), kind.info_help))
