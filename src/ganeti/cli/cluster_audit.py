"""`gnt-cluster audit`: requests for changes, and the changes of jobs, from the logs of this node."""

import argparse
import json
import pwd
import time
from collections import deque
from collections.abc import Iterator
from heapq import merge
from pathlib import Path
from typing import Any

from ganeti.base.errors import ConfigurationError
from ganeti.base.paths import Paths
from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable, option
from ganeti.cli.key_values import duration_s
from ganeti.cli.output import format_table, format_time

WHY_LIMIT = 160
HEADINGS = ("Time", "User", "From", "What", "Status", "Jobs", "Why")
AUDIT_OPTIONS = (
    option("--user", metavar="NAME", help="show only records of this user"),
    option(
        "--since",
        metavar="AGE",
        help="show only records of this period, for example 90m, 12h or 7d",
    ),
    option("--job", type=int, metavar="ID", help="show only the record of this job"),
    option(
        "-n", "--limit", type=int, default=100, metavar="N", help="show the last N records (100)"
    ),
    option("--json", action="store_true", dest="is_json", help="print the records, one a line"),
)


def add_audit_command(table: CommandTable) -> None:
    """Add the command to the table."""

    @table.command("audit", *AUDIT_OPTIONS)
    def audit(args: argparse.Namespace) -> int:
        """Show the requests for changes that this node received, by REST or commands, and the changes of each job."""
        return _show(args, time.time())


def _show(args: argparse.Namespace, now: float) -> int:
    """Print the records that match the options."""
    from ganeti.base.node_files import AUDIT_LOG, MASTER_AUDIT_LOG

    logs = Paths.from_environment().log
    found = merge(
        *(records(logs / name) for name in (AUDIT_LOG, MASTER_AUDIT_LOG)),
        key=lambda one: float(one["time"]),
    )
    since = None if args.since is None else now - duration_s(args.since, "since")
    wanted = deque(
        (one for one in found if _is_wanted(one, args, since)), maxlen=max(args.limit, 1)
    )
    if args.is_json:
        for one in wanted:
            say(json.dumps(one, ensure_ascii=True))
        return 0
    rows = [[_cell(one, name) for name in HEADINGS] for one in wanted]
    for line in format_table(list(HEADINGS), rows):
        say(line)
    return 0


def records(path: Path) -> Iterator[dict[str, Any]]:
    """Return every complete record, oldest first; ConfigurationError if a log cannot be read."""
    try:
        with path.open("rb") as file:
            for line in file:
                try:
                    found = json.loads(line)
                except ValueError:
                    continue
                if isinstance(found, dict) and isinstance(found.get("time"), int | float):
                    yield found
    except FileNotFoundError:
        return
    except OSError as err:
        raise ConfigurationError(f"cannot read {path}: {err.strerror}") from err


def _is_wanted(one: dict[str, Any], args: argparse.Namespace, since: float | None) -> bool:
    return (
        (args.user is None or args.user in (one.get("user"), _user_name(str(one.get("user", "")))))
        and (since is None or one["time"] >= since)
        and (args.job is None or args.job in one.get("jobs", ()))
    )


def _cell(one: dict[str, Any], heading: str) -> str:
    match heading:
        case "Time":
            return format_time(one["time"])
        case "From":
            return str(one.get("address", ""))
        case "What":
            return f"{one.get('method', '')} {one.get('path', '')}"
        case "Jobs":
            return ",".join(map(str, one.get("jobs", ()))) or "-"
        case "Why":
            return _shortened(str(one.get("why") or one.get("reason") or _differences(one) or "-"))
        case "User":
            return _user_name(str(one.get("user", "")))
    return str(one.get(heading.lower(), ""))


def _user_name(user: str) -> str:
    """Return the user name for `uid N` if this host knows it; names of REST users are unchanged."""
    kind, _, number = user.partition(" ")
    if kind != "uid" or not number.isdecimal():
        return user
    try:
        return pwd.getpwuid(int(number)).pw_name
    except (KeyError, OverflowError):
        return user


def _differences(one: dict[str, Any]) -> str:
    """Return a short description of a job's changes."""
    words = []
    for thing in one.get("objects", ()):
        found = thing.get("differences", {})
        if thing.get("change") == "changed":
            words += [
                f"{path}: {json.dumps(old)} -> {json.dumps(new)}"
                for path, (old, new) in found.items()
            ]
        else:
            words.append(str(thing.get("change")))
    return "; ".join(words)


def _shortened(text: str) -> str:
    return text if len(text) <= WHY_LIMIT else f"{text[:WHY_LIMIT]}…"
