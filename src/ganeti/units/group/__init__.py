"""Logical units about node groups."""
