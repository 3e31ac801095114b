"""The command lines that the web console shows are understood by the commands."""

import importlib
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from ganeti.cli.command import CommandTable, parser_of

VECTORS = json.loads((Path(__file__).parents[3] / "console/test/commands.json").read_text())
LINES = [line for _, _, line in VECTORS if line]


def table_of(program: str) -> CommandTable:
    module = importlib.import_module(f"ganeti.cli.{program.replace('-', '_')}")
    table: Any = module.table
    assert isinstance(table, CommandTable)
    return table


@pytest.mark.parametrize("line", LINES)
def test_command_understands_a_line_of_the_console(line: str) -> None:
    program, name, *words = shlex.split(line)
    command = table_of(program).find(name)
    assert command is not None
    parsed = parser_of(program, command).parse_intermixed_args(words)
    assert words[-1] in str(vars(parsed))
