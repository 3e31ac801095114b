"""The daemons: each module assembles one program from the other packages."""
