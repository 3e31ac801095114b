"""The tables of operations, one module for each kind of object."""
