"""An administrator's programs around the work of a unit: where they run, with what variables, what becomes of them."""
