"""`ensure-dirs`: restore the owner and mode of every file of this node."""

import argparse
import sys
from collections.abc import Sequence

from ganeti.base.errors import HostError
from ganeti.base.paths import Paths
from ganeti.base.permissions import problems, repair
from ganeti.base.terminal import Parser, say
from ganeti.base.users import ServiceUsers
from ganeti.tools.program import ended

PROG = "ensure-dirs"


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if a file could not be corrected."""
    args = parser().parse_args(argv)
    return ended(PROG, lambda: _mend(Paths.from_environment(), verbose=args.verbose or args.debug))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options, with Ganeti's names."""
    made = Parser(
        prog=PROG,
        description="Give every file and directory of this node its owner and mode, as daemons do when they start.",
    )
    made.add_argument("-d", "--debug", action="store_true", help="as --verbose")
    made.add_argument("-v", "--verbose", action="store_true", help="report every change")
    made.add_argument(
        "-f",
        "--full-run",
        action="store_true",
        help="ignored; kept for compatibility with Ganeti 3",
    )
    return made


def _mend(paths: Paths, *, verbose: bool) -> int:
    users = ServiceUsers.of_node(paths)
    done = repair(paths, users)
    if verbose:
        for line in done:
            say(line)
    if left := problems(paths, users):
        raise HostError("; ".join(left))
    return 0


if __name__ == "__main__":
    sys.exit(main())
