"""Logical units that exercise the system."""
