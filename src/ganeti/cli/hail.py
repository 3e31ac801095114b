"""`hail`: the built-in allocator as a program with the interface of allocators (seed 004)."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ganeti.base.terminal import say
from ganeti.cli import placement_options as options
from ganeti.cli.command import option
from ganeti.cli.input_file import read_input
from ganeti.model.operation import Argument

if TYPE_CHECKING:  # numpy takes longer to load than `--help` may
    from ganeti.placement.answers import Request
    from ganeti.placement.description import Cluster
    from ganeti.placement.places import Rules
    from ganeti.placement.state import State

RESTRICT = option(
    "--restrict-allocation-to",
    dest="only_nodes",
    metavar="NODE,...",
    help="allocate only on these nodes",
)
EXPLAIN = option(
    "--explain",
    action="store_true",
    help="show why the other nodes were not chosen, by reason (on standard error); -v names every node",
)


def hail(args: argparse.Namespace) -> int:
    """Answer the request; return 0 for every answer, 1 if the request cannot be read."""
    from ganeti.base.structs import msgspec
    from ganeti.cli import placement_input
    from ganeti.placement.load.message import read
    from ganeti.placement.places import Rules
    from ganeti.placement.small.answer import quick_answer

    cluster, request = read(read_input(args.message_file), args.message_file)
    if options.verbosity(args) > 1:
        say(f"Received request: {msgspec.json.encode(request).decode()}", file=sys.stderr)
    if args.text:
        cluster = placement_input.text_cluster(args.text)
    elif args.simulate:
        cluster = placement_input.simulated_cluster(args.simulate)
    else:
        cluster = placement_input.with_static_memory(cluster, args.static_memory)
    cluster = placement_input.monitored(cluster, args)
    known = [node.name for node in cluster.nodes]
    only = placement_input.split_names(args.only_nodes)
    rules = Rules(
        capacity=not args.no_capacity,
        ignore_soft_errors=args.ignore_soft_errors,
        only_nodes=frozenset(placement_input.resolved(known, only, "Unknown node(s)"))
        if only
        else None,
    )
    needs_state = args.explain or args.save or args.print_nodes is not None or args.ignore_load
    found = None if needs_state else quick_answer(cluster, request, rules)
    if found is None:
        _answer_from_arrays(cluster, request, rules, args)
    else:
        sys.stdout.write(f"{msgspec.json.encode(found).decode()}\n")
    return 0


def _answer_from_arrays(
    cluster: "Cluster", request: "Request", rules: "Rules", args: argparse.Namespace
) -> None:
    from ganeti.base.structs import msgspec
    from ganeti.placement.answers import Settings, answered, explanation, state_of

    settings = Settings(rules=rules, ignore_load=args.ignore_load)
    before = state_of(cluster, settings)
    after = before.copy()
    _show(before, args, "pre-ialloc", "before iallocator run", "Initial cluster")
    found = answered(after, request, settings)
    sys.stdout.write(f"{msgspec.json.encode(found).decode()}\n")
    if args.explain:
        from ganeti.model.reasons import table

        reasons = explanation(before, request, settings, found["result"])
        for line in table(reasons, names_all=options.verbosity(args) > 1):
            say(line, file=sys.stderr)
    _show(after, args, "post-ialloc", "after iallocator run", "Final cluster")


def _show(state: "State", args: argparse.Namespace, suffix: str, when: str, title: str) -> None:
    from ganeti.cli import placement_input

    placement_input.print_nodes(state, args, title, sys.stderr)
    placement_input.save(state, args.save, suffix, when, sys.stderr)


TOOL = options.Tool(
    "hail",
    "Choose nodes for instances, as an allocator.",
    (
        *(options.PRINT_NODES, options.SAVE, options.TEXT_DATA, options.SIMULATE, options.VERBOSE),
        *(options.IGNORE_LOAD, options.SOFT_ERRORS, options.NO_CAPACITY, RESTRICT, EXPLAIN),
        options.STATIC_MEMORY,
        *options.MONITORING,
    ),
    hail,
    (
        Argument(
            "message_file",
            "file with the request to the allocator; '-' is standard input",
            completion="file",
        ),
    ),
    "The answer is a JSON object on standard output with success, info and result. If no node fits, info has the"
    " first rule that excludes each node. The exit code is 0 for every answer, and 1 if the request cannot be read."
    " -S saves the cluster before and after the decision to FILE.pre-ialloc and FILE.post-ialloc.",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program."""
    return TOOL.run(argv)


if __name__ == "__main__":
    sys.exit(main())
