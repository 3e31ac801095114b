"""`hspace`: count how many more instances fit, of a fixed size and of shrinking sizes."""

import argparse
import itertools
import json
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.terminal import say
from ganeti.cli import placement_input as source
from ganeti.cli import placement_options as options
from ganeti.cli.command import option

if TYPE_CHECKING:  # numpy takes longer to load than `--help` may
    from ganeti.placement.capacity import Filled
    from ganeti.placement.description import Instance
    from ganeti.placement.places import Rules
    from ganeti.placement.state import State

SPEC_PARTS = 3


class _Run(NamedTuple):
    """Data of both ways of filling."""

    state: "State"
    rules: "Rules"
    closed: tuple[int, ...]
    is_stopped: bool
    limit: int | None
    args: argparse.Namespace

    @property
    def is_machine(self) -> bool:
        return str(self.args.machine) == "yes"


def hspace(args: argparse.Namespace) -> int:
    """Fill the cluster twice, each time from its present state."""
    from ganeti.placement.capacity import open_nodes
    from ganeti.placement.score import everywhere
    from ganeti.placement.totals import totals

    cluster = source.load(args)
    state = source.state_of(cluster, args)
    template = args.template or next(iter(cluster.policy["disk-templates"]))
    run = _prepared(state, template, args)
    source.note_domain(state, args, 1, sys.stderr)
    source.print_nodes(state, args, "Initial cluster", sys.stderr)
    if options.verbosity(args) > 2:  # noqa: PLR2004 - upstream's level
        source.print_coefficients(state, everywhere(state), sys.stderr)
    if run.is_machine:
        _keys(_cluster_keys(state))
    else:
        now = totals(state)
        sizes = [("MEM", now.memory), ("DSK", now.disk), ("CPU", now.cpus)]
        sizes += [("VCPU", now.virtual_cpus), *_spindles(run, now.spindles)]
        say(
            f"The cluster has {len(state.nodes)} nodes and the following resources:\n  {_shown(sizes)}."
        )
        count = now.instances or "no"
        say(f"There are {count} initial instances on the cluster.")
    _protection(run)
    if options.verbosity(args) > 3:  # noqa: PLR2004 - upstream's level
        _bad(run)
    if not open_nodes(state).any():
        raise PrereqError("failure during allocation: No online nodes", ErrorCode.NO_RESOURCES)
    use = (
        args.spindle_use
        if args.spindle_use is not None
        else cluster.policy["std"].get("spindle-use", 1)
    )
    biggest = [one["max"] for one in cluster.policy["minmax"]]
    tiered = [_instance(_given(args.tiered, one), template, use) for one in biggest]
    standard = _instance(_given(args.standard, cluster.policy["std"]), template, use)
    _tiered(run, tiered[:1] if args.tiered else tiered)
    _standard(run, standard)
    if run.is_machine:
        say("HTS_OK=1")
    return 0


def _protection(run: _Run) -> None:
    """Tell which protected instances the other nodes cannot start if a node fails; nothing without such instances."""
    from ganeti.placement.protection import losses

    found = list(losses(run.state.cluster))
    short = [loss for loss in found if loss.unplaced]
    if run.is_machine and found:
        _keys([("PROTECTED_CNT", str(sum(loss.protected for loss in found))),
               ("PROTECTED_UNPLACED", str(max(len(loss.unplaced) for loss in found))),
               ("PROTECTED_NODES", " ".join(loss.node for loss in short))])  # fmt: skip
    elif found:
        number = sum(loss.protected for loss in found)
        fine = f"All {number} protected instances would fit if any node failed"
        say(*(f"{loss}." for loss in short), *([] if short else [f"{fine}."]), sep="\n")


def _bad(run: _Run) -> None:
    """Name the nodes that fail N+1, and the groups that cannot lose a node."""
    from ganeti.placement.redundancy import unrecoverable_nodes

    state, excluded = run.state, run.rules.excluded._replace(groups=())
    failing = (state.fails & ~state.offline).nonzero()[0]
    groups = sorted({int(state.group[node]) for node in unrecoverable_nodes(state, excluded)})
    for what, names in (
        ("nodes", [state.nodes[node].name for node in failing]),
        ("groups", [state.groups[group].name for group in groups]),
    ):
        if names:
            say(f"Bad {what}: {json.dumps(names, separators=(',', ':'))}", file=sys.stderr)


def _prepared(state: "State", template: str, args: argparse.Namespace) -> _Run:
    """Return the rules of the allocation.

    Groups with N+1 violations accept no instances. Without `--independent-groups`, a violation also excludes all
    other groups. With it, groups that cannot lose a node are excluded, too, and the others skip this check.
    """
    from msgspec.structs import replace

    from ganeti.placement.description import facts
    from ganeti.placement.places import Excluded, Rules
    from ganeti.placement.redundancy import Violations, is_redundant, unrecoverable_nodes

    failing = {int(group) for group in state.group[state.fails & ~state.offline]}
    closed: set[int] = set() if args.accept_errors else failing
    excluded = Excluded(offline=args.accept_errors)
    if args.independent:
        excluded = excluded._replace(
            groups=frozenset(
                int(state.group[node]) for node in unrecoverable_nodes(state, excluded)
            )
        )
        closed.update(excluded.groups)
    remaining = any(
        one.alloc_policy != "unallocable" and number not in closed
        for number, one in enumerate(state.groups)
    )
    is_stopped = bool(failing) and not args.accept_errors and not (args.independent and remaining)
    rules = Rules(capacity=not args.no_capacity, excluded=excluded)
    if args.accept_errors and facts(template).mirrored and not is_redundant(state, excluded):
        # A mirrored instance must only not worsen the state of nodes that cannot be lost.
        rules = replace(rules, before=Violations(state.copy(), excluded))
    limit = args.max_length if args.max_length >= 0 else None
    return _Run(state, rules, tuple(sorted(closed)), is_stopped, limit, args)


def _given(text: str | None, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the size for `disk,memory,processors`, which replaces the policy's."""
    if text is None:
        return spec
    parts = text.split(",")
    if len(parts) != SPEC_PARTS:
        raise InputError(f"Invalid specification: {text!r:.60}, expected disk,ram,cpu")
    try:
        cpus = int(parts[2])
    except ValueError as err:
        raise InputError(
            f"cannot parse string {parts[2]!r:.40}, expected a number of processors"
        ) from err
    unit_mib = source.unit_mib
    sizes = {"disk-size": unit_mib(parts[0], "disk"), "memory-size": unit_mib(parts[1], "memory")}
    return {**spec, **sizes, "cpu-count": cpus, "spindle-use": 1}


def _instance(spec: dict[str, Any], template: str, spindle_use: float) -> "Instance":
    from ganeti.placement.description import Instance, facts

    facts(template)
    return Instance(
        name="new",
        memory=spec["memory-size"],
        disk=spec["disk-size"],
        vcpus=spec["cpu-count"],
        template=template,
        spindle_use=spindle_use,
        spindles=spec.get("spindle-use", 1),
        disks=(spec["disk-size"],),
    )


def _stopped(state: "State") -> "Filled":
    from collections import Counter

    from ganeti.placement.capacity import Filled
    from ganeti.placement.description import Failure

    return Filled(state, [], [], Counter({Failure.REDUNDANCY: 1}))


def _tiered(run: _Run, wanted: "list[Instance]") -> None:
    from ganeti.placement.capacity import open_nodes, tiers

    filled = (
        _stopped(run.state)
        if run.is_stopped
        else tiers(run.state, wanted, run.rules, run.limit, open_nodes(run.state, run.closed))
    )
    _spec(run, wanted[0], "Tiered (initial size)", "TSPEC_INI")
    _after(run, filled, "Tiered allocation", "tiered")
    specs = [
        (size, len(list(same)))
        for size, same in itertools.groupby(
            filled.instances,
            lambda one: (int(one.memory), int(one.disk), int(one.vcpus), int(one.spindles or 0)),
        )
    ]
    if run.is_machine:
        _keys(_statistics("TRL", filled.state))
        shown = " ".join(f"{','.join(map(str, size))}={count}" for size, count in specs)
        _keys([("TSPEC", shown), *_delta(run.state, filled.state)])
        return
    say("Tiered allocation results:")
    for (memory, disk, cpus, spindles), count in specs:
        sizes = [("MEM", memory), ("DSK", disk), ("CPU", cpus), *_spindles(run, spindles)]
        say(f"  - {count:3} instances of spec {_shown(sizes)}")
    if not specs:
        say("  - no instances allocated")
    _scores(run, filled)


def _standard(run: _Run, wanted: "Instance") -> None:
    from ganeti.placement.capacity import fill, open_nodes, ranked
    from ganeti.placement.description import Failure
    from ganeti.placement.digits import digits

    filled = (
        _stopped(run.state)
        if run.is_stopped
        else fill(run.state, wanted, run.rules, run.limit, open_nodes(run.state, run.closed))
    )
    _spec(run, wanted, "Standard (fixed-size)", "SPEC")
    _after(run, filled, "Standard allocation", "standard")
    number, before = len(filled.nodes), len(run.state.names)
    if run.is_machine:
        _keys(_statistics("FIN", filled.state))
        usage = digits(before / (before + number)) if before + number else "NaN"
        reasons = [Failure.REDUNDANCY] if run.is_stopped else ranked(filled.failures)
        _keys([("ALLOC_USAGE", usage), ("ALLOC_INSTANCES", str(number)),
               ("ALLOC_FAIL_REASON", reasons[0].upper())])  # fmt: skip
        _keys([(f"ALLOC_{one.upper()}_CNT", str(filled.failures[one])) for one in reasons])
        return
    say("Normal (fixed-size) allocation results:")
    say(f"  - {number:3} instances allocated")
    _scores(run, filled)


def _spec(run: _Run, one: "Instance", what: str, prefix: str) -> None:
    sizes = [("MEM", one.memory), ("DSK", one.disk), ("CPU", one.vcpus)]
    if run.is_machine:
        _keys(
            [
                (f"{prefix}_{key}", f"{value:.0f}")
                for key, value in [*sizes, ("SPN", one.spindles or 0)]
            ]
        )
        _keys([(f"{prefix}_RQN", str(one.nodes_needed)), (f"{prefix}_DISK_TEMPLATE", one.template)])
        return
    sizes += _spindles(run, one.spindles or 0)
    say(f"{what} instance spec is:\n  {_shown(sizes)}, using disk template '{one.template}'.")


def _spindles(run: _Run, number: float) -> list[tuple[str, float]]:
    """Return the spindles of sizes, which matter only with exclusive storage."""
    return [("SPN", number)] if run.state.exclusive.any() else []


def _shown(sizes: "Sequence[tuple[str, float]]") -> str:
    return ", ".join(f"{key} {value:.0f}" for key, value in sizes)


def _after(run: _Run, filled: "Filled", title: str, suffix: str) -> None:
    if options.verbosity(run.args) > 1:
        say(f"{title} map", *_map(filled), sep="\n", file=sys.stderr)
    source.print_nodes(filled.state, run.args, title, sys.stderr)
    out = sys.stderr if run.is_machine else sys.stdout
    source.save(filled.state, run.args.save, suffix, f"after {title.lower()}", out)


def _map(filled: "Filled") -> list[str]:
    """Print the name, nodes and sizes of each new instance."""
    from ganeti.placement.report import padded

    nodes, has_spindles = filled.state.nodes, filled.state.exclusive.any()
    rows = []
    for one, places in zip(filled.instances, filled.nodes, strict=True):
        names = [nodes[place].name for place in places]
        sizes = (one.memory, one.disk, one.vcpus, *((one.spindles or 0,) if has_spindles else ()))
        rows.append(
            [one.name, *names, *([""] * (2 - len(names))), *(f"{size:.0f}" for size in sizes)]
        )
    return [f" {line}" for line in padded(rows, (False, False, False, *(True,) * 4))]


def _scores(run: _Run, filled: "Filled") -> None:
    from ganeti.placement.digits import digits
    from ganeti.placement.score import score
    from ganeti.placement.totals import totals

    now = totals(filled.state)
    say(f"  - most likely failure reason: {filled.main_failure}")
    say(f"  - initial cluster score: {digits(score(run.state))}")
    say(f"  -   final cluster score: {digits(now.score)}")
    parts = [("memory", now.memory_instances, now.memory), ("disk", now.disk_instances, now.disk),
             ("vcpu", now.cpus_instances, now.virtual_cpus)]  # fmt: skip
    if run.state.exclusive.any():
        parts.append(("spindles", now.spindles_instances, now.spindles))
    width = max(len(name) for name, _part, _whole in parts)
    for name, part, whole in parts:
        say(f"  - {name:>{width}} usage efficiency: {100 * part / whole if whole else 0:5.2f}%")


def _keys(pairs: "Sequence[tuple[str, str]]") -> None:
    for key, value in pairs:
        is_plain = re.fullmatch(r"[A-Za-z0-9._]*", value)
        say(f"HTS_{key}={value}" if is_plain else f"HTS_{key}='{value}'")


def _cluster_keys(state: "State") -> list[tuple[str, str]]:
    from ganeti.placement.totals import totals

    now = totals(state)
    whole = [("MEM", now.memory), ("DSK", now.disk), ("CPU", now.cpus), ("VCPU", now.virtual_cpus)]
    whole += [("SPN", now.spindles), ("NODES", float(len(state.nodes)))]
    return [(f"CLUSTER_{key}", f"{value:.0f}") for key, value in whole] + _statistics("INI", state)


def _statistics(prefix: str, state: "State") -> list[tuple[str, str]]:
    from ganeti.placement.digits import digits
    from ganeti.placement.totals import totals

    now = totals(state)

    def share(part: float, whole: float) -> str:
        return digits(part / whole) if whole else "NaN"

    values: list[tuple[str, float | str]] = [
        *(("SCORE", digits(now.score)), ("INST_CNT", now.instances)),
        *(("MEM_FREE", now.memory_free), ("MEM_AVAIL", now.memory_available)),
        *(
            ("MEM_RESVD", now.memory_free - now.memory_available),
            ("MEM_INST", now.memory_instances),
        ),
        *(
            ("MEM_OVERHEAD", now.memory_overhead),
            ("MEM_EFF", share(now.memory_instances, now.memory)),
        ),
        *(("DSK_FREE", now.disk_free), ("DSK_AVAIL", now.disk_available)),
        *(("DSK_RESVD", now.disk_free - now.disk_available), ("DSK_INST", now.disk_instances)),
        *(("DSK_EFF", share(now.disk_instances, now.disk)), ("SPN_FREE", now.spindles_free)),
        *(
            ("SPN_INST", now.spindles_instances),
            ("SPN_EFF", share(now.spindles_instances, now.spindles)),
        ),
        *(
            ("CPU_INST", now.cpus_instances),
            ("CPU_EFF", share(now.cpus_instances, now.virtual_cpus)),
        ),
        *(("MNODE_MEM_AVAIL", now.largest_memory), ("MNODE_DSK_AVAIL", now.largest_disk)),
    ]
    return [
        (f"{prefix}_{key}", one if isinstance(one, str) else f"{one:.0f}") for key, one in values
    ]


def _delta(before: "State", after: "State") -> list[tuple[str, str]]:
    from ganeti.placement.digits import all_digits
    from ganeti.placement.totals import totals

    first, last = totals(before), totals(after)
    used = (first.cpus_instances, first.cpus_normal, first.memory_instances, first.disk_instances,
            first.spindles_instances)  # fmt: skip
    final = (last.cpus_instances, last.cpus_normal, last.memory_instances, last.disk_instances,
             last.spindles_instances)  # fmt: skip
    whole = (last.virtual_cpus, last.cpus, last.memory, last.disk, last.spindles)
    parts = {
        "USED": used,
        "POOL": tuple(end - start for start, end in zip(used, final, strict=True)),
        "UNAV": tuple(all_ - end for all_, end in zip(whole, final, strict=True)),
    }
    return [
        (f"KM_{name}_{key}", all_digits(value) if key == "NPU" else f"{value:.0f}")
        for name, values in parts.items()
        for key, value in zip(("CPU", "NPU", "MEM", "DSK", "SPN"), values, strict=True)
    ]


TOOL = options.Tool(
    "hspace",
    "Show how many more instances fit on a cluster.",
    (
        options.PRINT_NODES, *options.BACKENDS, options.SIMULATE,
        option("--disk-template", dest="template", metavar="TEMPLATE", help="disk template; default: the policy's"),
        option("--spindle-use", dest="spindle_use", type=float, metavar="SPINDLES",
                       help="spindles of an instance"),
        options.VERBOSE, options.QUIET, options.OFFLINE, options.NO_CAPACITY, options.MACHINE,
        option("--independent-groups", dest="independent", action="store_true",
                       help="exclude only groups with N+1 violations, not the whole cluster"),
        option("--accept-existing-errors", dest="accept_errors", action="store_true",
                       help="allocate even if nodes fail N+1; ignore N+1 for offline nodes"),
        options.MAX_CPU, options.MIN_DISK, options.MAX_LENGTH, options.SAVE, options.STATIC_MEMORY,
        option("--standard-alloc", dest="standard", metavar="STDSPEC",
                       help="size of the fixed-size allocation: disk,memory,processors"),
        option("--tiered-alloc", dest="tiered", metavar="TSPEC",
                       help="first size of the shrinking allocation: disk,memory,processors"),
    ),
    hspace,
    text="Both allocations start from the present state of the cluster. The keys of --machine-readable begin with HTS_.",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program."""
    return TOOL.run(argv)


if __name__ == "__main__":
    sys.exit(main())
