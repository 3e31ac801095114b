"""Commands that opcodes declare (`ganeti.model.operation.Command`), and the index that lists them.

Opcodes are slow to import, so `command_index.json` contains the texts for lists of commands, and only the
command that runs imports its opcode. `python -m ganeti.cli.command_index` writes this file.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from ganeti.base.errors import InputError
from ganeti.base.terminal import say
from ganeti.cli.command import Command, CommandTable, option
from ganeti.cli.confirmation import confirm
from ganeti.cli.jobs import run_job
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.option import Option
from ganeti.cli.options import FORCE, JOB_OPTIONS
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument

INDEX = Path(__file__).with_name("command_index.json")
_CONFIRMING = {
    "force": FORCE,
    "yes": option(
        "--yes", dest="is_sure", action="store_true", help="skip the confirmation prompt"
    ),
}


class DeclaredParts(OpOptions):
    """Arguments and options of a command that an opcode declares."""

    def parts(self) -> Iterator[Option | Argument]:
        """Yield the arguments, the options that confirm, the options of the opcode's fields and of every job."""
        declared = self.kind.cli
        yield from declared.arguments
        if declared.on_many:
            from ganeti.cli.instance_selection import MANY

            yield from MANY
        yield from (_CONFIRMING[name] for name in declared.confirming)
        yield from super().parts()
        yield from JOB_OPTIONS


def program(prog: str, purpose: str) -> CommandTable:
    """Return the table of a program with the commands that opcodes declare for it."""
    table = CommandTable(prog, purpose)
    index = json.loads(INDEX.read_text(encoding="utf-8"))
    for one in index.get(prog, ()):
        parts = (DeclaredParts(one["opcode"]),)
        table.add(Command(one["name"], run_declared, parts, tuple(one["aliases"]), one["doc"]))
    return table


def run_declared(args: argparse.Namespace) -> int:
    """Run the opcode of a declared command, show its result, and wait for the jobs that it submitted."""
    declared = args.op.kind.cli
    if declared.needs_option and not args.op.given(args):
        raise InputError(
            "nothing to change: pass at least one option; --help lists them", "options"
        )
    if declared.on_many:
        from ganeti.cli.instance_selection import on_each

        return on_each(args)
    with LuxiClient() as client:
        asks = declared.question or args.op.kind.loss
        if asks and hasattr(args, "instance_name"):  # The question shows the full name.
            [[args.instance_name]] = client.rows("Instances", [args.instance_name], ["name"])
        op = args.op.opcode(args)
        if declared.question:
            is_sure = getattr(args, "force", False) or getattr(args, "is_sure", False)
            how = _CONFIRMING[declared.confirming[0]].flags[-1]
            confirm(declared.question(op), is_sure=is_sure, how=how)
        result = run_job(client, op, args)
        if result and declared.lines:
            say("\n".join(declared.lines(op, result)))
        if args.dry_run or not isinstance(result, dict) or "jobs" not in result:
            return 0
        from ganeti.cli.many_jobs import wait_for_all

        return wait_for_all(client, result["jobs"])
