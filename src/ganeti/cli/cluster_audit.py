"""`gnt-cluster audit`: requests for changes, and the changes of jobs, from the logs of this node."""

import argparse
import json
import time
from typing import Any

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
    option("--about", metavar="NAME", help="show only records about the object of this name"),
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
    from ganeti.base.audit_file import AuditQuery, latest_records, merged, shown_user
    from ganeti.base.node_files import AUDIT_LOG, MASTER_AUDIT_LOG

    logs = Paths.from_environment().log
    query = AuditQuery(
        max(args.limit, 1),
        args.user,
        None if args.since is None else now - duration_s(args.since, "since"),
        args.job,
        args.about,
    )
    found = (latest_records(logs / name, query) for name in (AUDIT_LOG, MASTER_AUDIT_LOG))
    wanted = merged(found, query.limit)[::-1]
    if args.is_json:
        for one in wanted:
            say(json.dumps(one, ensure_ascii=True))
        return 0
    named = [{**one, "user": shown_user(one)} for one in wanted]
    rows = [[_cell(one, name) for name in HEADINGS] for one in named]
    for line in format_table(list(HEADINGS), rows):
        say(line)
    return 0


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
    return str(one.get(heading.lower(), ""))


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
