"""Logical volumes: commands and reports as pure functions, the driver, and the kinds of storage units."""
