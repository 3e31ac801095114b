"""`hroller`: which nodes can be rebooted together."""

import argparse
import sys
from collections.abc import Sequence

from ganeti.base.errors import ErrorCode as Code
from ganeti.base.errors import InputError, PrereqError
from ganeti.cli import placement_input as source
from ganeti.cli import placement_options as options
from ganeti.cli.command import option


def hroller(args: argparse.Namespace) -> int:
    """Print the groups of nodes, a line each."""
    import numpy as np

    from ganeti.placement.rolling import non_redundant, reboot_groups

    state = source.state_of(source.load(args), args)
    if not any(node.is_master for node in state.nodes) and not args.force:
        raise InputError(
            "no master node found (perhaps the backend does not tell); -f goes on without", "data"
        )
    nodes = ~state.offline
    if args.group is not None:
        nodes &= source.group_scope(state, args.group)
    if args.node_tags:
        wanted = set(args.node_tags.split(","))
        nodes &= np.array([bool(wanted & set(one.tags)) for one in state.nodes], dtype=bool)
    alone = nodes & non_redundant(state)
    if args.skip_alone:
        nodes &= ~alone
    elif alone.any() and not (args.ignore_alone or args.is_offline):
        names = ", ".join(state.nodes[node].name for node in alone.nonzero()[0])
        raise PrereqError(
            f"these nodes have instances that cannot go elsewhere: {names}; see --skip-non-redundant,"
            " --ignore-non-redundant and --offline-maintenance",
            Code.WRONG_STATE,
        )
    groups = reboot_groups(state, nodes, is_offline=args.is_offline)
    if not args.no_headers:
        print("'Node Reboot Groups'")
    for group in groups[:1] if args.one_step else groups:
        print(",".join(state.nodes[node].name for node in group))
    source.save(state, args.save, "hroller", "after hroller", sys.stderr)
    return 0


TOOL = options.Tool(
    "hroller",
    "Tells which nodes can be rebooted together.",
    (
        *options.BACKENDS, options.OFFLINE, options.VERBOSE, options.QUIET, options.NO_HEADERS, options.GROUP,
        options.SAVE,
        option("--node-tags", dest="node_tags", metavar="TAG,...", help="only nodes with one of the tags"),
        option("--offline-maintenance", dest="is_offline", action="store_true",
                       help="all instances are shut down meanwhile"),
        option("--skip-non-redundant", dest="skip_alone", action="store_true",
                       help="leave out nodes with instances that cannot go elsewhere"),
        option("--ignore-non-redundant", dest="ignore_alone", action="store_true",
                       help="take no notice of instances that cannot go elsewhere"),
        option("--one-step-only", dest="one_step", action="store_true", help="only the first group"),
        option("-f", "--force", action="store_true", help="go on without a master node"),
    ),
    hroller,
    text="Nodes of one line are not primary and secondary of one instance, and would not fail over to the same"
    " node. The master is last.",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """The program."""
    return TOOL.run(argv)


if __name__ == "__main__":
    sys.exit(main())
