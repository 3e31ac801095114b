"""gnt-storage: providers of external storage."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.base.terminal import say
from ganeti.cli.command import EXIT_FAILURE, CommandTable
from ganeti.cli.jobs import run_opcode
from ganeti.cli.options import JSON, QUERY_JOB_OPTIONS
from ganeti.cli.output import print_objects
from ganeti.model.operation import Argument

table = CommandTable("gnt-storage", "Show the providers of external storage (template ext).")

_NAMES = Argument("names", "names of providers; default: all", nargs="*")


def _diagnosed(args: argparse.Namespace, fields: Sequence[str]) -> list[list[Any]]:
    from ganeti.model.opcodes.external import OpExtStorageDiagnose

    op = OpExtStorageDiagnose(output_fields=["name", *fields], names=args.names)
    rows: list[list[Any]] = run_opcode(op, args)
    missing = sorted(set(args.names) - {row[0] for row in rows})
    if missing:
        raise PrereqError(
            f"provider {', '.join(missing)} does not exist on any node; 'gnt-storage diagnose' shows the providers",
            ErrorCode.UNKNOWN_ENTITY,
        )
    return rows


@table.command("info", _NAMES, JSON, *QUERY_JOB_OPTIONS)
def info(args: argparse.Namespace) -> int:
    """Show the disk parameters that each provider of external storage supports."""
    rows = _diagnosed(args, ["nodegroup_status", "parameters"])
    if args.is_json:
        return print_objects(("name", "nodegroup_status", "parameters"), rows)
    for name, groups, parameters in rows:
        usable = sorted(group for group, is_good in groups.items() if is_good)
        say(f"{name}:")
        say(f"  - Valid for nodegroups: {', '.join(usable) or 'none'}")
        say("  - Supported parameters:")
        for parameter, text in parameters:
            say(f"      - {parameter}: {text}")
        say()
    return 0


@table.command("diagnose", _NAMES, JSON, *QUERY_JOB_OPTIONS)
def diagnose(args: argparse.Namespace) -> int:
    """Show the status of each provider on each node, with the reason if it is not usable."""
    all_valid = True
    rows = _diagnosed(args, ["node_status", "nodegroup_status"])
    if args.is_json:
        print_objects(("name", "node_status", "nodegroup_status"), rows)
        return 0 if all(all(groups.values()) for _, _, groups in rows) else EXIT_FAILURE
    for name, status, groups in rows:
        is_valid = all(groups.values())
        all_valid = all_valid and is_valid
        say(f"Provider: {name} [global status: {'valid' if is_valid else 'invalid'}]")
        for node, found in sorted(status.items()):
            for path, is_usable, problem, _parameters in found:
                state = "valid" if is_usable else "invalid"
                why = f" ({problem})" if problem else ""
                say(f"  Node: {node}, status: {state}, path: {path}{why}")
        lacking = sorted(group for group, is_good in groups.items() if not is_good)
        if lacking:
            say(f"  Not usable in all nodes of: {', '.join(lacking)}")
        say()
    return 0 if all_valid else 1


def main() -> NoReturn:
    """Run the program."""
    table.main()
