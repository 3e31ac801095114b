"""Bounds on what a cluster holds, each declared once; docs/rules.md, limits, shows them to readers."""

MAX_DISKS, MAX_NICS = 16, 8
"""Of one instance."""
MAX_DISK_MIB = 64 * 1024 * 1024
MAX_TAGS = 4096
"""Of one object."""
MAX_LIVE_JOBS = 50_000
"""Jobs that are not archived; the queue refuses more."""
MANY_LIVE_JOBS = 20_000
"""From this number on, the queue warns."""
MAX_JOB_OPCODES = 500
"""Of one job."""
