"""The table to which the modules of this package add their commands."""

from ganeti.cli.declared import program

table = program("gnt-instance", "Create, list, start, stop, move and remove instances.")
