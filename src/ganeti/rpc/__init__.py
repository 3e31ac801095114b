"""Calls from the master to the node daemons."""
