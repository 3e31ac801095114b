"""Moves of instances and their disks: plans, steps, the core of a live migration."""
