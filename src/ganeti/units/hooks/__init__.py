"""The administrator's programs around the work of a unit: their nodes, variables and results."""
