"""Commands and steps that work while no daemon is up yet."""
