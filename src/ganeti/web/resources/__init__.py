"""The tables of operations, a module for each kind of thing."""
