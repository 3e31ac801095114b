"""Which instances fit on which nodes: the limits of nodes as arrays, compared with all instances at once.

Hard limits (memory, disk, dedicated spindles) always hold. Soft limits (the policy's ratios, memory reserved for
failovers and for stopped instances, exclusion tags) are waived for an instance that must leave an offline node.
"""

from typing import Any, NamedTuple

import numpy as np

from ganeti.placement.state import Bools, Floats, Indices, State


class Demands(NamedTuple):
    """The demands of instances, a column each; minus infinity if the instance does not use the resource at all."""

    memory: Floats
    disk: Floats
    spindle_use: Floats
    spindles: Floats
    vcpus: Floats
    reserve: Floats
    memory_if_all: Floats
    """The memory that the instance uses while it runs, whether it runs now or not."""

    @classmethod
    def of(cls, state: State, which: Indices) -> "Demands":
        """Return the demands of these instances, as columns for broadcasting against nodes."""
        these = state.instances
        local, nothing = these.is_local[which], -np.inf
        unknown = np.isnan(these.spindles[which])
        columns = cls(
            memory=these.memory[which] * these.uses_memory[which],
            disk=np.where(local, these.disk[which], nothing),
            spindle_use=np.where(local, these.spindle_use[which], nothing),
            spindles=np.where(local, np.where(unknown, np.inf, these.spindles[which]), nothing),
            vcpus=np.where(these.counts[which], these.vcpus[which], 0.0),
            reserve=these.reserve[which],
            memory_if_all=these.memory[which],
        )
        return cls(*(column[:, None] for column in columns))


class Room(NamedTuple):
    """The free resources of nodes, a value a node, by kind of limit."""

    memory: Floats
    memory_and_reserve: Floats
    disk: Floats
    disk_above_low: Floats
    spindle_use: Floats
    spindles: Floats
    vcpus: Floats
    memory_if_all: Floats
    """The free memory if all stopped instances ran; a soft limit."""

    @classmethod
    def of(cls, state: State, nodes: Indices | slice = slice(None)) -> "Room":
        """Return the room of these nodes, by default of all nodes."""
        ratio, free, reserved = state.cpu_ratio[nodes], state.free[nodes], state.reserved[nodes]
        # `used / total` may exceed the ratio by a rounding error where the product does not.
        whole = np.floor(ratio * state.total_cpus[nodes] - state.used_cpus[nodes] + 1e-9)
        exclusive, disk = state.exclusive[nodes], state.free_disk[nodes]
        spindle_use = state.most_spindles[nodes] - state.used_spindles[nodes]
        return cls(
            memory=free,
            memory_and_reserve=np.where(state.fails[nodes], free, free - reserved),
            disk=disk,
            disk_above_low=disk - state.low_disk[nodes],
            spindle_use=np.where(exclusive, np.inf, spindle_use),
            spindles=np.where(exclusive, state.free_spindles[nodes], np.inf),
            vcpus=np.where(ratio >= 0, whole, np.inf),
            memory_if_all=state.free_if_all[nodes],
        )


def hard(demands: Demands, room: Room) -> Bools:
    """Return (instances, nodes): whether memory, disk and spindles suffice for a primary."""
    fits: Bools = demands.memory < room.memory
    return fits & fits_disk(demands, room)


def fits_disk(demands: Demands, room: Room) -> Bools:
    """Return (instances, nodes): whether disk and dedicated spindles suffice."""
    fits: Bools = demands.disk < room.disk
    if np.isfinite(room.spindles).any():
        fits &= demands.spindles <= room.spindles
    return fits


def soft_disk(demands: Demands, room: Room) -> Bools:
    """Return (instances, nodes): whether the soft limits on disk hold."""
    fits: Bools = demands.disk <= room.disk_above_low
    fits &= demands.spindle_use <= room.spindle_use
    return fits


def soft(demands: Demands, room: Room, clashes: Any = None) -> Bools:
    """Return (instances, nodes): whether the soft limits on a primary hold."""
    fits = soft_disk(demands, room)
    fits &= demands.memory < room.memory_and_reserve
    fits &= demands.memory_if_all < room.memory_if_all
    fits &= demands.vcpus <= room.vcpus
    if clashes is not None:
        fits &= clashes == 0
    return fits
