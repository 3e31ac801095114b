"""gnt-instance: virtual machines. One module for each group of commands."""

from typing import NoReturn

from ganeti.cli.gnt_instance import (
    batch,
    console,
    create,
    disks,
    modify,
    show,
    snapshots,
    system,
)
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.mirrors import add_instance_commands
from ganeti.cli.tags import add_tag_commands
from ganeti.model.operation import INSTANCE

COMMAND_MODULES = (create, batch, modify, disks, snapshots, show, system, console)

add_instance_commands(table)
add_tag_commands(table, "instance", INSTANCE)


def main() -> NoReturn:
    """Run the program."""
    table.main()


__all__ = ["COMMAND_MODULES", "main", "table"]
