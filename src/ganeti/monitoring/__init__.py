"""A node's data collectors, read-only."""
