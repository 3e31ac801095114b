"""`hail`: the built-in allocator as a program, called as any allocator is (seed 004)."""

import argparse
import json
import sys
from collections.abc import Sequence

from ganeti.cli import placement_options as options
from ganeti.cli.command import Argument, option
from ganeti.cli.placement_input import read_file

RESTRICT = option(
    "--restrict-allocation-to",
    dest="only_nodes",
    metavar="NODE,...",
    help="allocate only on these nodes",
)


def hail(args: argparse.Namespace) -> int:
    """Answer the message; 0 even if the answer is no."""
    import msgspec

    from ganeti.base.errors import InputError
    from ganeti.cli import placement_input
    from ganeti.placement.allocate import Rules
    from ganeti.placement.answers import Settings, answer_request, refusal
    from ganeti.placement.load.message import read
    from ganeti.placement.load.text import parse

    try:
        cluster, request = read(read_file(args.message_file))
    except InputError as err:
        sys.stdout.write(f"{json.dumps(refusal(err.message))}\n")
        return 0
    if args.text:
        cluster = parse(read_file(args.text).decode())
    elif args.simulate:
        cluster = placement_input.simulated_cluster(args.simulate)
    cluster = placement_input.monitored(cluster, args)
    only = frozenset(args.only_nodes.split(",")) if args.only_nodes else None
    rules = Rules(
        capacity=not args.no_capacity,
        ignore_soft_errors=args.ignore_soft_errors,
        only_nodes=only,
    )
    settings = Settings(rules=rules, ignore_load=args.ignore_load)
    found, state = answer_request(cluster, request, settings)
    if state is not None:
        placement_input.save(state, args.save, "pre-ialloc", "before iallocator run", sys.stderr)
        placement_input.print_nodes(state, args, "Initial cluster", sys.stderr)
    sys.stdout.write(f"{msgspec.json.encode(found).decode()}\n")
    return 0


TOOL = options.Tool(
    "hail",
    "Allocator: answers where instances go.",
    (
        *(options.PRINT_NODES, options.SAVE, options.TEXT_DATA, options.SIMULATE, options.VERBOSE),
        *(options.IGNORE_LOAD, options.SOFT_ERRORS, options.NO_CAPACITY, RESTRICT),
        *options.MONITORING,
    ),
    hail,
    (
        Argument(
            "message_file", "the allocator's message; '-' is standard input", completion="file"
        ),
    ),
    "The answer is JSON on standard output: success, info, result. For a node that was not chosen because"
    " no place was found, info has the first rule that excluded it.",
)


def main(argv: Sequence[str] | None = None) -> int:
    """The program."""
    return TOOL.run(argv)


if __name__ == "__main__":
    sys.exit(main())
