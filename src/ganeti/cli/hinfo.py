"""`hinfo`: shows a cluster as the placement commands see it."""

import argparse
import sys
from collections.abc import Sequence

from ganeti.base.terminal import say
from ganeti.cli import placement_input as source
from ganeti.cli import placement_options as options


def hinfo(args: argparse.Namespace) -> int:
    """Print what the cluster has, and what its score is made of."""
    from ganeti.placement.digits import digits
    from ganeti.placement.score import components, everywhere, score

    cluster = source.load(args)
    state = source.state_of(cluster, args)
    say(f"Loaded cluster tags: {','.join(cluster.tags)}")
    groups = len(state.groups)
    word = "node group" if groups == 1 else "node groups"
    say(f"Loaded {len(state.nodes)} nodes, {len(state.names)} instances, {groups} {word}")
    split = (state.secondary >= 0) & (state.group[state.primary] != state.group[state.secondary])
    if split.any():
        say(f"Instances split over node groups: {int(split.sum())}")
    bad = state.fails & ~state.offline
    say("Cluster is N+1 unhappy" if bad.any() else "Cluster is N+1 happy")
    source.print_state(state, args, "Cluster", everywhere(state))
    say("Cluster coefficients:", *source.components(components(state)), sep="\n")
    say(f"Cluster score: {digits(score(state))}")
    return 0


TOOL = options.Tool(
    "hinfo",
    "Shows the state of a cluster.",
    (
        *(options.PRINT_NODES, options.PRINT_INSTANCES, *options.BACKENDS, options.VERBOSE),
        *(options.QUIET, options.OFFLINE, options.IGNORE_LOAD, options.STATIC_MEMORY),
        *options.MONITORING,
    ),
    hinfo,
)


def main(argv: Sequence[str] | None = None) -> int:
    """The program."""
    return TOOL.run(argv)


if __name__ == "__main__":
    sys.exit(main())
