"""Options for the back end that stores the cluster's state."""

import argparse

from ganeti.base.state_kinds import STATE_KINDS, ExternalServers
from ganeti.cli.command import option

STATE_OPTIONS = (
    option("--state", choices=tuple(STATE_KINDS),
           help="store of the state: " + ", or ".join(one.summary for one in STATE_KINDS.values())),
    option("--state-urls", metavar="URL,...",
           help="use the servers at these URLs, which an administrator runs, instead of one on each candidate"),
    option("--state-authority", metavar="FILE",
           help="file on every candidate with the certificate authorities of these servers"),
    option("--state-credentials", metavar="FILE",
           help="file on every candidate with a user and a password for these servers, one a line"),
)  # fmt: skip


def external_servers(args: argparse.Namespace) -> ExternalServers | None:
    """Return the servers of the options, or None; raise InputError."""
    if not args.state_urls:
        return None
    external = ExternalServers(
        tuple(args.state_urls.split(",")), args.state_authority or "", args.state_credentials or ""
    )
    external.check()
    return external
