"""`htools`: all placement commands as one program; its file name or `HTOOLS` selects the command."""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from ganeti.base.terminal import say
from ganeti.cli.command import EXIT_FAILURE
from ganeti.cli.placement_options import Tool

ROLES: Mapping[str, str] = {
    "hail": "choose nodes for instances, as an allocator",
    "harep": "repair instances within the limits that tags set",
    "hbal": "balance a cluster",
    "hcheck": "check a cluster, and whether balancing would help",
    "hinfo": "show the state of a cluster",
    "hroller": "show which nodes can be rebooted together",
    "hscan": "save the state of clusters to files",
    "hspace": "show how many more instances fit",
    "hsqueeze": "show which nodes to switch off or on",
}
VARIABLE = "HTOOLS"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `HTOOLS` names, or by default the program's file name."""
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
