"""Logical units about nodes."""
