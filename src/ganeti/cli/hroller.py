"""`hroller`: plan which nodes can be rebooted together."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ganeti.base.errors import InputError, PrereqError
from ganeti.base.terminal import say
from ganeti.cli import placement_input as source
from ganeti.cli import placement_options as options
from ganeti.cli.command import option

if TYPE_CHECKING:  # numpy takes longer to load than `--help` may
    from ganeti.placement.clearing import TemporaryNodes
    from ganeti.placement.state import State


def hroller(args: argparse.Namespace) -> int:
    """Print the groups of nodes, one a line."""
    import numpy as np

    from ganeti.placement.rolling import non_redundant, reboot_groups

    state = source.state_of(source.load(args), args)
    _check_master(state, force=args.force)
    nodes = ~state.offline
    if args.group is not None:
        nodes &= source.group_scope(state, args.group)
    if args.node_tags:
        wanted = set(args.node_tags.split(","))
        nodes &= np.array([bool(wanted & set(one.tags)) for one in state.nodes], dtype=bool)
    if args.skip_alone:
        nodes &= ~non_redundant(state)
    if not nodes.any():
        raise InputError("Cannot create node graph: the options leave no node to reboot")
    groups = reboot_groups(state, nodes, is_offline=args.is_offline)
    needs_no_moves = args.is_offline or (args.ignore_alone and not args.full)
    steps = (
        [(group, []) for group in groups] if needs_no_moves else _with_moves(state, groups, args)
    )
    if not args.no_headers:
        say("'First Reboot Group'" if args.one_step else "'Node Reboot Groups'")
    for group, moves in steps[:1] if args.one_step else steps:
        say(*(state.nodes[node].name for node in group), sep="\n" if args.one_step else ",")
        for index, *places in moves if args.print_moves else ():
            names = (state.nodes[node].name for node in places if node >= 0)
            say(f"  {state.names[index]} {' '.join(names)}")
    source.save(state, args.save, "hroller", "after hroller", sys.stderr)
    return 0


def _check_master(state: "State", *, force: bool) -> None:
    masters = [node.name for node in state.nodes if node.is_master]
    if len(masters) > 1:
        raise InputError(f"Found more than one master node: {', '.join(masters)}")
    if not masters:
        what = "No master node found (maybe not supported by backend)"
        if not force:
            raise InputError(f"{what}; pass -f to continue without one")
        say(f"Warning: {what}.", file=sys.stderr)


def _with_moves(
    state: "State", groups: list[list[int]], args: argparse.Namespace
) -> "list[tuple[list[int], list[TemporaryNodes]]]":
    """Return the groups with the moves that empty them; a group is smaller if other nodes lack space."""
    from ganeti.placement.clearing import split_by_room

    try:
        return split_by_room(state, groups, full=args.full)
    except PrereqError as err:
        raise PrereqError(
            f"{err.message}; see --skip-non-redundant, --ignore-non-redundant and --offline-maintenance",
            err.code,
        ) from None


TOOL = options.Tool(
    "hroller",
    "Show which nodes can be rebooted together.",
    (
        *options.BACKENDS, options.OFFLINE, options.VERBOSE, options.QUIET, options.NO_HEADERS, options.GROUP,
        options.SAVE,
        option("--node-tags", dest="node_tags", metavar="TAG,...", help="plan only nodes with one of these tags"),
        option("--offline-maintenance", dest="is_offline", action="store_true",
                       help="assume that all instances are down during the maintenance"),
        option("--skip-non-redundant", dest="skip_alone", action="store_true",
                       help="skip nodes with instances without a secondary node"),
        option("--ignore-non-redundant", dest="ignore_alone", action="store_true",
                       help="ignore instances without a secondary node"),
        option("--print-moves", dest="print_moves", action="store_true",
                       help="show below each group the temporary primary and secondary nodes of its instances"),
        option("--full-evacuation", dest="full", action="store_true",
                       help="move all instances from the nodes, including those that can fail over"),
        option("--one-step-only", dest="one_step", action="store_true",
                       help="show only the first group, one node a line"),
        option("-f", "--force", action="store_true", help="continue without a master node"),
    ),
    hroller,
    text="The nodes of one line are never primary and secondary of the same instance, and their instances do not fail over"
    " to the same node. The master is last. Instances without a secondary node must move first, regardless of soft"
    " limits; the free space for them limits the size of a group. The exit code is 1 if no node can be rebooted.",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program."""
    return TOOL.run(argv)


if __name__ == "__main__":
    sys.exit(main())
