"""Simulations for administrators: what a cluster would do after failures and changes."""
