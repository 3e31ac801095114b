"""The standard deviations of the score by number, and the weights that `hbal` publishes."""

RESERVED_TOTAL_WEIGHT = 0.25
FAILING_WEIGHT, OFFLINE_WEIGHT, OFFLINE_PRIMARY_WEIGHT, CONFLICT_WEIGHT = 1.0, 4.0, 16.0, 2.0

LOADS = 4
CPU_LOAD, DISK_LOAD = 0, 2
"""The position of the disk among the loads: secondaries have a share of it."""

MEMORY, MEMORY_IF_ALL, DISK, CPU, RESERVED = range(5)
LOAD = 5
SPINDLES = LOAD + LOADS
SPREADS = SPINDLES + 1
DISK_LOAD_SPREAD = LOAD + DISK_LOAD

OF_SPREADS = (0.5, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
"""Disk, processors and spindles have twice 0.5: all instances exist, so the planned half equals the actual half."""
