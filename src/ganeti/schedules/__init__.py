"""Schedules of backups: which jobs are due, and which backups are too old. Pure."""
