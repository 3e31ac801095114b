"""Logical units for queries."""
