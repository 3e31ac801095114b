"""`hsqueeze`: plan which nodes to switch off or on for the required free capacity."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.base.terminal import say
from ganeti.cli import placement_input as source
from ganeti.cli import placement_options as options
from ganeti.cli.command import EXIT_FAILURE, option

if TYPE_CHECKING:  # numpy takes longer to load than `--help` may
    from ganeti.placement.squeeze import Plan
    from ganeti.placement.state import State

Jobs = list[list[dict[str, Any]]]
"""Jobs that can run concurrently, each a list of opcodes."""


def hsqueeze(args: argparse.Namespace) -> int:
    """Print the nodes, one a line."""
    from ganeti.placement.squeeze import idle_candidates, plan, room_for, standby_nodes

    source.check_execution(args)
    state = source.state_of(source.load(args), args)
    source.save(state, args.save, "original", "before hsqueeze run", sys.stderr)
    if options.verbosity(args) > 1:
        say(f"Offline candidates: {_names(state, idle_candidates(state))}")
        say(f"Online candidates: {_names(state, standby_nodes(state))}")
    policy = state.cluster.policy
    found = plan(state, room_for(policy, args.minimal), room_for(policy, args.target))
    if not args.no_headers:
        say(f"'{found.action}'")
    for node in found.nodes:
        say(state.nodes[node].name)
    if not found.suffices:
        # Without -v only names are on standard output, for scripts.
        out = sys.stdout if options.verbosity(args) > 1 else sys.stderr
        say("Onlining all nodes will not yield enough capacity", file=out)
    if args.commands is not None:
        _show_commands(state, found, args.commands)
    source.save(found.after, args.save, "squeezed", "after hsqueeze run", sys.stderr)
    return _execute(state, found, args) if args.execute and found.nodes else 0


def _names(state: "State", nodes: Sequence[int]) -> str:
    return ",".join(state.nodes[node].name for node in nodes)


def _show_commands(state: "State", found: "Plan", path: str) -> None:
    lines = _commands(state, found)
    if not path:
        say("\nCommands to run:", *(f"  {line}" if line else "" for line in lines), sep="\n")
        return
    try:
        Path(path).write_text("\n".join(["#!/bin/sh", "set -e", *lines, ""]), encoding="utf-8")
    except OSError as err:
        raise PrereqError(f"cannot write the commands: {err}", ErrorCode.ENVIRONMENT) from err
    say(f"The commands have been written to file '{path}'")


def _commands(state: "State", found: "Plan") -> list[str]:
    from ganeti.placement.squeeze import STANDBY_AUTO, Action

    names = [state.nodes[node].name for node in found.nodes]
    moves = _move_commands(state, found)
    if found.action is Action.NONE:
        return ["echo Nothing to do"]
    if found.action is Action.ONLINE:
        power = [f"  gnt-node power -f on {name}" for name in names]
        back = [f"  gnt-node modify --offline=no {name}" for name in names]
        return ["echo Power Commands", *power, *back, *moves]
    tags = [f"  gnt-node add-tags {name} {STANDBY_AUTO}" for name in names]
    away = [f"  gnt-node modify --offline=yes {name}" for name in names]
    power = [f"  gnt-node power -f off {name}" for name in names]
    return [*moves, "", "echo Tagging Commands", *tags, "", "echo Power Commands", *away, *power]


def _move_commands(state: "State", found: "Plan") -> list[str]:
    from ganeti.placement.moves import commands, job_sets

    lines = []
    for number, steps in enumerate(job_sets(found.steps), 1):
        lines += ["", f"echo jobset {number}, {len(steps)} jobs"]
        for place, step in enumerate(steps, 1):
            lines.append(f"  echo job {number}/{place}")
            lines += [f"  gnt-instance {one}" for one in commands(state, step.move)]
    return lines


def _stages(state: "State", found: "Plan") -> list[tuple[str, Jobs]]:
    """Return the stages in order, each with its name and its jobs."""
    from ganeti.placement.moves import job_sets, opcodes
    from ganeti.placement.squeeze import STANDBY_AUTO, Action

    names = [state.nodes[node].name for node in found.nodes]
    leaves = found.action is Action.OFFLINE
    roles = [
        {"OP_ID": "OP_NODE_SET_PARAMS", "node_name": name, "offline": leaves, "auto_promote": leaves}
        for name in names
    ]  # fmt: skip
    tags = [
        {"OP_ID": "OP_TAGS_SET", "kind": "node", "name": name, "tags": [STANDBY_AUTO]}
        for name in names
    ]
    moves: list[tuple[str, Jobs]] = [
        ("moving instances", [opcodes(state, step.move) for step in steps])
        for steps in job_sets(found.steps)
    ]
    # The nodes change their roles one after the other: each may have to promote another master candidate.
    if leaves:
        return [
            *moves,
            ("tagging nodes", [[one] for one in tags]),
            ("marking nodes offline", [roles]),
        ]
    return [("marking nodes online", [roles]), *moves]


def _execute(state: "State", found: "Plan", args: argparse.Namespace) -> int:
    """Submit the jobs of each stage and follow them; stops at the first stage that fails."""
    from ganeti.cli.jobs import submit_many
    from ganeti.cli.stoppable_jobs import follow_until_stopped

    for what, jobs in _stages(state, found):
        with source.luxi_client(args.luxi) as client:
            answers = submit_many(client, [[_annotated(one) for one in job] for job in jobs])
            ids = [int(answer) for is_accepted, answer in answers if is_accepted]
            ends, is_stopped = follow_until_stopped(
                client, lambda: source.luxi_client(args.luxi), ids
            )
        refused = [str(answer) for is_accepted, answer in answers if not is_accepted]
        failed = [
            f"job {job}: {end}" for job, end in zip(ids, ends, strict=True) if end != "success"
        ]
        if refused or failed or is_stopped:
            why = "; ".join([*failed, *refused]) or "stopped, as asked"
            say(
                f"{what}: {why}. See 'gnt-job info'; the following steps were not started",
                file=sys.stderr,
            )
            return EXIT_FAILURE
        say(f"{what}: {len(jobs)} {'job' if len(jobs) == 1 else 'jobs'} done")
    return 0


def _annotated(opcode: dict[str, Any]) -> dict[str, Any]:
    import time

    reason = ["hsqueeze", "hsqueeze called", time.time_ns()]
    return {**opcode, "comment": "hsqueeze", "reason": [reason]}


TOOL = options.Tool(
    "hsqueeze",
    "Show which nodes to switch off or on, so that the nodes have the required free capacity.",
    (
        options.LUXI, options.TEXT_DATA,
        option("-X", "--exec", dest="execute", action="store_true",
               help="execute the plan (with -L): move instances, tag nodes and mark them offline, or the reverse; the power is not switched"),
        option("--minimal-resources", dest="minimal", type=float, default=2.0, metavar="FACTOR",
               help="reactivate nodes if a node has space for fewer standard instances than this (2)"),
        option("--target-resources", dest="target", type=float, default=2.0, metavar="FACTOR",
               help="release nodes while each remaining node has space for this many standard instances (2)"),
        options.SAVE,
        option("-C", "--print-commands", dest="commands", nargs="?", const="", metavar="FILE",
               help="show the commands of the solution, or write them to FILE; power commands need out-of-band programs"),
        options.VERBOSE, options.NO_HEADERS, options.STATIC_MEMORY,
    ),
    hsqueeze,
    text="A node can be switched off if it is online, is not the master, and has only instances that can move to any node"
    " (on shared storage or without disks). Offline nodes with a tag that begins with htools:standby are switched on in"
    " their order until every node has the required capacity after balancing.",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program."""
    return TOOL.run(argv)


if __name__ == "__main__":
    sys.exit(main())
