"""gnt-cluster webhook."""

import argparse
import secrets

from ganeti.base.errors import InputError
from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable, option
from ganeti.cli.errors import JobSubmitted
from ganeti.cli.objects import ObjectKind, shown
from ganeti.cli.options import JOB_OPTIONS, LIST_OPTIONS, VERBOSE
from ganeti.cli.output import format_time, print_json
from ganeti.cli.rule_commands import Rules
from ganeti.clients.fields import WEBHOOK
from ganeti.model.operation import Argument

SECRET_BYTES = 32
SECRET_FILE = option(
    "--secret-file", metavar="FILE", completion="file",
    help="read the secret of the signatures from this file, or from standard input for '-'; add without it makes one",
)  # fmt: skip
CA_FILE = option(
    "--ca-file", metavar="FILE", completion="file",
    help="verify the receiver by the certificates (PEM) in this file, or in standard input for '-', which the cluster"
         " stores; an empty word: by the authorities of the master's system (the default)",
)  # fmt: skip


def _words(values: list[str] | None) -> str:
    return ", ".join(values or ()) or "all"


def _time(value: float | None) -> str:
    return "-" if value is None else format_time(value)


def _authorities(pem: str | None) -> str:
    count = (pem or "").count("-----BEGIN CERTIFICATE-----")
    return f"its own certificates ({count})" if count else "those of the master's system"


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
        shown("  Authorities", "authorities", value=_authorities),
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


RULES = Rules("webhook", "gnt-cluster webhook", "webhooks.OpWebhook", WEBHOOK_KIND)


def add_webhook_commands(table: CommandTable) -> None:
    """Add the command webhook."""
    table.command(
        "webhook",
        Argument("action", "add, modify, remove, pause, resume, test, list or info"),
        Argument("webhook_name", "name of the webhook", nargs="?", completion="webhook"),
        RULES.params,
        SECRET_FILE,
        CA_FILE,
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

    Redirects are not followed. The certificate must be valid for the authorities of the master's system, or for those of
    --ca-file, which replace them. The cluster stores their certificates, so every master has them. Loopback and
    link-local addresses are refused without --allow-local=yes. 'gnt-cluster verify' reports a webhook that has failed
    for an hour.
    """
    if args.secret_file and args.action not in ("add", "modify"):
        raise InputError("is only for add and modify", "secret-file")
    if args.ca_file is not None and args.action not in ("add", "modify"):
        raise InputError("is only for add and modify", "ca-file")
    if args.ca_file == args.secret_file == "-":
        raise InputError("only one of --ca-file and --secret-file can be standard input", "ca-file")
    return RULES.act(args, {"add": _add, "modify": _modify, "test": _test})


def _ca(args: argparse.Namespace) -> dict[str, str]:
    """Return the certificates of the file, or none for an empty word."""
    if args.ca_file is None:
        return {}
    from ganeti.cli.input_file import read_text

    return {"authorities": read_text(args.ca_file) if args.ca_file else ""}


def _secret(args: argparse.Namespace) -> dict[str, str]:
    """Return the secret from the file, if there is one; it never is a word of the command line."""
    if not args.secret_file:
        return {}
    from ganeti.cli.input_file import read_text

    return {"secret": read_text(args.secret_file).strip()}


def _add(args: argparse.Namespace) -> int:
    given = _secret(args)
    made = "" if given else secrets.token_urlsafe(SECRET_BYTES)
    try:
        RULES.run(
            args, "Add", **RULES.params.given(args), **_ca(args), **(given or {"secret": made})
        )
    except JobSubmitted:
        _show(args, made)
        raise
    _show(args, made)
    return 0


def _show(args: argparse.Namespace, made: str) -> None:
    """Show a secret that the command has made, once."""
    if made and not args.dry_run:
        say(f"Secret of webhook {args.webhook_name}, which is not shown again: {made}")


def _modify(args: argparse.Namespace) -> int:
    RULES.run(args, "SetParams", **RULES.params.given(args), **_ca(args), **_secret(args))
    return 0


def _test(args: argparse.Namespace) -> int:
    result = RULES.run(args, "Test")
    if args.is_json:
        return print_json(result)
    if result:
        say(f"Webhook {args.webhook_name}: status {result['status']} in {result['seconds']:.3f} s")
    return 0
