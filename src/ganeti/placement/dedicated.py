"""Exclusive storage: the cost of an allocation is the number of later allocations that it prevents.

This applies if every node that accepts allocations has exclusive storage; it also decides between groups.
"""

from collections.abc import Mapping
from functools import cached_property

import msgspec
import numpy as np

from ganeti.placement.fit import Room
from ganeti.placement.places import Cost, Rules
from ganeti.placement.spread import Chunk
from ganeti.placement.state import Floats, State

Spec = Mapping[str, float]


def decided(state: State, rules: Rules) -> Rules:
    """Return the rules; `dedicated` holds only if the nodes of all groups that can be chosen have exclusive storage."""
    groups = rules.groups
    if groups is None:
        groups = [n for n, one in enumerate(state.groups) if one.alloc_policy != "unallocable"]
    inside = state.in_groups(groups)
    is_dedicated = bool(state.exclusive[inside].all())
    return msgspec.structs.replace(rules, dedicated=rules.dedicated and is_dedicated)


class Costs:
    """The cost of each placement of a group: the lost allocations, then the disk that is left.

    For each interval of the group's policy it counts the instances of the smallest size that no longer fit, in turn and
    by all limits of `fit`. Intervals with the largest minimum disk come first. As in upstream Ganeti, these instances
    use no spindles but do not fit on a node whose spindles are overcommitted, which file-based instances can cause.
    """

    def __init__(self, chunk: Chunk, group: int, *, is_pair: bool) -> None:
        state, room = chunk.field.state, chunk.field.room
        [index] = chunk.which
        specs = [one["min"] for one in state.groups[group].policy.get("minmax", ())]
        specs.sort(key=lambda one: -one.get("disk-size", 0))
        before = _numbers(specs, room)
        as_primary = _with_primary(state, room, int(index))
        self.lost = before - _numbers(specs, as_primary)
        """By interval and primary, or by interval, primary and secondary."""
        self.disk_left = as_primary.disk
        if is_pair:
            as_secondary = _with_secondary(chunk, int(index))
            also_lost = before[:, None, :] - _numbers(specs, as_secondary)
            self.lost = self.lost[:, :, None] + also_lost
            self.disk_left = as_primary.disk[:, None] + as_secondary.disk

    def of(self, nodes: tuple[int, ...]) -> Cost:
        """The cost of one place."""
        lost = np.array([one[nodes] for one in self.lost])
        return Cost(tuple(lost.tolist()), float(self.disk_left[nodes]))

    def least_with(self, node: int, scores: Floats) -> Cost:
        """Return the lowest cost of the placements that have a score and use the node, as primary or as secondary."""
        if self.disk_left.ndim == 1:
            return self.of((node,))
        ranks = np.where(np.isfinite(scores), self.ranks, np.inf)
        places = ((node, int(ranks[node].argmin())), (int(ranks[:, node].argmin()), node))
        return self.of(min(places, key=lambda place: ranks[place]))

    @cached_property
    def ranks(self) -> Floats:
        """Return, by placement, how many different costs are lower."""
        keys = [self.disk_left.ravel(), *(lost.ravel() for lost in self.lost[::-1])]
        order = np.lexsort(keys)
        ordered = np.array(keys)[:, order]
        differs = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
        ranks = np.zeros(len(order))
        ranks[order[1:]] = differs.cumsum()
        return ranks.reshape(self.disk_left.shape)


def _with_primary(state: State, room: Room, index: int) -> Room:
    """Return the room of each node, with the instance as a further primary."""
    these = state.instances
    taken = float(these.memory[index] * these.uses_memory[index])
    disk = float(these.disk[index] * these.is_local[index])
    free = room.memory - taken
    fails = state.fails | (free <= state.reserved)
    return room._replace(
        memory=free,
        memory_and_reserve=np.where(fails, free, free - state.reserved),
        disk=room.disk - disk,
        disk_above_low=room.disk_above_low - disk,
        spindles=room.spindles - float(np.nan_to_num(these.spindles[index])),
        vcpus=room.vcpus - float(these.vcpus[index] * these.counts[index]),
        memory_if_all=room.memory_if_all - float(these.memory[index]),
    )


def _with_secondary(chunk: Chunk, index: int) -> Room:
    """Return (primary, secondary): the room of each node, with the instance of a primary as a further secondary."""
    state, room = chunk.field.state, chunk.field.room
    disk = float(state.instances.disk[index] * state.instances.is_local[index])
    spindles = float(np.nan_to_num(state.instances.spindles[index]))
    reserved = chunk.field.peers_by_primary + float(chunk.reserve[0])
    np.maximum(reserved, state.reserved, out=reserved)
    fails = state.fails | (room.memory <= reserved)
    return room._replace(
        memory_and_reserve=np.where(fails, room.memory, room.memory - reserved),
        disk=room.disk - disk,
        disk_above_low=room.disk_above_low - disk,
        spindles=room.spindles - spindles,
    )


def _numbers(specs: list[Spec], room: Room) -> Floats:
    """Return, by size and placement, how many instances of that size fit in turn."""
    numbers = []
    for one in specs:
        memory, disk, cpus = (one.get(key, 0) for key in ("memory-size", "disk-size", "cpu-count"))
        limits = [
            _below(room.memory, memory),
            _below(room.memory_and_reserve, memory),
            _below(room.memory_if_all, memory),
            _below(room.disk, disk),
            _up_to(room.disk_above_low, disk),
            _up_to(room.vcpus, cpus),
        ]
        least = np.minimum.reduce(np.broadcast_arrays(*limits))
        numbers.append(np.where(room.spindles >= 0, np.maximum(0.0, least), 0.0))
    return np.array(numbers)


def _below(room: Floats, one: float) -> Floats:
    """Return how many fit if some of the resource must be left."""
    return np.ceil(room / one) - 1 if one > 0 else np.full_like(room, np.inf)


def _up_to(room: Floats, one: float) -> Floats:
    """Return how many fit if all of the resource may be used."""
    return np.floor(room / one) if one > 0 else np.full_like(room, np.inf)
