"""`htools`: the placement commands as one program, which acts as the one that it is called by or `HTOOLS` names."""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from ganeti.base.terminal import say
from ganeti.cli.command import EXIT_FAILURE
from ganeti.cli.placement_options import Tool

ROLES: Mapping[str, str] = {
    "hail": "chooses nodes for instances, as an allocator",
    "harep": "repairs instances as their tags allow",
    "hbal": "balances a cluster",
    "hcheck": "checks a cluster, and whether balancing would help",
    "hinfo": "shows the state of a cluster",
    "hroller": "tells which nodes can be rebooted together",
    "hscan": "saves the state of clusters in files",
    "hspace": "tells how many more instances fit",
    "hsqueeze": "tells which nodes can be switched off, or must be switched on",
}
VARIABLE = "HTOOLS"


def main(argv: Sequence[str] | None = None) -> int:
    """Be the command that `HTOOLS` names, or else the one that the program is called."""
    name, *words = sys.argv if argv is None else argv
    role = os.environ.get(VARIABLE, PurePath(name).name)
    if role not in ROLES:
        return _refuse(role)
    tool: Tool = importlib.import_module(f"ganeti.cli.{role}").TOOL
    return tool.run(words)


def _refuse(role: str) -> int:
    width = max(map(len, ROLES))
    say(
        f"Unrecognised personality {role!r:.80}.",
        f"Set {VARIABLE} to one of these commands, or install this program under its name:",
        *(f"  {name:<{width}}  {what}" for name, what in ROLES.items()),
        sep="\n",
        file=sys.stderr,
    )
    return EXIT_FAILURE


if __name__ == "__main__":
    sys.exit(main())
