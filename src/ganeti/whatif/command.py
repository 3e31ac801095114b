"""`gnt-whatif`: simulate what a cluster does after failures and changes."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ganeti.base.errors import InputError
from ganeti.base.terminal import say
from ganeti.cli.command import ABOUT, COMPLETION, CommandTable, option
from ganeti.cli.options import JSON
from ganeti.model.operation import Argument

if TYPE_CHECKING:  # the simulation takes longer to load than `--help` may
    from ganeti.whatif.report import Report
    from ganeti.whatif.runs import EventsOf
    from ganeti.whatif.scenario import Scenario
    from ganeti.whatif.source import Source

RUN = "run"
table = CommandTable(
    "gnt-whatif",
    "Simulate what a cluster does after failures and changes; nothing real is touched.",
)


class _StepOption(argparse.Action):
    """Collects the steps of all options in the order of the command line."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        _option: str | None = None,
    ) -> None:
        name = self.option_strings[0].removeprefix("--")
        namespace.steps = [*(getattr(namespace, "steps", None) or []), (name, str(values))]


def _step(flag: str, metavar: str, help: str) -> Any:  # noqa: A002 - as in `option`
    return option(flag, metavar=metavar, action=_StepOption, dest="steps", default=[], help=help)


_WHEN = "[@AT[/FOR]]"


@table.command(
    RUN,
    Argument("source", "'cluster' for the running cluster, or a file: of 'gnt-cluster backup', an htools data file, or upstream's config.data", completion="file"),
    Argument("scenario", "scenario file (YAML)", nargs="?", completion="file"),
    _step("--fail-node", f"NODE,...{_WHEN}", "cut the power of nodes, for example node3@10m/1h; without FOR they stay down"),
    _step("--fail-rack", f"TAG{_WHEN}", "cut the power of all nodes with this tag"),
    _step("--fail-group", f"GROUP{_WHEN}", "cut the power of all nodes of a group"),
    _step("--fail-switch", f"TAG{_WHEN}", "cut the network of all nodes with this tag; their guests continue to run"),
    _step("--drain", f"NODE,...|all{_WHEN}", "rolling upgrade: empty, reboot and refill one node after the other; FOR is the time of a reboot"),
    _step("--evacuate", "NODE,...[@AT]", "move all instances and disks off nodes, as 'gnt-node evacuate' does"),
    _step("--evacuate-primaries", "NODE,...[@AT]", "move the instances off nodes that run there, as 'gnt-node evacuate --primary-only' does"),
    _step("--add-nodes", "N[@AT]", "add nodes of the size of the largest node"),
    _step("--create", "N[:SPEC][@RATE][@AT]", "create instances of SPEC (MEMORY,DISK,VCPUS[,TEMPLATE]), for example 20:2g,10g,1,drbd@60/h"),
    _step("--set", "NAME=VALUE,...[@AT]", "change policies: recovery, vcpu-ratio, spindle-ratio, n+1 (yes or no), fence-methods"),
    _step("--random", "DAYS,MTBF,MTTR[@AT]", "random failures of single nodes with these mean times, for example 7,30d,4h"),
    option("--watch", metavar="TIME", help="how long the cluster is observed after the last step; default: until everything is settled"),
    option("--seed", type=int, default=1, metavar="N", help="first seed of all random choices (default: 1)"),
    option("--seeds", type=int, default=1, metavar="N", help="number of seeds; several give distributions, and details of the worst one"),
    option("--node-size", metavar="MEMORY,DISK,CPUS", help="size of nodes whose size the source does not tell, for example 128g,4t,32"),
    option("--durations", metavar="FILE", completion="file", help="durations of operations that 'gnt-whatif learn' has measured"),
    option("--html", metavar="FILE", completion="file", help="also write the report as one HTML file with pictures"),
    JSON,
)  # fmt: skip
def run(args: argparse.Namespace) -> int:
    """Simulate a scenario on a copy of a cluster, and report what happens.

    The word 'run' can be omitted: 'gnt-whatif cluster --fail-node node3'. The real master runs in virtual time against
    simulated nodes, with the configuration of the source. The running cluster only answers queries. The command
    writes no file except the report.

    The report shows each instance's downtime with its reasons, what stays down and why, the order of recovery, N+1 and
    capacity before and after, jobs and lock contention, and the first thing that did not fit. The same source,
    scenario, seed and version always give the same report.

    AT is the time of a step after the beginning, FOR the time until failed nodes are back: 90s, 10m, 2h, 7d. A step
    without AT begins with the step before.

    A scenario file has the same steps, with the names of the options:

        name: Lose a rack during the upgrade
        watch: 2h
        steps:
          - set: {recovery: failover}
          - at: 1m
            drain: all
            for: 5m
          - at: 10m
            fail-rack: rack:r2
            for: 1h
          - at: 20m
            create: {count: 20, spec: {memory: 2g, disk: 10g, vcpus: 1, template: drbd}, rate: 60/h}
          - random: {days: 7, mtbf: 30d, mttr: 4h}
    """
    report = _report(args)
    if args.html:
        from ganeti.whatif.html import html_report

        _write(args.html, html_report(report))
    if args.is_json:
        from ganeti.whatif.report import json_report

        say(json_report(report), end="")
    else:
        from ganeti.whatif.text import text_report

        say(text_report(report), end="")
    return 0


@table.command(
    "learn",
    option("-o", "--output", metavar="FILE", completion="file", help="write the model file; without it, the command only shows the durations"),
    option("--archived", action="store_true", help="include archived jobs (slow)"),
)  # fmt: skip
def learn(args: argparse.Namespace) -> int:
    """Measure how long operations take in the running cluster, from the logs of its jobs.

    '--durations FILE' of 'gnt-whatif run' reads the file. An operation with fewer than three measurements keeps its
    default. The times also vary as they were measured, so use several seeds. The command only sends queries.
    """
    from ganeti.whatif.durations import model_text, shown
    from ganeti.whatif.sources import measured_model

    model = measured_model(with_archived=args.archived)
    say(f"Durations of {model.cluster}:", *shown(model), sep="\n")
    if args.output:
        _write(args.output, model_text(model))
    return 0


def _report(args: argparse.Namespace) -> "Report":
    """Return the report of the simulations that the command line describes."""
    import logging

    from ganeti.cli.input_file import read_text
    from ganeti.simulation.durations import Durations
    from ganeti.whatif.durations import parse_model
    from ganeti.whatif.runs import reported, seeds_of
    from ganeti.whatif.sources import parse_node_size, read_source

    # The simulated master logs what a real one would; the report has what matters of it.
    logging.getLogger("ganeti").addHandler(logging.NullHandler())
    seeds = seeds_of(args.seed, args.seeds)
    size = parse_node_size(args.node_size) if args.node_size else None
    scenario, events_of = _scenario(args)
    source = read_source(args.source, size)
    model = read_text(args.durations) if args.durations else None
    durations = Durations() if model is None else parse_model(model, args.durations)
    return reported(source, scenario, events_of, durations=durations, seeds=seeds)


def _scenario(args: argparse.Namespace) -> "tuple[Scenario, EventsOf]":
    """Return the steps of the file, then those of the options, and a function that turns them into events."""
    from ganeti.cli.input_file import read_text
    from ganeti.whatif.scenario import Scenario, Step, StepError, events
    from ganeti.whatif.scenario_file import ParsedScenario, parse_scenario
    from ganeti.whatif.scenario_options import step_of

    parsed = ParsedScenario(Scenario())
    if args.scenario:
        parsed = parse_scenario(read_text(args.scenario), args.scenario)
    own: list[Step] = [step_of(name, value) for name, value in args.steps]
    steps = [*parsed.scenario.steps, *own]

    def events_of(source: "Source", seed: int) -> list[Any]:
        try:
            return events(steps, source, seed)
        except StepError as err:
            if err.number < len(parsed.lines):
                raise InputError(
                    f"line {parsed.lines[err.number]}: {err.cause}", args.scenario
                ) from err
            name = args.steps[err.number - len(parsed.lines)][0]
            raise InputError(str(err.cause), f"--{name}") from err

    watch = args.watch or parsed.scenario.watch
    return Scenario(name=parsed.scenario.name, watch=watch, steps=steps), events_of


def _write(name: str, text: str) -> None:
    """Write a file; HostError if that fails."""
    from pathlib import Path

    from ganeti.base.errors import HostError

    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as err:
        raise HostError(f"cannot write {name}: {err.strerror or err}") from err


def with_default(words: Sequence[str]) -> list[str]:
    """Return the command line with `run` where no command is named."""
    first = words[0] if words else ""
    is_other = (
        not first
        or table.find(first) is not None
        or first in ("--help", "-h", *ABOUT)
        or first.startswith(COMPLETION)
    )
    return list(words) if is_other else [RUN, *words]


def main() -> NoReturn:
    """Run the program."""
    table.main(with_default(sys.argv[1:]))
