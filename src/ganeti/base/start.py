"""The start of every installed program: the answer to `--version`, or the `main` of its module.

Python imports the modules of a command in 40 ms. Scripts ask many programs for their version, and this module needs
none of the others.
"""

import sys

from ganeti import __version__

COMPILED = frozenset(("hail", "harep", "hbal", "hcheck", "hinfo", "hroller", "hscan", "hspace", "hsqueeze"))  # fmt: skip
"""The programs that upstream compiles; they write their version in another form."""
OTHERS = frozenset(("mon-collector", "ovfconverter"))
"""The programs besides `gnt-*` that have a table of commands."""


def version_line(program: str) -> str | None:
    """Return the answer of a program to `--version`; None if the program does not have this option."""
    if program in COMPILED:
        return f"{program} (ganeti) version {__version__}"
    if program in OTHERS or program.startswith("gnt-"):
        return f"{program} (ganeti) {__version__}"
    return None


def start(program: str, module: str) -> None:
    """Run a program and exit with its code."""
    if sys.argv[1:] == ["--version"] and (line := version_line(program)):
        sys.stdout.write(f"{line}\n")
        sys.exit(0)
    sys.exit(__import__(module, fromlist=["main"]).main())
