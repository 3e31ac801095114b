"""DRBD 8.4: commands and reports as pure functions, the connection by netlink, the driver."""
