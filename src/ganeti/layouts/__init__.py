"""Layouts of the disks of instances: pure plans, by the planner of each disk template."""
