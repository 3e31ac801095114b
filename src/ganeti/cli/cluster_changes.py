"""The commands of gnt-cluster that change a running cluster."""

import argparse
import sys
import time

from ganeti.base.errors import InputError
from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable, option
from ganeti.cli.jobs import run_given, run_opcode
from ganeti.cli.key_values import duration_s
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import FORCE, JOB_OPTIONS, JSON, QUERY_JOB_OPTIONS
from ganeti.cli.output import format_time, print_json
from ganeti.cli.state_options import STATE_OPTIONS
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument

MODIFY = OpOptions("cluster.OpClusterSetParams")


def add_change_commands(table: CommandTable) -> None:
    """Add the commands that change a running cluster to the table."""
    tracked = option(
        "--max-tracked-jobs",
        metavar="N",
        help="ignored; kept for compatibility with Ganeti 3",
    )
    table.command("modify", MODIFY, tracked, *STATE_OPTIONS, FORCE, *JOB_OPTIONS)(modify)
    table.command(
        "search-tags",
        Argument("pattern", "regular expression"),
        JSON,
        OpOptions("tags.OpTagsSearch"),
        *QUERY_JOB_OPTIONS,
    )(search_tags)
    table.command(
        "watcher",
        Argument("action", "pause, continue or info"),
        Argument("duration", "for pause: duration, for example 30m or 2h", nargs="?"),
        JSON,
    )(watcher)


def modify(args: argparse.Namespace) -> int:
    """Change the cluster's parameters.

    Parameters without an option keep their values. A hypervisor, a disk template or a directory of disks that
    an instance uses cannot be removed.

    `--state` moves the state of the running cluster to another back end. Run it on the master. No job runs
    during the move; guests keep running. After a failure the command can be repeated.
    """
    from ganeti.cli.cluster_state import move_state

    given = MODIFY.given(args)
    if args.max_tracked_jobs is not None:
        say("--max-tracked-jobs has no effect: the scheduler looks at all jobs.", file=sys.stderr)
    elif not (given or args.state):
        raise InputError(
            "nothing to change: pass at least one option; --help lists them", "options"
        )
    move_state(args)
    if given:
        run_opcode(MODIFY.kind(**given, force=args.force), args)
    return 0


def search_tags(args: argparse.Namespace) -> int:
    """Find tags by a regular expression; print the object's path and the tag, one pair a line."""
    from ganeti.cli.command import EXIT_FAILURE

    found = run_given(args)
    if args.is_json:
        print_json([{"path": path, "tag": tag} for path, tag in found])
        return 0 if found else EXIT_FAILURE
    for path, tag in found:
        say(path, tag)
    return 0 if found else EXIT_FAILURE


def watcher(args: argparse.Namespace) -> int:
    """Pause the watcher for some time (pause), resume it (continue), or show its state (info)."""
    with LuxiClient() as client:
        if args.action == "pause":
            if args.duration is None:
                raise InputError("pass a duration, for example 'watcher pause 30m'", "duration")
            until = client.call("SetWatcherPause", time.time() + duration_s(args.duration))
            say(f"The watcher is paused until {format_time(until)}.")
        elif args.action == "continue":
            client.call("SetWatcherPause", None)
            say("The watcher is no longer paused.")
        elif args.action == "info":
            until = client.config_values("watcher_pause")[0]
            if args.is_json:
                return print_json({"paused_until": until})
            state = "not paused" if until is None else f"paused until {format_time(until)}"
            say(f"The watcher is {state}.")
        else:
            raise InputError(f"{args.action!r:.40} must be pause, continue or info", "action")
    return 0
