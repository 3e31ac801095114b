"""Sums over the nodes of a cluster, and the changes by an allocation, as `hspace` reports them."""

from typing import NamedTuple

import numpy as np

from ganeti.placement.score import score
from ganeti.placement.state import State


class Totals(NamedTuple):
    """Sizes in MiB; `available` is neither reserved for failovers nor kept free."""

    score: float
    instances: int
    memory: float
    memory_free: float
    memory_available: float
    memory_instances: float
    memory_overhead: float
    """Use that no instance explains; negative where nodes use less than their instances should."""
    largest_memory: float
    disk: float
    disk_free: float
    disk_available: float
    disk_instances: float
    largest_disk: float
    cpus: float
    virtual_cpus: float
    """The number of virtual processors that the ratios allow."""
    cpus_instances: float
    cpus_normal: float
    """Processors in use, in physical ones."""
    spindles: float
    spindles_free: float
    spindles_instances: float


def totals(state: State) -> Totals:
    """Return the sums over all nodes, including offline ones."""
    available = np.maximum(0.0, state.free - state.reserved)
    disk = np.where(state.free_disk < state.low_disk, 0.0, state.free_disk - state.low_disk)
    missing = np.maximum(0.0, state.missing_memory)
    return Totals(
        score=score(state),
        instances=int(state.primaries.sum()),
        memory=float(state.total_memory.sum()),
        memory_free=float(state.free.sum()),
        memory_available=float(available.sum()),
        memory_instances=float(
            (state.total_memory - state.node_memory - missing - state.free).sum()
        ),
        memory_overhead=float((state.missing_memory + state.node_memory).sum()),
        largest_memory=float(available.max(initial=0.0)),
        disk=float(state.total_disk.sum()),
        disk_free=float(state.free_disk.sum()),
        disk_available=float(disk.sum()),
        disk_instances=float((state.total_disk - state.free_disk).sum()),
        largest_disk=float(disk.max(initial=0.0)),
        cpus=float(state.total_cpus.sum()),
        virtual_cpus=float(np.floor(state.cpu_ratio * state.total_cpus).sum()),
        cpus_instances=float(state.used_cpus.sum()),
        cpus_normal=float((state.used_cpus / np.maximum(state.cpu_ratio, 1e-9)).sum()),
        spindles=float(state.total_spindles.sum()),
        spindles_free=float(state.free_spindles.sum()),
        spindles_instances=float((state.total_spindles - state.free_spindles).sum()),
    )
