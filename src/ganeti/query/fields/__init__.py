"""What can be asked about each kind of thing: one table of fields a kind."""
