"""gnt-instance: virtual machines. One module for each group of commands."""

from typing import NoReturn

from ganeti.cli.gnt_instance import console, create, disks, modify, move, power, show
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.tags import add_tag_commands

COMMAND_MODULES = (create, modify, disks, show, power, move, console)

add_tag_commands(table, "instance")


def main() -> NoReturn:
    """The program."""
    table.main()


__all__ = ["COMMAND_MODULES", "main", "table"]
