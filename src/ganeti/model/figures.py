"""Figures of guests and nodes: what a node daemon measures, keeps and reports.

A driver reads counters, which only grow while a guest lives, and present values. The figures are present values, and
growth per second of counters.
"""

from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import NamedTuple

_NOTHING: Mapping[str, float] = MappingProxyType({})


class Figure(NamedTuple):
    """One figure; `doc` is a noun phrase that fits an instance and a node."""

    name: str
    title: str
    doc: str
    metric: str
    """The end of its name for Prometheus, which has base units."""
    is_rate: bool = True
    """Growth per second of a counter; otherwise a present value."""
    digits: int = 0
    """Digits after the point that people see."""


CPU = Figure("cpu", "CPU", "Busy processors: 1 is one processor of the node", "cpu_busy", digits=3)
MEMORY = Figure(
    "memory", "MemUsed", "Memory in use in MiB; of a guest, what its process occupies on the node",
    "memory_bytes", is_rate=False,
)  # fmt: skip
GUEST_MEMORY = Figure(
    "guest_memory", "MemInGuest", "Memory that the guest itself uses in MiB, if its balloon driver reports it",
    "guest_memory_bytes", is_rate=False,
)  # fmt: skip


def _rate(name: str, title: str, doc: str, *, digits: int = 0) -> Figure:
    metric = f"{name}_per_second" if digits else f"{name}_bytes_per_second"
    return Figure(name, title, doc, metric, digits=digits)


FIGURES = (
    CPU,
    MEMORY,
    GUEST_MEMORY,
    _rate("disk_read", "Read", "Bytes per second read from disks"),
    _rate("disk_write", "Written", "Bytes per second written to disks"),
    _rate("disk_reads", "Reads", "Read requests to disks per second", digits=1),
    _rate("disk_writes", "Writes", "Write requests to disks per second", digits=1),
    _rate("net_in", "Received", "Bytes per second received from networks"),
    _rate("net_out", "Sent", "Bytes per second sent to networks"),
    _rate("net_in_packets", "RxPackets", "Packets per second received from networks", digits=1),
    _rate("net_out_packets", "TxPackets", "Packets per second sent to networks", digits=1),
)
"""All figures in the order of files and messages. `GUEST_MEMORY` is unknown for nodes."""

NAMES = tuple(one.name for one in FIGURES)
DISK_COUNTERS = ("disk_reads", "disk_read", "disk_writes", "disk_write")
"""The figures in the order of the kernel's counters of a disk (`base.kernel_counters`)."""

Values = tuple[float | None, ...]
"""The values of `FIGURES`; None for an unknown one."""

UNKNOWN: Values = (None,) * len(FIGURES)


class Ring(NamedTuple):
    """One resolution of a history: a value each `step` seconds, for the last `slots` steps."""

    step: int
    slots: int

    @property
    def lasts_s(self) -> int:
        return self.step * self.slots


RINGS = (Ring(5, 720), Ring(60, 2880), Ring(900, 2976))
"""The last hour, two days, 31 days. Each step is a multiple of the one before."""
STEPS = tuple(ring.step for ring in RINGS)
SAMPLE_S = RINGS[0].step


class Range(NamedTuple):
    """A request for a part of a history; None for a default."""

    start: float | None = None
    end: float | None = None
    """Seconds since the epoch."""
    step: int | None = None
    """One of `STEPS`."""


def ring_of(start: float, now: float, step: int | None = None) -> Ring:
    """Return the ring with this step; without one the finest that goes back to `start`."""
    for ring in RINGS:
        if ring.step == step or (step is None and start >= now - ring.lasts_s):
            return ring
    return RINGS[-1]


class Reading(NamedTuple):
    """What was read of a guest or a node at one moment, by names of figures; a missing name is unknown."""

    life: Hashable
    """Changes when the counters begin again, for example with a guest's process."""
    counters: Mapping[str, float] = _NOTHING
    """Totals of the figures that are rates; processor time in seconds."""
    present: Mapping[str, float] = _NOTHING
    """Values of the other figures."""


def values(reading: Reading, before: Reading | None, seconds: float) -> Values:
    """Return the figures at `reading`; rates since `before`, which was read `seconds` earlier.

    A rate is unknown if a counter is new, began again or fell.
    """
    return tuple(
        _growth(one.name, reading, before, seconds)
        if one.is_rate
        else reading.present.get(one.name)
        for one in FIGURES
    )


def _growth(name: str, reading: Reading, before: Reading | None, seconds: float) -> float | None:
    if before is None or before.life != reading.life or seconds <= 0:
        return None
    first, last = before.counters.get(name), reading.counters.get(name)
    if first is None or last is None or last < first:
        return None
    return (last - first) / seconds
