"""`hinfo`: show a cluster as the placement commands read it."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ganeti.base.terminal import say
from ganeti.cli import placement_input as source
from ganeti.cli import placement_options as options

if TYPE_CHECKING:  # numpy takes longer to load than `--help` may
    from ganeti.placement.state import State


def hinfo(args: argparse.Namespace) -> int:
    """Print the groups, nodes and instances, and the components of the score."""
    from ganeti.placement.digits import digits
    from ganeti.placement.score import components, everywhere, score

    cluster = source.load(args)
    state = source.state_of(cluster, args)
    say(f"Loaded cluster tags: {','.join(cluster.tags)}")
    is_verbose = options.verbosity(args) > 1
    if is_verbose and not state.names:
        say("Cluster is empty.")
    counts = (
        (len(state.nodes), "node"),
        (len(state.names), "instance"),
        (len(state.groups), "node group"),
    )
    say(
        "Loaded",
        ", ".join(f"{number} {what}{'' if number == 1 else 's'}" for number, what in counts),
    )
    source.note_domain(state, args, 2)
    split = (state.secondary >= 0) & (state.group[state.primary] != state.group[state.secondary])
    if split.any():
        say("Found instances belonging to multiple node groups:")
        names = [state.alias(state.names[index]) for index in split.nonzero()[0]]
        say(*(f"  {name}" for name in names), sep="\n", file=sys.stderr)
    elif is_verbose:
        say("No split instances found")
    if is_verbose:
        say("Node group information:", *(f"   {line}" for line in _groups(state)), sep="\n")
    bad = state.fails & ~state.offline
    say("Cluster is N+1 unhappy" if bad.any() else "Cluster is N+1 happy")
    source.print_state(state, args, "Cluster", everywhere(state))
    say("Cluster coefficients:", *source.components(components(state)), sep="\n")
    say(f"Cluster score: {digits(score(state))}")
    return 0


def _groups(state: "State") -> list[str]:
    """Return a table of the groups with their sizes, N+1 violations and scores."""
    from ganeti.placement.digits import digits
    from ganeti.placement.report import table
    from ganeti.placement.score import group_scope, score

    titles = ("Group", "Nodes", "Instances", "Bad_Nodes", "Bad_Instances", "N+1", "Score")
    rows = []
    for number, group in enumerate(state.groups):
        scope = group_scope(state, number)
        if not scope.any():
            continue
        bad = scope & state.fails & ~state.offline
        touched = bad[state.primary] | (bad[state.secondary] & (state.secondary >= 0))
        inside = scope[state.primary]
        sizes = (scope.sum(), inside.sum(), bad.sum(), (touched & inside).sum())
        happy = str(not bad.any())
        rows.append([group.name, *map(str, sizes), happy, digits(score(state, scope))])
    return table(titles, rows, (False, True, True, True, True, False, True))


TOOL = options.Tool(
    "hinfo",
    "Show the state of a cluster.",
    (
        *(options.PRINT_NODES, options.PRINT_INSTANCES, *options.BACKENDS, options.VERBOSE),
        *(options.QUIET, options.OFFLINE, options.IGNORE_LOAD, options.STATIC_MEMORY),
        *options.MONITORING,
    ),
    hinfo,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program."""
    return TOOL.run(argv)


if __name__ == "__main__":
    sys.exit(main())
