"""gnt-cluster console-link: a login link for the web console."""

import argparse
import socket

from ganeti.base.addresses import address_of_environment
from ganeti.base.errors import InputError
from ganeti.base.paths import RAPI_PORT
from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable, option
from ganeti.cli.key_values import duration_s
from ganeti.cli.options import JSON
from ganeti.cli.output import print_json
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import ROLES

_FULL_ROLE = "write"


def add_console_commands(table: CommandTable) -> None:
    """Add the command about the web console to the table."""
    table.command(
        "console-link",
        option("--user", metavar="NAME",
               help="log in as this user of the users file, with the user's rights"),
        option("--role", choices=tuple(ROLES), help="log in without a user, with this role (write)"),
        option("--life", metavar="TIME", default="10m",
               help="time in which the link must be used: up to 1h (default: 10m)"),
        option("--port", type=int, default=RAPI_PORT, metavar="PORT",
               help=f"port of the REST server ({RAPI_PORT})"),
        JSON,
    )(console_link)  # fmt: skip


def console_link(args: argparse.Namespace) -> int:
    """Print a link that logs a browser in to the web console once.

    The part after `#` is a secret that the browser does not send in the address. The link is valid once, for a few
    minutes, and only while the master daemon runs. The session of a link without `--user` has the name `link:ROLE`.
    """
    role = "" if args.user else args.role or _FULL_ROLE
    if args.user and args.role:
        raise InputError(
            "--user and --role exclude each other: a user has the role of the users file"
        )
    life_s = duration_s(args.life)
    with LuxiClient() as client:
        secret = client.call("MakeLoginLink", args.user or "", role, life_s)
        info = client.call("QueryClusterInfo")
    # In a virtual cluster the REST server listens only at the address of its node.
    host = address_of_environment() or _reachable(info["name"], info["master_ip"])
    address = f"https://{host}:{args.port}/ui/#login={secret}"
    if args.is_json:
        print_json({"address": address, "user": args.user or f"link:{role}", "life_s": life_s})
    else:
        say(address)
    return 0


def _reachable(name: str, address: str) -> str:
    """Return the cluster's name if it has the master's address, or else the address."""
    try:
        if any(found[4][0] == address for found in socket.getaddrinfo(name, None)):
            return name
    except OSError:
        pass
    return f"[{address}]" if ":" in address else address
