"""Repairs of what nodes have lost."""
