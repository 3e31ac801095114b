"""Logical units: plan, then act."""
