"""gnt-instance top and gnt-node top: the present figures, the busiest first, again and again."""

import argparse
import os
import select
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from ganeti.base.errors import InputError
from ganeti.base.terminal import Style, redraw, say
from ganeti.cli.command import CommandTable, option
from ganeti.cli.options import INSTANCES, JSON, NODES
from ganeti.cli.output import format_table, print_json, wanted_filter
from ganeti.clients.luxi import LuxiClient
from ganeti.model.figures import SAMPLE_S

NORMAL = 0
SHORTEST_S, LONGEST_S = 1.0, 3600.0
"""Bounds of the interval."""
_PREFIX = "usage."
_UNITS = ("", "K", "M", "G", "T", "P")
_STEP = 1024
_MIB = 1024 * 1024
_WHOLE = 100


class Column(NamedTuple):
    """A column of figures; `key` sorts by it while the command runs."""

    figure: str
    title: str
    key: str
    scale: int = 0
    """Bytes in a unit of the figure; 0 for a plain number."""


COLUMNS = (
    Column("cpu", "CPU%", "c"),
    Column("memory", "Memory", "m", _MIB),
    Column("disk_read", "Read/s", "r", 1),
    Column("disk_write", "Write/s", "w", 1),
    Column("disk_reads", "Reads", "R"),
    Column("disk_writes", "Writes", "W"),
    Column("net_in", "In/s", "i", 1),
    Column("net_out", "Out/s", "o", 1),
)
NAME_KEY, QUIT_KEY = "n", "q"
SORTS = ("name", *(one.figure for one in COLUMNS))


class Objects(NamedTuple):
    """The objects of one command."""

    kind: str
    title: str
    place: str
    """A field beside the name."""
    place_title: str


_INSTANCES = Objects("instance", "Instance", "pnode", "Node")
_NODES = Objects("node", "Node", "group", "Group")

_OPTIONS = (
    option("--sort", metavar="FIGURE", choices=SORTS, default="cpu",
           help=f"figure to sort by: {', '.join(SORTS)} (cpu)"),
    option("--once", action="store_true", help="print the figures once, and exit"),
    option("--interval", metavar="SECONDS", type=float, default=float(SAMPLE_S),
           help=f"time between two updates ({SAMPLE_S}); nodes measure every {SAMPLE_S} s"),
    option("-F", "--filter", metavar="FILTER",
           help="show only objects that match, as in the list command"),
    JSON,
)  # fmt: skip

_HELP = f"""\

The command updates the figures until {QUIT_KEY} or Ctrl-C. Keys choose the figure to sort by: \
{", ".join(f"{one.key} ({one.figure})" for one in COLUMNS)}, {NAME_KEY} (name). CPU% is 100 for one busy processor of \
the node. Memory is what the node gives. Reads and Writes are requests per second; they are unknown for guests whose \
disks are files. Without a terminal, or with --once or --json, the command prints the figures once."""


def add_instance_top(table: CommandTable) -> None:
    """Add the command about instances."""

    def top(args: argparse.Namespace) -> int:
        return _run(args, _INSTANCES)

    top.__doc__ = (
        "Show processor, memory, disk and network of running instances, the busiest first.\n"
        + _HELP
    )
    table.command("top", INSTANCES, *_OPTIONS)(top)


def add_node_top(table: CommandTable) -> None:
    """Add the command about nodes."""

    def top(args: argparse.Namespace) -> int:
        return _run(args, _NODES)

    top.__doc__ = "Show processor, memory, disk and network of nodes, the busiest first.\n" + _HELP
    table.command("top", NODES, *_OPTIONS)(top)


def _run(args: argparse.Namespace, of: Objects) -> int:
    if not SHORTEST_S <= args.interval <= LONGEST_S:
        raise InputError(f"must be between {SHORTEST_S:g} and {LONGEST_S:g} seconds", "--interval")
    filter_ = wanted_filter("name", args.names, args.filter)
    with LuxiClient() as client:
        if args.is_json:
            return print_json(sorted_rows(_asked(client, of, filter_), args.sort))
        if args.once or not sys.stdout.isatty():
            for line in lines(sorted_rows(_asked(client, of, filter_), args.sort), of):
                say(line)
            return 0
        _watch(client, of, filter_, args)
    return 0


def _asked(client: LuxiClient, of: Objects, filter_: list[Any] | None) -> list[dict[str, Any]]:
    """Return the objects that have figures now."""
    figures = [one.figure for one in COLUMNS]
    fields = ["name", of.place, *(_PREFIX + one for one in figures)]
    answer = client.query(of.kind, fields, filter_)
    names = ["name", of.place, *figures]
    rows = [
        {
            name: value if status == NORMAL else None
            for name, (status, value) in zip(names, row, strict=True)
        }
        for row in answer["data"]
    ]
    return [row for row in rows if any(row[one] is not None for one in figures)]


def sorted_rows(rows: list[dict[str, Any]], sort: str) -> list[dict[str, Any]]:
    """Return rows by a figure, the greatest first and unknown ones last, or by name."""

    def key(row: Mapping[str, Any]) -> tuple[float, str]:
        value = None if sort == "name" else row[sort]
        return (-value if value is not None else float(sort != "name"), row["name"])

    return sorted(rows, key=key)


def lines(rows: list[dict[str, Any]], of: Objects) -> list[str]:
    """Return the table, with its headings."""
    headings = [of.title, of.place_title, *(one.title for one in COLUMNS)]
    cells = [
        [row["name"], str(row[of.place]), *(shown(row[one.figure], one) for one in COLUMNS)]
        for row in rows
    ]
    return format_table(headings, cells, right=[False, False, *[True] * len(COLUMNS)])


def shown(value: float | None, column: Column) -> str:
    """Return a figure for people: `-` for an unknown one."""
    if value is None:
        return "-"
    if column.figure == "cpu":
        return f"{value * 100:.0f}"
    if not column.scale:
        return f"{value:.0f}"
    size, units = float(value * column.scale), list(_UNITS)
    while size >= _STEP and len(units) > 1:
        size /= _STEP
        del units[0]
    digits = 1 if units[0] and size < _WHOLE else 0
    return f"{size:.{digits}f}{units[0]}"


def _watch(
    client: LuxiClient, of: Objects, filter_: list[Any] | None, args: argparse.Namespace
) -> None:
    """Show the figures until a key or Ctrl-C ends it."""
    import shutil  # takes a fiftieth of the start of a command

    sort = args.sort
    keys = {one.key: one.figure for one in COLUMNS} | {NAME_KEY: "name"}
    with _keys() as pressed:
        rows = _asked(client, of, filter_)
        due = time.monotonic() + args.interval
        while True:
            size = shutil.get_terminal_size()
            found = lines(sorted_rows(rows, sort), of)
            head = (
                f"{time.strftime('%H:%M:%S')}  {len(rows)} {of.kind}s by {sort}; {QUIT_KEY} quits"
            )
            screen = [line[: size.columns] for line in (head, *found)][: max(size.lines - 1, 2)]
            redraw([(line, Style.HEADING if at == 1 else None) for at, line in enumerate(screen)])
            key = pressed(max(0.0, due - time.monotonic()))
            if key == QUIT_KEY:
                return
            if key is None:
                rows = _asked(client, of, filter_)
                due = time.monotonic() + args.interval
            sort = keys.get(key or "", sort)


@contextmanager
def _keys() -> Iterator[Any]:
    """Return a function that waits for a key; None after the time, the end of input counts as the last key."""
    import termios
    import tty

    stdin = sys.stdin.fileno()
    if not os.isatty(stdin):
        yield _nothing
        return
    before = termios.tcgetattr(stdin)

    def pressed(wait_s: float) -> str | None:
        if not select.select([stdin], [], [], wait_s)[0]:
            return None
        return os.read(stdin, 1).decode("ascii", "replace") or QUIT_KEY

    try:
        tty.setcbreak(stdin)
        yield pressed
    except KeyboardInterrupt:
        pass  # the way to end it
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def _nothing(wait_s: float) -> None:
    """Wait; there is no keyboard."""
    time.sleep(wait_s)
