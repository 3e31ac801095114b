"""`hbal`: show or execute the moves that balance a cluster."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.terminal import say
from ganeti.cli import placement_input as source
from ganeti.cli import placement_options as options
from ganeti.cli.command import EXIT_FAILURE, option

if TYPE_CHECKING:  # numpy takes longer to load than `--help` may
    from ganeti.placement.balance import Goals
    from ganeti.placement.moves import Step
    from ganeti.placement.state import Bools, State

PRIORITIES = {"low": 10, "normal": 0, "high": -10}


def hbal(args: argparse.Namespace) -> int:
    """Balance one group."""
    from ganeti.placement.balance import balance
    from ganeti.placement.digits import digits, short
    from ganeti.placement.score import best_possible, score

    if args.priority not in (None, *PRIORITIES):
        raise InputError(f"Unknown priority {args.priority!r:.40}; use low, normal or high")
    source.check_execution(args)
    state = source.state_of(source.load(args), args)
    wanted = goals(args, state)
    if options.verbosity(args) > 1:
        say(f"Loaded cluster tags: {','.join(state.cluster.tags)}")
    if not state.names:
        say("Cluster is empty, exiting.")
        return 0
    say(f"Loaded {len(state.nodes)} nodes, {len(state.names)} instances")
    source.note_domain(state, args, 1)
    source.save(state, args.save, "original", "before balancing")
    scope = source.group_scope(state, args.group)
    _introduce(state, scope, args)
    _warn_of_policies(state, scope, force=args.ignore_soft_errors)
    source.print_state(state, args, "Initial cluster", scope)
    before = state.copy()
    first = score(state, scope)
    if options.verbosity(args) > 2:  # noqa: PLR2004 - upstream's level
        source.print_coefficients(state, scope)
    else:
        say(f"Initial score: {digits(first)}")
    best = best_possible(state, scope)
    if first - best < args.min_score:
        say(f"Cluster is already well balanced (initial score {short(first)},\noptimum score due to N+1"
              f" reservations {short(best)},\nminimum score {short(args.min_score)}).\nNothing to do, exiting")  # fmt: skip
        return 0
    say("Trying to minimize the CV...")
    steps: list[Step] = []
    for step in balance(state, wanted, scope):
        steps.append(step)
        say(_line(before, step, len(steps), scope), flush=True)
    _conclude(state, steps, first, args)
    source.save(state, args.save, "balanced", "after balancing")
    source.print_state(state, args, "Final cluster", scope)
    return _execute(state, steps, args) if args.execute and steps else 0


def goals(args: argparse.Namespace, state: "State") -> "Goals":
    """Return the limits that the options set; InputError for an unknown instance."""
    from ganeti.placement.balance import Goals
    from ganeti.placement.candidates import Options

    def instances(text: str) -> list[str]:
        return source.resolved(state.names, source.split_names(text), "Unknown instance(s)")

    return Goals(
        options=Options(
            disk_moves=not args.no_disk_moves,
            instance_moves=not args.no_instance_moves,
            restricted_migration=getattr(args, "restricted", False),
            ignore_soft_errors=args.ignore_soft_errors,
        ),
        max_moves=args.max_length,
        min_score=args.min_score,
        min_gain=args.min_gain,
        min_gain_limit=args.min_gain_limit,
        only_evacuate=args.evacuate,
        selected=instances(args.selected),
        excluded=instances(args.excluded),
    )


def _introduce(state: "State", scope: "Bools", args: argparse.Namespace) -> None:
    inside = scope[state.primary]
    say(f"Group size {int(scope.sum())} nodes, {int(inside.sum())} instances")
    group = state.groups[state.group[scope.argmax()]].name if scope.any() else args.group
    say(f"Selected node group: {group}")
    split = (state.secondary >= 0) & (state.group[state.primary] != state.group[state.secondary])
    if split.any() and options.verbosity(args) > 1:
        say("Found instances belonging to multiple node groups:", file=sys.stderr)
        for index in split.nonzero()[0]:
            say(f"  {state.names[index]}", file=sys.stderr)
        say("These instances will not be moved.", file=sys.stderr)
    bad = scope & state.fails & ~state.offline
    touched = bad[state.primary] | (bad[state.secondary] & (state.secondary >= 0))
    if options.verbosity(args) >= 1:
        say(f"Initial check done: {int(bad.sum())} bad nodes, {int(touched.sum())} bad instances.")
    if bad.any():
        say(
            "Cluster is not N+1 happy, continuing but no guarantee that the cluster will end N+1 happy."
        )


def _warn_of_policies(state: "State", scope: "Bools", *, force: bool) -> None:
    """Warn that nodes violate their policy, which leaves few possible moves."""
    from ganeti.placement.score import above_policy

    above = scope & ~(state.fails & ~state.offline) & above_policy(state)
    if not above.any():
        return
    say(f"The cluster contains {int(above.sum())} policy-violating nodes.")
    say("Continuing, ignoring soft errors." if force else
        "Continuing, but the set of moves might be too restricted; consider using the"
        " --ignore-soft-errors option.")  # fmt: skip


def _line(before: "State", step: "Step", number: int, scope: "Bools") -> str:
    from ganeti.placement.digits import digits
    from ganeti.placement.moves import steps_text

    def shown(nodes: tuple[int, int]) -> str:
        return ":".join(before.alias(before.nodes[node].name) for node in nodes if node >= 0)

    mine = [
        before.alias(name)
        for name, node in zip(before.names, before.primary, strict=True)
        if scope[node]
    ]
    width = max(len(name) for name in mine)
    pair = 2 * max(len(before.alias(before.nodes[node].name)) for node in scope.nonzero()[0]) + 1
    name = before.alias(before.names[step.move.instance])
    return (
        f"  {number:3}. {name:<{width}} {shown(step.before):<{pair}} => {shown(step.after):<{pair}}"
        f" {digits(step.move.score):>12} a={steps_text(before, step.move)}"
    )


def _conclude(state: "State", steps: "list[Step]", first: float, args: argparse.Namespace) -> None:
    from ganeti.placement.digits import digits
    from ganeti.placement.moves import job_sets

    if steps:
        say(f"Cluster score improved from {digits(first)} to {digits(steps[-1].move.score)}")
    else:
        say("No solution found")
    if options.verbosity(args) >= 1:
        say(f"Solution length={len(steps)}")
    if args.commands is None:
        return
    sets = job_sets(steps)[: 1 if args.first_group else None]
    lines = _commands(state, sets)
    if not args.commands:
        say(
            "\nCommands to run to reach the above solution:",
            *(f"  {one}" for one in lines),
            sep="\n",
        )
        return
    try:
        Path(args.commands).write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
    except OSError as err:
        raise PrereqError(f"cannot write the commands: {err}", ErrorCode.ENVIRONMENT) from err
    say(f"The commands have been written to file '{args.commands}'")


def _commands(state: "State", sets: "list[list[Step]]") -> list[str]:
    from ganeti.placement.moves import commands

    lines = []
    for number, steps in enumerate(sets, 1):
        lines += ["", f"echo jobset {number}, {len(steps)} jobs"]
        for place, step in enumerate(steps, 1):
            lines.append(f"  echo job {number}/{place}")
            lines += [f"  gnt-instance {one}" for one in commands(state, step.move)]
    return lines


def _execute(state: "State", steps: "list[Step]", args: argparse.Namespace) -> int:
    """Submit each move as a job that waits for earlier moves of its nodes, and follow all jobs."""
    from ganeti.cli.jobs import submit_many
    from ganeti.placement.moves import dependencies, job_sets, opcodes

    if args.first_group:
        steps = job_sets(steps)[0]
    jobs = []
    for number, (step, needed) in enumerate(zip(steps, dependencies(steps), strict=True)):
        depends = [[one - number, ["success"]] for one in needed]
        jobs.append([_annotated(one, depends, args) for one in opcodes(state, step.move)])
        for one in jobs[-1][1:]:
            one.pop("depends", None)
    with source.luxi_client(args.luxi) as client:
        answers = submit_many(client, jobs)
        status, is_stopped = _followed(client, args, answers)
    if is_stopped:
        say("Exiting early, as asked.", file=sys.stderr)
    for step, (is_accepted, what), how in zip(steps, answers, status, strict=True):
        name = state.names[step.move.instance]
        say(f"job {what if is_accepted else '-'} for {name}: {how}")
    return 0 if all(how == "success" for how in status) else EXIT_FAILURE


def _annotated(
    opcode: dict[str, Any], depends: list[Any], args: argparse.Namespace
) -> dict[str, Any]:
    import time

    reason = ["hbal", args.reason or "hbal called", time.time_ns()]
    noted = {**opcode, "comment": "rebalancing via hbal", "reason": [reason], "depends": depends}
    return noted | ({"priority": PRIORITIES[args.priority]} if args.priority else {})


def _followed(
    client: Any, args: argparse.Namespace, answers: Sequence[tuple[bool, Any]]
) -> tuple[list[str], bool]:
    """Return the end or the refusal of each job, and whether a signal stopped them."""
    from ganeti.cli.stoppable_jobs import follow_until_stopped

    ids = [int(what) for is_accepted, what in answers if is_accepted]
    ends, is_stopped = follow_until_stopped(client, lambda: source.luxi_client(args.luxi), ids)
    how = dict(zip(ids, ends, strict=True))
    return [
        how[int(what)] if is_accepted else f"refused: {what}" for is_accepted, what in answers
    ], is_stopped


TOOL = options.Tool(
    "hbal",
    "Balance a cluster: show or execute the moves that lower its score.",
    (
        *(options.PRINT_NODES, options.PRINT_INSTANCES),
        option("-C", "--print-commands", dest="commands", nargs="?", const="", metavar="FILE",
                       help="show the commands of the solution, or write them to FILE"),
        *options.BACKENDS,
        option("-X", "--exec", dest="execute", action="store_true",
                       help="execute the moves as jobs (with -L)"),
        option("--first-job-group", dest="first_group", action="store_true",
                       help="execute only the first set of jobs"),
        option("--reason", metavar="REASON", help="reason, stored with the jobs"),
        option("--priority", metavar="PRIO", help="priority of the jobs: low, normal or high"),
        option("--restricted-migration", dest="restricted", action="store_true",
                       help="migrate only instances on offline or drained nodes"),
        options.GROUP, options.VERBOSE, options.QUIET, options.SAVE, *options.BALANCING,
    ),
    hbal,
    text="Steps of a move: f failover or migration, r:NODE new secondary node, fa:NODE migration to NODE. SIGINT or SIGTERM"
    " during -X cancels waiting jobs and waits for running jobs; a second signal exits at once.",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program."""
    return TOOL.run(argv)


if __name__ == "__main__":
    sys.exit(main())
