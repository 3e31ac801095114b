"""gnt-instance: virtual machines. One module for each group of commands."""

from typing import NoReturn

from ganeti.cli.gnt_instance import console, create, move, power, show
from ganeti.cli.gnt_instance.table import table

COMMAND_MODULES = (create, show, power, move, console)


def main() -> NoReturn:
    """The program."""
    table.main()


__all__ = ["COMMAND_MODULES", "main", "table"]
