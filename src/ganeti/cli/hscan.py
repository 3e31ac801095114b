"""`hscan`: save clusters as text files, and show a line about each."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ganeti.base.errors import GanetiError
from ganeti.base.terminal import say
from ganeti.cli import placement_input as source
from ganeti.cli import placement_options as options
from ganeti.cli.command import EXIT_FAILURE, option
from ganeti.model.operation import Argument

if TYPE_CHECKING:  # msgspec takes longer to load than `--help` may
    from ganeti.placement.description import Cluster

FIRST_LINE = f"{'Name':<24} {'Nodes':>5} {'Inst':>5} {'BNode':>5} {'BInst':>5}"
FIRST_LINE += f" {'t_mem':>8} {'f_mem':>8} {'t_disk':>9} {'f_disk':>9} {'Score':>12}"


def hscan(args: argparse.Namespace) -> int:
    """Save each cluster; an error of one cluster does not stop the others."""
    if not args.no_headers:
        say(FIRST_LINE)
    code = 0
    targets = [("rapi", name, name) for name in args.clusters]
    if args.luxi is not None or not targets:
        targets.insert(0, ("luxi", "LOCAL", args.luxi or ""))
    for backend, name, address in targets:
        try:
            _scan(source.cluster_of(backend, address), name, args)
        except GanetiError as err:
            say(f"{name:<24} ERROR: {err.message}")
            code = EXIT_FAILURE
    return code


def _scan(cluster: "Cluster", name: str, args: argparse.Namespace) -> None:
    from ganeti.placement.digits import digits
    from ganeti.placement.load.text import format_cluster
    from ganeti.placement.totals import totals

    state = source.state_of(cluster, args)
    bad = state.fails & ~state.offline
    touched = bad[state.primary] | (bad[state.secondary] & (state.secondary >= 0))
    now = totals(state)
    say(
        f"{name:<24} {len(state.nodes):5} {len(state.names):5} {int(bad.sum()):5} {int(touched.sum()):5}"
        f" {now.memory:8.0f} {now.memory_free:8.0f} {now.disk / 1024:9.0f} {now.disk_free // 1024:9.0f}"
        f" {digits(now.score):>12}"
    )
    source.print_nodes(state, args, name, sys.stdout)
    path = Path(args.directory) / f"{_plain(name)}.data"
    try:
        path.write_text(format_cluster(cluster), encoding="utf-8")
    except OSError as err:
        raise GanetiError(f"cannot save the cluster: {err}") from err


def _plain(name: str) -> str:
    """Return a file name without slashes or passwords."""
    scheme, mark, rest = name.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}".replace("/", "_")


TOOL = options.Tool(
    "hscan",
    "Save the state of clusters to files that the other placement commands read with -t.",
    (
        *(options.PRINT_NODES, options.LUXI, options.VERBOSE, options.NO_HEADERS),
        option("-d", "--output-dir", dest="directory", default=".", metavar="PATH",
                       help="directory of the files (default: the current directory)"),
    ),
    hscan,
    (Argument("clusters", "RAPI addresses; default: the local cluster", nargs="*"),),
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program."""
    return TOOL.run(argv)


if __name__ == "__main__":
    sys.exit(main())
