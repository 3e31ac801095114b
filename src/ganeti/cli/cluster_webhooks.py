"""gnt-cluster webhook."""

import argparse
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable, option
from ganeti.cli.jobs import run_opcode
from ganeti.cli.objects import ObjectKind, described, print_list, shown
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import JOB_OPTIONS, LIST_OPTIONS, VERBOSE
from ganeti.cli.output import format_time, print_json, print_objects, print_tree, wanted_filter
from ganeti.clients.fields import WEBHOOK
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument

PARAMS = OpOptions("webhooks.OpWebhookSetParams")
SECRET_BYTES = 32
SECRET_FILE = option(
    "--secret-file", metavar="FILE", completion="file",
    help="read the secret of the signatures from this file, or from standard input for '-'; add without it makes one",
)  # fmt: skip


def _words(values: list[str] | None) -> str:
    return ", ".join(values or ()) or "all"


def _time(value: float | None) -> str:
    return "-" if value is None else format_time(value)


def _yes(value: bool) -> str:  # noqa: FBT001 - a field
    return "yes" if value else "no"


WEBHOOK_KIND = ObjectKind(
    query="webhook",
    rows="Webhooks",
    listed=("name", "url", "kinds", "state", "last_success", "failures", "gaps"),
    info=(
        shown("Webhook", "name"),
        shown("  URL", "url"),
        shown("  Kinds of events", "kinds", value=_words),
        shown("  Names of objects", "names", value=_words),
        shown("  Tags of objects", "object_tags", value=_words),
        shown("  Groups", "groups", value=_words),
        shown("  Verifies TLS", "verify_tls", value=_yes),
        shown("  Allows local addresses", "allow_local", value=_yes),
        shown("  Owner", "owner"),
        shown("  State", "state"),
        shown("  Last success", "last_success", value=_time),
        shown("  Failing since", "failing_since", value=_time),
        shown("  Failures", "failures"),
        shown("  Last error", "error"),
        shown("  Gaps", "gaps"),
    ),
    json=WEBHOOK,
)


def add_webhook_commands(table: CommandTable) -> None:
    """Add the command webhook."""
    table.command(
        "webhook",
        Argument("action", "add, modify, remove, pause, resume, test, list or info"),
        Argument("webhook_name", "name of the webhook", nargs="?", completion="webhook"),
        PARAMS,
        SECRET_FILE,
        *(one for one in LIST_OPTIONS if one is not VERBOSE),
        *JOB_OPTIONS,
    )(webhook)


def webhook(args: argparse.Namespace) -> int:
    """Send events to other systems: webhooks, and what their receivers answer.

    A webhook sends changes of jobs and objects to --url as HTTP POST requests. add needs --url; without --secret-file it
    makes a secret and prints it once. --kinds, --names, --object-tags and --groups select events; an event fits if its
    kind fits, and if one of its objects has a fitting name, tag or group. modify changes the given options; an empty
    value, as in --names=, removes a condition. pause stops a webhook: its events are not sent later. resume continues
    with new events. test sends an event of the kind 'test' at once, and shows the result. list shows all webhooks, info
    also the last error.

    The body is a JSON object with 'cluster', 'webhook' and 'events', a list of objects with 'number', 'kind' and
    'content', as in GET /2/events of the REST interface. X-Ganeti-Signature is 'sha256=' and the HMAC-SHA256, in hex, of
    X-Ganeti-Timestamp, a full stop and the body, by the secret. A receiver compares it, refuses an old timestamp, and
    answers with a status from 200 to 299.

    Events come in their order. After any other answer, or none within 15 s, the same events are sent again after 5 s,
    30 s, 2 min, and then every 10 min. X-Ganeti-Delivery and the numbers of the events are then the same, as they are
    after a change of the master, which may send the events of the last 30 s again. If the log of events no longer has the
    next one, the receiver gets an event of the kind 'gap'.

    Redirects are not followed. The certificate must be valid for the authorities of the master's system. Loopback and
    link-local addresses are refused without --allow-local=yes. 'gnt-cluster verify' reports a webhook that has failed
    for an hour.
    """
    if args.action == "list":
        names = [args.webhook_name] if args.webhook_name else []
        return print_list(args, WEBHOOK_KIND, wanted_filter("name", names, args.filter))
    if args.action not in _ACTIONS:
        raise InputError(
            f"{args.action!r:.40} must be one of: list, {', '.join(_ACTIONS)}", "action"
        )
    if args.action not in ("add", "modify") and (PARAMS.given(args) or args.secret_file):
        raise InputError("options of a webhook are only for add and modify", "options")
    if args.action != "info" and not args.webhook_name:
        raise InputError("name the webhook; gnt-cluster webhook list shows all", "webhook_name")
    return _ACTIONS[args.action](args)


def _info(args: argparse.Namespace) -> int:
    names = [args.webhook_name] if args.webhook_name else []
    asked = dict.fromkeys(name for line in WEBHOOK_KIND.info for name in line.fields)
    fields = list(WEBHOOK) if args.is_json else list(asked)
    with LuxiClient() as client:
        rows = client.rows(WEBHOOK_KIND.rows, names, fields)
    if args.is_json:
        return print_objects(fields, rows)
    found = [dict(zip(fields, row, strict=True)) for row in rows]
    print_tree([described(WEBHOOK_KIND.info, one) for one in found])
    return 0


def _secret(args: argparse.Namespace) -> dict[str, str]:
    """Return the secret from the file, if there is one; it never is a word of the command line."""
    if not args.secret_file:
        return {}
    from ganeti.cli.input_file import read_text

    return {"secret": read_text(args.secret_file).strip()}


def _add(args: argparse.Namespace) -> int:
    given = _secret(args)
    if not given:
        given = {"secret": secrets.token_urlsafe(SECRET_BYTES)}
        if (
            not args.dry_run
        ):  # Before the job, so that it is not lost with --submit or a lost connection.
            say(
                f"Secret of webhook {args.webhook_name}, which is not shown again: {given['secret']}"
            )
    return _run(args, "Add", **PARAMS.given(args), **given)


def _modify(args: argparse.Namespace) -> int:
    return _run(args, "SetParams", **PARAMS.given(args), **_secret(args))


def _remove(args: argparse.Namespace) -> int:
    return _run(args, "Remove")


def _pause(args: argparse.Namespace) -> int:
    return _run(args, "SetParams", is_paused=True)


def _resume(args: argparse.Namespace) -> int:
    return _run(args, "SetParams", is_paused=False)


def _test(args: argparse.Namespace) -> int:
    result = _result(args, "Test")
    if args.is_json:
        return print_json(result)
    if result:
        say(f"Webhook {args.webhook_name}: status {result['status']} in {result['seconds']:.3f} s")
    return 0


def _run(args: argparse.Namespace, kind: str, **given: Any) -> int:
    _result(args, kind, **given)
    return 0


def _result(args: argparse.Namespace, kind: str, **given: Any) -> Any:
    op = OpOptions(f"webhooks.OpWebhook{kind}").kind
    return run_opcode(op(webhook_name=args.webhook_name, **given), args)


_ACTIONS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "add": _add,
    "modify": _modify,
    "remove": _remove,
    "pause": _pause,
    "resume": _resume,
    "test": _test,
    "info": _info,
}
