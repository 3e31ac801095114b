"""Locks of jobs: shared and exclusive, by level, fair, inspectable (rows S9-S28)."""
