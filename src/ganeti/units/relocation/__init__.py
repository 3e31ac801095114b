"""Bringing instances to other nodes, and their disks to other places: plans, steps, the core of a live migration."""
