"""Whether the protected instances of a lost node find memory elsewhere, in the order in which recovery starts them; pure."""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from ganeti.placement.description import RUNNING, Cluster, Instance, facts

SHOWN = 5
"""The number of instances that a text names."""


class Guest(NamedTuple):
    """An instance that another node must start."""

    name: str
    memory: float
    """MiB"""
    hosts: Collection[str] | None
    """The only nodes that have its data; None: any node."""
    priority: int = 0


class Unplaced(NamedTuple):
    """An instance that no other node can start, and what is short."""

    name: str
    why: str


class Loss(NamedTuple):
    """The loss of a node with protected instances."""

    node: str
    protected: int
    unplaced: tuple[Unplaced, ...]

    def __str__(self) -> str:
        found = self.unplaced[:SHOWN]
        more = len(self.unplaced) - len(found)
        shown = ", ".join(f"{name} ({why})" for name, why in found)
        return (
            f"{len(self.unplaced)} of {self.protected} protected instances would not fit if {self.node} failed:"
            f" {shown}{f' and {more} more' if more else ''}"
        )


class FreeMemory:
    """The free memory of possible hosts in MiB, and the hosts in the order of it.

    The order is made once, so the loss of each node of a cluster costs only what its own guests cost.
    """

    def __init__(self, by_node: Mapping[str, float]) -> None:
        self.by_node = by_node
        self._order = sorted(
            (-memory, place, name) for place, (name, memory) in enumerate(by_node.items())
        )

    def without(self, lost: str) -> "Room":
        """Return the memory that is left for the guests of a lost node."""
        return Room(self.by_node, list(self._order), lost)


class Room:
    """The free memory of the nodes besides a lost one, while guests are placed."""

    def __init__(
        self, free: Mapping[str, float], order: list[tuple[float, int, str]], lost: str
    ) -> None:
        """`order` is a heap of (negative MiB, place, node), from which this class takes nodes."""
        self._free, self._order, self._lost = free, order, lost
        self._left: dict[str, float] = {}

    def __contains__(self, node: str) -> bool:
        return node != self._lost and node in self._free

    def of(self, node: str) -> float:
        """Return the MiB that are left on a node."""
        return self._left.get(node, self._free[node])

    def most(self) -> str | None:
        """Return the node with most memory left, the first one of several; None if no node is left."""
        while self._order:
            memory, place, name = self._order[0]
            if name == self._lost:
                heapq.heappop(self._order)
            elif self.of(name) != -memory:
                heapq.heapreplace(self._order, (-self.of(name), place, name))
            else:
                return name
        return None

    def take(self, node: str, memory: float) -> None:
        """Place a guest."""
        self._left[node] = self.of(node) - memory


def unplaced(guests: Iterable[Guest], room: Room) -> Iterator[tuple[Guest, str]]:
    """Yield guests that cannot start, each with the reason.

    The guests are placed in this order, each on the possible node with most free memory.
    """
    for guest in guests:
        if guest.hosts is None:
            best = room.most()
        else:
            best = max((one for one in guest.hosts if one in room), key=room.of, default=None)
        if guest.hosts is not None and not guest.hosts:
            yield guest, "no other node has its disks"
        elif best is None:
            where = "no other node is" if guest.hosts is None else "its secondary node is not"
            yield guest, f"{where} in service"
        elif room.of(best) < guest.memory:
            yield guest, f"{guest.memory - room.of(best):.0f} MiB of memory short"
        else:
            room.take(best, guest.memory)


def loss_of(node: str, guests: Collection[Guest], free: FreeMemory) -> Loss:
    """Return what happens to the protected `guests` of a node if it is lost; `free` is that of possible hosts."""
    ordered = sorted(guests, key=lambda one: (-one.priority, one.name))
    found = (Unplaced(guest.name, why) for guest, why in unplaced(ordered, free.without(node)))
    return Loss(node, len(guests), tuple(found))


def hosts_of(template: str, secondary: str) -> tuple[str, ...] | None:
    """Return the nodes besides its own that have the data of an instance; None: all."""
    kind = facts(template)
    if kind.mirrored:
        return (secondary,) if secondary else ()
    return () if kind.is_local else None


def losses(cluster: Cluster) -> Iterator[Loss]:
    """Yield the loss of each node that has protected instances which are to run."""
    by_group: dict[str, dict[str, float]] = {}
    for node in cluster.nodes:
        if not node.offline:
            by_group.setdefault(node.group, {})[node.name] = node.free_memory
    free = {group: FreeMemory(by_node) for group, by_node in by_group.items()}
    running: dict[str, list[Instance]] = {}
    for one in cluster.instances:
        if one.protection is not None and one.status in RUNNING:
            running.setdefault(one.primary, []).append(one)
    nowhere = FreeMemory({})
    for node in cluster.nodes:
        guests = [
            Guest(one.name, one.memory, hosts_of(one.template, one.secondary), one.protection or 0)
            for one in running.get(node.name, ())
        ]
        if guests and not node.is_lost:
            yield loss_of(node.name, guests, free.get(node.group, nowhere))
