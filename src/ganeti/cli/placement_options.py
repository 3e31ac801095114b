"""Shared options of the placement commands; names and meanings are upstream's."""

import argparse
import gc
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ganeti.base.start import version_line
from ganeti.base.terminal import say
from ganeti.cli.command import option, run_guarded
from ganeti.cli.compiled import NO_ARGUMENTS, ONE_FILE, CompiledParser, error_line
from ganeti.cli.option import Option
from ganeti.model.operation import Argument

YES_NO = ("yes", "no")
RARE_COLLECTION = 100_000
"""New objects before a garbage collection; Python's default of 700 costs 5 % of the run time."""


def _at_least(least: float, most: float = math.inf) -> Callable[[str], float]:
    """Return a number within these bounds."""

    def number(text: str) -> float:
        value = float(text)
        if not least <= value <= most:
            upper = f" to {most:g}" if most < math.inf else " or more"
            raise argparse.ArgumentTypeError(f"{text!r:.40} is not {least:g}{upper}")
        return value

    return number


def _count(text: str) -> int:
    """Return a count."""
    return int(_at_least(0)(str(int(text))))


def _optional(*flags: str, help: str, metavar: str, **settings: Any) -> Option:  # noqa: A002
    """Return an option whose value may be missing."""
    return option(*flags, help=help, metavar=metavar, nargs="?", const="", **settings)


TEXT_DATA = option("-t", "--text-data", dest="text", metavar="FILE", completion="file",
                   help="read the cluster from a text file")  # fmt: skip
LUXI = _optional(
    "-L",
    "--luxi",
    metavar="SOCKET",
    completion="file",
    help="query the master daemon of this cluster",
)
RAPI = option("-m", "--master", dest="rapi", metavar="ADDRESS",
              completion="host",
              help="query a cluster's RAPI daemon: a host name, or https://[user:password@]host:port; or read its answers from file://DIRECTORY (groups.json, nodes.json, instances.json, info.json)")  # fmt: skip
IALLOC = option("-I", "--ialloc-src", dest="message", metavar="FILE", completion="file",
                help="read the cluster from an allocator's message")  # fmt: skip
SIMULATE = option("--simulate", action="append", metavar="SPEC",
                  help="simulate an empty group: policy,nodes,disk,memory,processors[,spindles[,exclusive storage]]; may be repeated, the last one is the first group")  # fmt: skip
BACKENDS = (TEXT_DATA, RAPI, LUXI, IALLOC)

PRINT_NODES = _optional("-p", "--print-nodes", dest="print_nodes", metavar="FIELDS",
                        help="show the nodes; FIELDS replace the default fields, +FIELDS are added")  # fmt: skip
PRINT_INSTANCES = option("--print-instances", dest="print_instances", action="store_true",
                         help="show the instances")  # fmt: skip
SAVE = option("-S", "--save", metavar="FILE", completion="file", help="save the cluster as text")
VERBOSE = option("-v", "--verbose", action="count", default=1, help="print more output")
QUIET = option("-q", "--quiet", action="count", default=0, help="print less output")
OFFLINE = option("-O", "--offline", action="append", metavar="NODE", default=[], completion="node",
                 help="treat a node as offline; may be repeated")  # fmt: skip
GROUP = option(
    "-G",
    "--group",
    metavar="ID",
    completion="group",
    help="use only this node group (name or UUID)",
)
NO_HEADERS = option("--no-headers", dest="no_headers", action="store_true", help="omit the heading")
MACHINE = option("--machine-readable", dest="machine", nargs="?", const="yes", default="no", choices=YES_NO,
                 metavar="CHOICE", help="print KEY=value lines (yes or no)")  # fmt: skip
MAX_CPU = option("--max-cpu", dest="max_cpu", type=_at_least(0), metavar="RATIO",
                 help="maximum of virtual processors for each physical processor; default: the policy's")  # fmt: skip
MIN_DISK = option("--min-disk", dest="min_disk", type=_at_least(0, 1), metavar="RATIO",
                  help="share of each node's disk that stays free (0)")  # fmt: skip
IGNORE_LOAD = option(
    "--ignore-dynu", dest="ignore_load", action="store_true", help="ignore all loads of instances"
)
LOAD_FILE = option("-U", "--dynu-file", dest="load_file", metavar="FILE", completion="file",
                   help="loads of instances: name, processor, memory, disk, network")  # fmt: skip
MONITORING = (
    option("--mond", metavar="CHOICE", choices=YES_NO, nargs="?", const="yes", default="no",
           help="query the monitoring daemons for the load of processors (yes or no)"),
    option("--mond-data", dest="mond_data", metavar="FILE", completion="file",
           help="read reports of monitoring daemons from a file instead of querying them"),
    option("--mond-xen", dest="mond_xen", action="store_true", help="use the reports of Xen instances too"),
    option("--exit-on-missing-mond-data", dest="mond_required", action="store_true",
           help="fail if a node has no report; by default incomplete reports are ignored"),
)  # fmt: skip
STATIC_MEMORY = option("--static-kvm-node-memory", dest="static_memory", type=int, metavar="MIB",
                       help="assume this memory use of each node itself; 0 uses the reported value. Clusters from files (-t, -I) have their own values")  # fmt: skip
EXCLUSION = option("--exclusion-tags", dest="exclusion", metavar="TAG,...",
                   help="instances that share a tag with this prefix exclude each other")  # fmt: skip
SOFT_ERRORS = option("--ignore-soft-errors", dest="ignore_soft_errors", action="store_true",
                     help="ignore limits that policies set")  # fmt: skip
NO_CAPACITY = option("--no-capacity-checks", dest="no_capacity", action="store_true",
                     help="skip the checks of capacity after the failure of a node")  # fmt: skip
MAX_LENGTH = option("-l", "--max-length", dest="max_length", type=_count, default=-1, metavar="N",
                    help="maximum number of moves or allocations")  # fmt: skip

BALANCING = (
    option("-E", "--evac-mode", dest="evacuate", action="store_true",
           help="move only instances that are on offline or drained nodes"),
    MAX_LENGTH,
    option("-e", "--min-score", dest="min_score", type=_at_least(0), default=1e-9, metavar="EPSILON",
           help="stop at this distance from the best possible score (1e-9)"),
    option("-g", "--min-gain", dest="min_gain", type=_at_least(0), default=0.01, metavar="DELTA",
           help="minimum gain of a move (0.01)"),
    option("--min-gain-limit", dest="min_gain_limit", type=_at_least(0), default=0.1, metavar="SCORE",
           help="apply --min-gain only below this score (0.1)"),
    option("--no-disk-moves", dest="no_disk_moves", action="store_true", help="never copy disks"),
    option("--no-instance-moves", dest="no_instance_moves", action="store_true",
           help="never change a primary node"),
    option("--select-instances", dest="selected", metavar="INSTS", default="", help="move only these instances"),
    option("--exclude-instances", dest="excluded", metavar="INSTS", default="", help="never move these instances"),
    SOFT_ERRORS, MAX_CPU, MIN_DISK, LOAD_FILE, IGNORE_LOAD, EXCLUSION, OFFLINE, *MONITORING,
    STATIC_MEMORY,
)  # fmt: skip


_ABOUT_ITSELF = ("-h", "--help", "-V", "--version", "--help-completion")


class Tool(NamedTuple):
    """A command without subcommands; `text` is the description on its manual page."""

    prog: str
    purpose: str
    options: tuple[Option, ...]
    function: Callable[[argparse.Namespace], int]
    arguments: tuple[Argument, ...] = ()
    text: str = ""

    def parser(self) -> argparse.ArgumentParser:
        """Return the parser; it accepts abbreviated options, and options between arguments."""
        parser = CompiledParser(
            prog=self.prog, description=f"{self.purpose}\n\n{self.text}".strip(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            surplus=ONE_FILE if self.arguments else NO_ARGUMENTS,
        )  # fmt: skip
        parser.add_argument(
            "-V", "--version", action="version", version=version_line(self.prog) or ""
        )
        parser.add_argument(
            "--help-completion",
            action=_Completion,
            tool=self,
            help="show the options for completion",
        )
        for one in self.arguments:
            settings: dict[str, Any] = {} if one.nargs is None else {"nargs": one.nargs}
            parser.add_argument(one.name, help=one.help, **settings)
        for each in self.options:
            parser.add_argument(*each.flags, help=each.help.replace("%", "%%"), **each.settings)
        return parser

    def _parsed(self, words: list[str]) -> argparse.Namespace:
        """Return the parsed options; unknown options are reported first."""
        parser = self.parser()
        if self.arguments and not any(word in _ABOUT_ITSELF for word in words):
            named = {flag for one in self.options for flag in one.flags}
            for word in words:
                flag = word.partition("=")[0]
                if word.startswith("--") and not any(one.startswith(flag) for one in named):
                    parser.error(f"unrecognized arguments: {word}")
        return parser.parse_args(words)

    def run(self, argv: Sequence[str] | None = None) -> int:
        """Run the command; return the exit code."""
        words = sys.argv[1:] if argv is None else list(argv)
        if argv is None:  # The program runs for seconds and leaves hardly any cycles.
            gc.set_threshold(RARE_COLLECTION)
        # Threads for products of small matrices cost more than they save; numpy reads this at its import.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        # An optional value follows its option without a space; the next word is a separate argument.
        bare = {
            flag: f"{one.flags[-1]}={one.settings['const']}"
            for one in self.options
            for flag in one.flags
            if one.settings.get("nargs") == "?"
        }
        args = self._parsed([bare.get(word, word) for word in words])
        args.prog = args.command = self.prog
        return run_guarded(lambda: self.function(args), error_line)


class _Completion(argparse.Action):
    """Prints the options for completion and exits."""

    def __init__(self, tool: Tool, **settings: Any) -> None:
        super().__init__(nargs=0, **settings)
        self._tool = tool

    def __call__(self, parser: argparse.ArgumentParser, *_words: object) -> None:
        from ganeti.cli.completion import option_lines

        say("\n".join(option_lines(self._tool.options, self._tool.arguments)))
        parser.exit()


def verbosity(args: argparse.Namespace) -> int:
    """Level of output; 1 is normal."""
    return int(args.verbose) - int(args.quiet if hasattr(args, "quiet") else 0)
