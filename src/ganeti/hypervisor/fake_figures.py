"""Figures of simulated guests: a steady load with two waves, different for each instance. Pure.

The counters are the exact totals of such a load, so they only grow.
"""

import math
import zlib

from ganeti.model.figures import Reading
from ganeti.model.instance_spec import InstanceSpec

_WAVES = ((300.0, 0.45), (21_600.0, 0.45))
"""Period in seconds and height of each wave, as a part of the mean; together below 1."""
_LOADS = {
    "disk_reads": 20.0,
    "disk_read": 20.0 * 16 * 1024,
    "disk_writes": 40.0,
    "disk_write": 40.0 * 8 * 1024,
    "net_in": 250_000.0,
    "net_out": 900_000.0,
    "net_in_packets": 600.0,
    "net_out_packets": 900.0,
}
"""The mean of each figure per second, for an instance of medium load."""
_CPU = 0.25
"""The mean load of each processor."""
_GUEST, _RESIDENT = 0.6, 0.8
"""Memory that a guest uses and that its process would occupy, as parts of its memory."""


def simulated_reading(instance: InstanceSpec, started: float, now: float) -> Reading:
    """Return the figures of a guest that runs since `started`; both are seconds since the epoch."""
    seed = zlib.crc32(instance.uuid.encode())
    load = 0.2 + seed % 1000 / 1000 * 1.6
    phase = seed / 2**32 * math.tau
    total = load * _total(max(0.0, now - started), phase)
    parts = {name: value * total for name, value in _LOADS.items()}
    if not instance.disks:
        parts = {name: value for name, value in parts.items() if not name.startswith("disk_")}
    if not instance.nics:
        parts = {name: value for name, value in parts.items() if not name.startswith("net_")}
    used = instance.memory * _GUEST * (1 + 0.3 * math.sin(now / 3600 + phase))
    return Reading(
        life=started,
        counters={"cpu": instance.vcpus * _CPU * total, **parts},
        present={"memory": instance.memory * _RESIDENT, "guest_memory": used},
    )


def _total(seconds: float, phase: float) -> float:
    """Return the integral of 1 with the waves, which begins at 0."""
    waves = (
        height
        * period
        / math.tau
        * (math.cos(phase) - math.cos(math.tau * seconds / period + phase))
        for period, height in _WAVES
    )
    return seconds + math.fsum(waves)
