"""Words: what exists in a cluster, and what can be asked of it."""
