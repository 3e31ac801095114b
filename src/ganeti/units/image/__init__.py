"""Logical units about images."""
