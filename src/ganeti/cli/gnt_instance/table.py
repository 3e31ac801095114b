"""The table that the modules of this package fill."""

from ganeti.cli.command import CommandTable

table = CommandTable("gnt-instance", "Makes, lists, starts, stops, moves and removes instances.")
