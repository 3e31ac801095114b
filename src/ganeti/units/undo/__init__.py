"""The undo of each act of a unit: one class for each kind of step."""
