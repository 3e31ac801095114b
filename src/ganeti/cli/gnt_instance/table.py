"""The table that the modules of this package fill."""

from ganeti.cli.declared import program

table = program("gnt-instance", "Makes, lists, starts, stops, moves and removes instances.")
