"""gnt-os: OS definitions."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.cli.command import Argument, CommandTable
from ganeti.cli.jobs import run_job
from ganeti.cli.options import QUERY_JOB_OPTIONS, TABLE_OPTIONS
from ganeti.cli.output import format_table, print_tree
from ganeti.clients.luxi import LuxiClient

table = CommandTable("gnt-os", "Shows the OS definitions that instances can be installed from.")

NAMES = Argument("names", "OS definitions; all if none is given", nargs="*")


def _diagnosed(
    args: argparse.Namespace, fields: list[str], names: Sequence[str] = ()
) -> list[list[Any]]:
    from ganeti.model.opcodes.os import OpOsDiagnose

    with LuxiClient() as client:
        rows: list[list[Any]] = run_job(
            client, OpOsDiagnose(output_fields=fields, names=list(names)), args
        )
    missing = sorted(set(names) - {row[0] for row in rows})
    if missing:
        raise PrereqError(
            f"no node has an OS definition {', '.join(missing)}; 'gnt-os list' shows what there is",
            ErrorCode.UNKNOWN_ENTITY,
        )
    return rows


def usable_names(args: argparse.Namespace) -> list[str]:
    """What can be installed on all nodes, each variant as NAME+VARIANT."""
    return [
        name if variant is None else f"{name}+{variant}"
        for name, variants, is_valid in _diagnosed(args, ["name", "variants", "valid"])
        if is_valid
        for variant in (variants or [None])
    ]


@table.command("list", *TABLE_OPTIONS, *QUERY_JOB_OPTIONS)
def list_oses(args: argparse.Namespace) -> int:
    """List the OS definitions that can be used on all nodes.

    Each variant has a line of its own, as NAME+VARIANT. What is broken somewhere is not listed:
    diagnose says why.
    """
    rows = [[name] for name in usable_names(args)]
    for line in format_table(None if args.no_headers else ["Name"], rows, separator=args.separator):
        print(line)
    return 0


@table.command("diagnose", NAMES, *QUERY_JOB_OPTIONS)
def diagnose(args: argparse.Namespace) -> int:
    """Show on which nodes each OS definition is usable, and why not elsewhere."""
    all_valid = True
    for name, is_valid, status in _diagnosed(args, ["name", "valid", "node_status"], args.names):
        all_valid = all_valid and is_valid
        print(f"OS: {name} [global status: {'valid' if is_valid else 'invalid'}]")
        for node, found in sorted(status.items()):
            for line in _node_lines(node, found):
                print(f"  {line}")
        print()
    return 0 if all_valid else 1


def _node_lines(node: str, found: list[list[Any]]) -> list[str]:
    """What one node has: the first entry is used, later ones are hidden by it."""
    lines = []
    for position, (path, is_usable, problem, variants, _parameters, versions) in enumerate(found):
        state = "valid" if is_usable else "invalid"
        hidden = " (hidden by the one above)" if position else ""
        words = f"Node: {node}, status: {state}{hidden}, path: {path}"
        if is_usable:
            shown = ", ".join(map(str, versions))
            words += f" [API versions: {shown}] [variants: {', '.join(variants) or 'none'}]"
        lines.append(words + (f" ({problem})" if problem else ""))
    return lines or [f"Node: {node}, status: missing"]


@table.command("info", NAMES, *QUERY_JOB_OPTIONS, aliases=("show",))
def info(args: argparse.Namespace) -> int:
    """Show variants, parameters and versions of OS definitions."""
    fields = ["name", "valid", "variants", "parameters", "api_versions"]
    for name, is_valid, variants, parameters, versions in _diagnosed(args, fields, args.names):
        print_tree(
            [
                (
                    name,
                    [
                        ("valid", is_valid),
                        ("variants", list(variants)),
                        ("parameters", [(one[0], one[1]) for one in parameters]),
                        ("API versions", list(versions)),
                    ],
                )
            ]
        )
    return 0


def main() -> NoReturn:
    """The program."""
    table.main()
