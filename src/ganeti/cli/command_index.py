"""The index of the commands that opcodes declare: `python -m ganeti.cli.command_index` writes it."""

import inspect
import json
import sys
from typing import Any

from ganeti.cli.declared import INDEX
from ganeti.model.opcode_table import OPCODES


def index() -> dict[str, list[dict[str, Any]]]:
    """Return the commands of each program: name, aliases, documentation, and the opcode's module and class."""
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in OPCODES.values():
        if kind.cli:
            entry = {
                "name": kind.cli.name,
                "aliases": list(kind.cli.aliases),
                "doc": inspect.cleandoc(kind.cli.doc or kind.__doc__ or ""),
                "opcode": f"{kind.__module__.removeprefix('ganeti.model.opcodes.')}.{kind.__name__}",
            }
            found.setdefault(kind.cli.program, []).append(entry)
    return found


def index_text() -> str:
    """Return the file's content, one command a line."""
    programs = (
        f"{json.dumps(program)}: [\n" + ",\n".join(json.dumps(one) for one in commands) + "\n]"
        for program, commands in sorted(index().items())
    )
    return "{\n" + ",\n".join(programs) + "\n}\n"


def main() -> int:
    """Write the index into the package."""
    INDEX.write_text(index_text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
