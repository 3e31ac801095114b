"""Ganeti: a manager for clusters of virtual machines on plain hosts."""

__version__ = "4.0.0.dev0"
