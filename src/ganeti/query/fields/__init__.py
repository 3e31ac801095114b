"""The fields of each kind of objects: one table a kind."""
