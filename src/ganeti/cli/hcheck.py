"""`hcheck`: check the health of a cluster and the effect of balancing."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ganeti.base.terminal import say
from ganeti.cli import placement_input as source
from ganeti.cli import placement_options as options
from ganeti.cli.command import EXIT_FAILURE, option
from ganeti.cli.hbal import goals

if TYPE_CHECKING:  # numpy takes longer to load than `--help` may
    from ganeti.placement.balance import Goals
    from ganeti.placement.check import Health
    from ganeti.placement.state import State


class _Found(NamedTuple):
    """The violations by group index and in the whole cluster."""

    groups: "dict[int, Health]"
    whole: "Health"


def hcheck(args: argparse.Namespace) -> int:
    """Check the cluster; if it has violations, balance a copy and check the copy."""
    state = source.state_of(source.load(args), args)
    wanted = goals(args, state)
    is_machine, is_human = str(args.machine) == "yes", options.verbosity(args) >= 1
    first = last = _checked(state, args)
    simulates = first.whole.is_bad and not args.no_simulation
    if simulates:
        last = _checked(_balanced(state, wanted), args)
    if is_machine:
        for number, one in enumerate(state.groups):
            say(f"HCHECK_GROUP_UUID_{number}='{one.uuid}'")
        _keys("HCHECK_INIT", first)
        _keys("HCHECK_FINAL", last)
        say("HCHECK_OK=1")
    elif is_human:
        say(_verdict(is_bad=first.whole.is_bad, simulates=not args.no_simulation))
        _lines("initially", state, first)
        if simulates:
            _lines("after rebalancing", state, last)
    return EXIT_FAILURE if simulates else 0


def _used_groups(state: "State") -> list[int]:
    return sorted({int(group) for group in state.group})


def _checked(state: "State", args: argparse.Namespace) -> _Found:
    from ganeti.placement.check import cluster_health, group_health

    capacity = not args.no_capacity
    found = {group: group_health(state, group, capacity=capacity) for group in _used_groups(state)}
    return _Found(found, cluster_health(list(found.values())))


def _balanced(state: "State", wanted: "Goals") -> "State":
    from ganeti.placement.balance import balance
    from ganeti.placement.score import group_scope

    after = state.copy()
    for group in _used_groups(state):
        for _step in balance(after, wanted, group_scope(after, group)):
            pass
    return after


def _verdict(*, is_bad: bool, simulates: bool) -> str:
    if not simulates:
        return "Running in no-simulation mode."
    if is_bad:
        return "Cluster needs rebalancing."
    return "No need to rebalance cluster, no problems found."


def _lines(phase: str, state: "State", found: _Found) -> None:
    from ganeti.placement.check import TITLES
    from ganeti.placement.digits import digits

    for group, health in found.groups.items():
        say(f"\nStatistics for group {state.groups[group].name} {phase}")
        for (_key, title), value in zip(TITLES, health[:5], strict=True):
            say(f"    {title}: {value}")
        say(f"    Group score: {digits(health.score)}")
    say(f"\nCluster statistics {phase}")
    for (_key, title), value in zip(TITLES, found.whole[:5], strict=True):
        say(f"    {title}: {value}")
    say(f"    Cluster is not healthy: {found.whole.is_bad}")


def _keys(head: str, found: _Found) -> None:
    from ganeti.placement.check import TITLES
    from ganeti.placement.digits import digits

    for number, health in found.groups.items():
        for (key, _title), value in zip(TITLES, health[:5], strict=True):
            say(f"{head}_GROUP_{number}_{key}={value}")
        say(f"{head}_GROUP_{number}_SCORE={digits(health.score)}")
    for (key, _title), value in zip(TITLES, found.whole[:5], strict=True):
        say(f"{head}_CLUSTER_{key}={value}")
    say(f"{head}_CLUSTER_NEED_REBALANCE={int(found.whole.is_bad)}")


TOOL = options.Tool(
    "hcheck",
    "Check a cluster, and whether balancing would help.",
    (
        *options.BACKENDS, *options.BALANCING, options.NO_CAPACITY, options.MACHINE,
        option("--no-simulation", dest="no_simulation", action="store_true",
                       help="check only, without simulating a balance"),
        options.VERBOSE, options.QUIET,
    ),
    hcheck,
    text="The exit code is 0 if there are no violations or --no-simulation was given, and 1 otherwise."
    " HCHECK_FINAL_CLUSTER_NEED_REBALANCE shows whether violations remain after balancing. hcheck changes nothing.",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program."""
    return TOOL.run(argv)


if __name__ == "__main__":
    sys.exit(main())
