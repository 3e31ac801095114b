"""Manual pages in Markdown, generated from the tables of commands by `python -m ganeti.cli.manual DIRECTORY`."""

import importlib
import sys
from pathlib import Path

from ganeti.cli.command import Command, CommandTable, parser_of
from ganeti.cli.option import Option
from ganeti.cli.placement_options import Tool

TOOLS = ("hail", "harep", "hbal", "hcheck", "hinfo", "hroller", "hscan", "hspace", "hsqueeze")
PROGRAMS = (
    "gnt-cluster",
    "gnt-node",
    "gnt-instance",
    "gnt-group",
    "gnt-network",
    "gnt-image",
    "gnt-filter",
    "gnt-os",
    "gnt-backup",
    "ovfconverter",
    "gnt-storage",
    "gnt-job",
    "gnt-debug",
    "mon-collector",
    "gnt-whatif",
)
OTHER_MODULES = {"gnt-whatif": "ganeti.whatif.command"}
"""Programs whose tables are not in this package, because they import what commands must not."""

_HOW = "long options can be abbreviated, and options can stand between arguments."
_EXIT_CODES = (
    "0 success · 1 failure · 2 wrong options · 5 not a node of a cluster · 11 not the master node ·"
    " 12 a node could not be set up · 13 confirmation is needed · 14 an unknown field"
)


def module_of(prog: str) -> str:
    """Return the module with the table of a program."""
    return OTHER_MODULES.get(prog, f"ganeti.cli.{prog.replace('-', '_')}")


def table_of(prog: str) -> CommandTable:
    """Return the table of a program by its name."""
    table: CommandTable = importlib.import_module(module_of(prog)).table
    return table


def manual_page(table: CommandTable) -> str:
    """Return the manual page of one program."""
    lines = [
        f"# {table.prog}(8)",
        "",
        "<!-- Made by `python -m ganeti.cli.manual docs/man` from the tables in src/ganeti/cli. -->",
        "",
        table.purpose,
        "",
        f"`{table.prog} COMMAND [options] [arguments]`: {_HOW}",
    ]
    for _name, command in sorted(table.commands.items()):
        lines += ["", *_section(table, command)]
    lines += [
        "",
        "## Exit codes",
        "",
        _EXIT_CODES,
        "",
    ]
    return "\n".join(lines)


def tool_of(prog: str) -> Tool:
    """Return a command without subcommands by its name."""
    tool: Tool = importlib.import_module(f"ganeti.cli.{prog}").TOOL
    return tool


def tool_page(tool: Tool) -> str:
    """Return the manual page of a command without subcommands."""
    usage = tool.parser().format_usage().removeprefix("usage: ")
    rows = [(f"`{one.name}`", one.help) for one in tool.arguments]
    rows += [(_flags(one), one.help) for one in tool.options]
    lines = [
        f"# {tool.prog}(1)",
        "",
        "<!-- Made by `python -m ganeti.cli.manual docs/man` from the tables in src/ganeti/cli. -->",
        "",
        tool.purpose,
        *(["", tool.text] if tool.text else []),
        "",
        f"`{' '.join(usage.split())}`",
        "",
        "Long options can be abbreviated. An optional value follows its option without a space: `-pname,pcnt`.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {left} | {_cell(right)} |" for left, right in rows),
        "",
    ]
    return "\n".join(lines)


def _section(table: CommandTable, command: Command) -> list[str]:
    usage = parser_of(table.prog, command).format_usage().removeprefix("usage: ")
    lines = [f"## {command.name}", "", command.summary]
    if command.text:
        lines += ["", command.text]
    lines += ["", f"`{' '.join(usage.split())}`"]
    if command.aliases:
        lines += ["", f"Also called: {', '.join(f'`{one}`' for one in command.aliases)}."]
    rows = [(f"`{one.name}`", one.help) for one in command.arguments]
    rows += [(_flags(one), one.help) for one in command.options]
    if rows:
        lines += ["", "| | |", "|---|---|"]
        lines += [f"| {left} | {_cell(right)} |" for left, right in rows]
    return lines


def _flags(option: Option) -> str:
    value = option.settings.get("metavar")
    choices = option.settings.get("choices")
    shown = value or ("|".join(map(str, choices)) if choices else "")
    text = ", ".join(f"`{flag}`" for flag in option.flags)
    return f"{text} {_cell(shown)}".strip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Write all manual pages to a directory."""
    directory = Path(sys.argv[1])
    for prog in PROGRAMS:
        (directory / f"{prog}.md").write_text(manual_page(table_of(prog)), encoding="utf-8")
    for prog in TOOLS:
        (directory / f"{prog}.md").write_text(tool_page(tool_of(prog)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
