"""gnt-filter: rules that decide which jobs may run."""

import argparse
import json
import time
from typing import Any, NoReturn

from ganeti.base.errors import InputError
from ganeti.base.terminal import escaped, say
from ganeti.cli.command import DEBUG, REASON, CommandTable, option
from ganeti.cli.key_values import whole_number
from ganeti.cli.objects import ObjectKind, add_info, add_list, described, shown
from ganeti.cli.options import VERBOSE
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument

table = CommandTable(
    "gnt-filter",
    "Create and remove job filters: rules that decide which jobs may run, and how many at a time.",
)

FILTER = Argument("uuid", "UUID of the filter", completion="filter")
OPTIONS = (
    option(
        "--priority",
        metavar="NUMBER",
        default="0",
        help="priority; filters are evaluated from 0 (the default) upwards",
    ),
    option(
        "--predicates",
        metavar="JSON",
        default="[]",
        help='conditions for a job, for example [["opcode", ["=", "OP_ID", "OP_INSTANCE_CREATE"]]];'
        " default: all jobs",
    ),
    option(
        "--action",
        metavar="ACTION",
        default="CONTINUE",
        help="action for a matching job: ACCEPT, PAUSE, REJECT, CONTINUE or 'RATE_LIMIT N'",
    ),
    REASON,
    VERBOSE,
    DEBUG,
)


def _as_json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _lines(_client: LuxiClient, rule: dict[str, Any]) -> list[str]:
    """Return the lines that upstream Ganeti prints for a filter."""
    head = [f"{label}: {value}" for label, value in described(FILTER_KIND.info, rule)]
    predicates = [f"    {escaped(json.dumps(one))}" for one in rule["predicates"]]
    reasons = [
        f"    {time.ctime(when / 1e9)} {escaped(source)}: {escaped(reason)}"
        for source, reason, when in rule["reason_trail"]
    ]
    *before, action = head
    return [*before, "  Predicates:", *predicates, action, "  Reason trail:", *reasons]


_FIELDS = ("uuid", "watermark", "priority", "predicates", "action", "reason_trail")
FILTER_KIND = ObjectKind(
    query="filter",
    rows="Filters",
    names=Argument("uuids", "UUIDs of filters", nargs="*", completion="filter"),
    key="uuid",
    listed=_FIELDS,
    formats=dict.fromkeys(("predicates", "action", "reason_trail"), _as_json),
    list_help="List job filters in the order of their evaluation.",
    info_help="Show job filters; default: all filters.",
    info=(
        shown("UUID", "uuid"),
        shown("  Watermark", "watermark"),
        shown("  Priority", "priority"),
        shown(
            "  Action",
            "action",
            value=lambda one: one if isinstance(one, str) else " ".join(map(str, one)),
        ),
    ),
    more=("predicates", "reason_trail"),
    lines=_lines,
    json=_FIELDS,
)
add_list(table, FILTER_KIND)
add_info(table, FILTER_KIND)


@table.command("add", *OPTIONS)
def add(args: argparse.Namespace) -> int:
    """Create a job filter, and print its UUID.

    Filters are evaluated in the order of their priorities. The first filter that matches a job and has an
    action other than CONTINUE decides. ACCEPT lets the job run. PAUSE keeps it in the queue. REJECT cancels it.
    RATE_LIMIT N keeps it in the queue while N matching jobs run. Running jobs are not affected.

    A predicate is the word jobid, opcode or reason, followed by a filter expression. The field of jobid is id.
    It can be compared with the word watermark: the greatest job id at the creation of the filter. The
    fields of opcode are OP_ID and the fields of the opcode. The predicate holds if one opcode of the job matches.
    The fields of reason are source, reason and timestamp. The predicate holds if one reason of one opcode
    matches. To keep all new jobs in the queue:
    --action=PAUSE '--predicates=[["jobid", [">", "id", "watermark"]]]'
    """
    say(_replace(None, args))
    return 0


@table.command("replace", FILTER, *OPTIONS)
def replace(args: argparse.Namespace) -> int:
    """Replace the contents and the watermark of a job filter, or create a filter with this UUID."""
    say(_replace(args.uuid, args))
    return 0


@table.command("delete", FILTER)
def delete(args: argparse.Namespace) -> int:
    """Remove a job filter; jobs that it held back may run."""
    with LuxiClient() as client:
        client.call("DeleteFilter", args.uuid)
    return 0


def _replace(uuid: str | None, args: argparse.Namespace) -> str:
    try:
        predicates = json.loads(args.predicates)
    except (ValueError, RecursionError) as err:
        raise InputError(f"is not JSON: {err}", "predicates") from err
    now_ns = time.time_ns()
    reasons: list[list[Any]] = [["gnt:user", args.reason, now_ns]] if args.reason else []
    reasons.append([f"gnt:client:{args.prog}", args.command, now_ns])
    priority, action = whole_number(args.priority, "priority"), _action(args.action)
    with LuxiClient() as client:
        return client.replace_filter(uuid, priority, predicates, action, reasons)


def _action(text: str) -> str | list[str | int]:
    word, space, number = text.strip().partition(" ")
    return [word, whole_number(number.strip(), "action")] if space else word


def main() -> NoReturn:
    """Run the program."""
    table.main()
