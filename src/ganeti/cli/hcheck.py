"""`hcheck`: whether a cluster is healthy, and whether balancing would help."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ganeti.base.terminal import say
from ganeti.cli import placement_input as source
from ganeti.cli import placement_options as options
from ganeti.cli.command import EXIT_FAILURE, option
from ganeti.cli.hbal import goals

if TYPE_CHECKING:  # numpy takes longer to load than `--help` may
    from ganeti.placement.check import Health
    from ganeti.placement.state import State


def hcheck(args: argparse.Namespace) -> int:
    """Check, balance a copy, check again; the exit code says whether all is well in the end."""
    from ganeti.placement.balance import balance
    from ganeti.placement.check import cluster_health, group_health
    from ganeti.placement.score import group_scope

    state = source.state_of(source.load(args), args)
    is_machine = str(args.machine) == "yes"
    used = sorted({int(group) for group in state.group})
    if is_machine:
        for number, one in enumerate(state.groups):
            say(f"HCHECK_GROUP_UUID_{number}='{one.uuid}'")

    def check(phase: str, after: "State") -> bool:
        found = [group_health(after, group, capacity=not args.no_capacity) for group in used]
        whole = cluster_health(found)
        names = [state.groups[group].name for group in used]
        if not (is_machine or args.no_simulation or phase != "initially" or whole.is_bad):
            say("No need to rebalance cluster, no problems found.")
        (_keys if is_machine else _lines)(phase, names, found, whole)
        return whole.is_bad

    is_bad = check("initially", state)
    if args.no_simulation and not is_machine:
        say("Running in no-simulation mode.")
    if is_bad and not args.no_simulation:
        after = state.copy()
        for group in used:
            for _step in balance(after, goals(args), group_scope(after, group)):
                pass
        is_bad = check("after rebalancing", after)
    if is_machine:
        say("HCHECK_OK=1")
    return EXIT_FAILURE if is_bad else 0


def _lines(phase: str, names: list[str], found: "list[Health]", whole: "Health") -> None:
    from ganeti.placement.check import TITLES

    if phase == "initially" and whole.is_bad:
        say("Cluster needs rebalancing.")
    for name, health in zip(names, found, strict=True):
        say(f"\nStatistics for group {name} {phase}")
        for (_key, title), value in zip(TITLES, health[:5], strict=True):
            say(f"    {title}: {value}")
        say(f"    Group score: {health.score:.8f}")
    say(f"\nCluster statistics {phase}")
    for (_key, title), value in zip(TITLES, whole[:5], strict=True):
        say(f"    {title}: {value}")
    say(f"    Cluster is not healthy: {whole.is_bad}")


def _keys(phase: str, _names: list[str], found: "list[Health]", whole: "Health") -> None:
    from ganeti.placement.check import TITLES

    head = "HCHECK_INIT" if phase == "initially" else "HCHECK_FINAL"
    for number, health in enumerate(found):
        for (key, _title), value in zip(TITLES, health[:5], strict=True):
            say(f"{head}_GROUP_{number}_{key}={value}")
        say(f"{head}_GROUP_{number}_SCORE={health.score:.8f}")
    for (key, _title), value in zip(TITLES, whole[:5], strict=True):
        say(f"{head}_CLUSTER_{key}={value}")
    say(f"{head}_CLUSTER_NEED_REBALANCE={int(whole.is_bad)}")


TOOL = options.Tool(
    "hcheck",
    "Checks a cluster, and whether balancing it would help.",
    (
        *options.BACKENDS, *options.BALANCING, options.NO_CAPACITY, options.MACHINE,
        option("--no-simulation", dest="no_simulation", action="store_true",
                       help="only check, do not balance a copy"),
        options.VERBOSE, options.QUIET,
    ),
    hcheck,
    text="Exit code 0: nothing is wrong, or balancing mends it. Nothing is changed.",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """The program."""
    return TOOL.run(argv)


if __name__ == "__main__":
    sys.exit(main())
