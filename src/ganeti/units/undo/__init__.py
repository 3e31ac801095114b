"""How each act of a unit is undone: one class for each kind of step."""
