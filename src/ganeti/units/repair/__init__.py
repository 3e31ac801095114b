"""Repairing what nodes have lost."""
