"""`ganeti-cluster-merge`: merges other clusters into this one, by ssh, in steps that can be rolled back."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from ganeti import __version__
from ganeti.base.errors import GanetiError
from ganeti.base.paths import Paths
from ganeti.base.terminal import Parser, say
from ganeti.config.merging.plan import Choice, Part, SameName


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 1 after a failure, 13 without a confirmation."""
    args = parser().parse_args(argv)
    if args.on_node:
        from ganeti.bootstrap.merge.on_node import on_node  # noqa: PLC0415 - heavy, and help needs none of it

        return on_node()
    from ganeti.bootstrap.merge.session import merge_clusters  # noqa: PLC0415 - a node that answers needs no ssh

    try:
        return asyncio.run(merge_clusters(args, Paths.from_environment()))
    except GanetiError as err:
        say(f"Failure: {err.message}", file=sys.stderr)
        return err.exit_code
    except OSError as err:
        # Only before the first step and after the last one: a failure within a step is rolled back.
        say(f"Failure: {err.filename or 'this host'}: {err.strerror or err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        say("Interrupted. Run the command again to continue, or with --rollback.", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = Parser(
        prog="ganeti-cluster-merge",
        description=(
            "Merge other clusters into the cluster of this master. Their instances are stopped "
            "meanwhile."
        ),
        epilog=(
            "Until the first node is added, a failure rolls everything back. A killed merge "
            "continues when this is run without CLUSTER, or is rolled back with --rollback."
        ),
    )
    made.add_argument(
        "clusters", nargs="*", metavar="CLUSTER", help="name or address of another cluster's master"
    )
    made.add_argument("--dry-run", action="store_true", help="show the plan and change nothing")
    made.add_argument(
        "--rollback", action="store_true", help="roll back the merge that is in progress"
    )
    made.add_argument(
        "--without", action="append", default=[], metavar="NODE",
        help="continue or roll back without a lost node of another cluster; may be repeated",
    )  # fmt: skip
    made.add_argument("-f", "--force", action="store_true", help="skip the confirmation prompt")
    made.add_argument(
        "--parameters", default="", metavar="CHOICE,PART=CHOICE,...",
        help=(
            f"how to resolve differences: {', '.join(Choice)}, for all or for one of "
            f"{', '.join(Part)} (default: strict)"
        ),
    )  # fmt: skip
    for kind in ("group", "network"):
        made.add_argument(
            f"--{kind}s", default=SameName.STRICT.value, choices=[one.value for one in SameName],
            help=f"action for a {kind} whose name exists in the local cluster (default: strict)",
        )  # fmt: skip
        made.add_argument(
            f"--{kind}", action="append", default=[], metavar="[CLUSTER/]NAME=NEW",
            help=f"the new name of a {kind}; the name of a local one merges the two; may be repeated",
        )  # fmt: skip
    _add_import_options(made)
    made.add_argument(
        "--shutdown-timeout", type=int, default=120, metavar="SECONDS",
        help="time that guests have to shut down (default: 120)",
    )  # fmt: skip
    made.add_argument(
        "--ssh-port",
        type=int,
        default=22,
        metavar="PORT",
        help="port of sshd on the other nodes (default: 22)",
    )
    made.add_argument(
        "--key-types", default="ed25519,rsa,ecdsa,dsa", metavar="TYPE,...",
        help="types of root's key on the other masters, in the order of preference",
    )  # fmt: skip
    made.add_argument(
        "--known-hosts",
        default="",
        metavar="FILE",
        help="file with accepted host keys, instead of root's",
    )
    made.add_argument(
        "--no-ssh-key-check", dest="check_host_key", action="store_false",
        help="accept the first host key that a node presents, and only this key from then on",
    )  # fmt: skip
    made.add_argument(
        "--password-stdin", action="store_true",
        help="read root's passwords from standard input, a line for each cluster",
    )  # fmt: skip
    made.add_argument("--on-node", action="store_true", help=argparse.SUPPRESS)
    made.add_argument("--version", action="version", version=f"%(prog)s (ganeti) {__version__}")
    return made


def _add_import_options(made: argparse.ArgumentParser) -> None:
    """The options of `gnt-cluster import`, for clusters of upstream Ganeti."""
    made.add_argument(
        "--keep-unknown", action="store_true",
        help="for a cluster of upstream Ganeti: drop what is not supported instead of refusing it",
    )  # fmt: skip
    made.add_argument(
        "--rename", action="append", default=[], metavar="KIND:OLD=NEW",
        help="for a cluster of upstream Ganeti: replace an invalid name; may be repeated",
    )  # fmt: skip
    made.add_argument(
        "--hypervisor", action="append", default=[], metavar="OLD=NEW",
        help="for a cluster of upstream Ganeti: replace a hypervisor that is not supported",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
