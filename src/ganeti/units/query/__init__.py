"""Logical units that ask."""
