"""Whether the protected instances of a lost node find memory elsewhere, in the order in which recovery starts them; pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from ganeti.placement.description import RUNNING, Cluster, facts

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


def unplaced(guests: Iterable[Guest], free: Mapping[str, float]) -> Iterator[tuple[Guest, str]]:
    """Yield guests that cannot start, each with the reason; `free` is MiB by node.

    The guests are placed in this order, each on the possible node with most free memory.
    """
    left = dict(free)
    for guest in guests:
        hosts = left if guest.hosts is None else [one for one in guest.hosts if one in left]
        best = max(hosts, key=left.__getitem__, default=None)
        if guest.hosts is not None and not guest.hosts:
            yield guest, "no other node has its disks"
        elif best is None:
            where = "no other node is" if guest.hosts is None else "its secondary node is not"
            yield guest, f"{where} in service"
        elif left[best] < guest.memory:
            yield guest, f"{guest.memory - left[best]:.0f} MiB of memory short"
        else:
            left[best] -= guest.memory


def loss_of(node: str, guests: Collection[Guest], free: Mapping[str, float]) -> Loss:
    """Return what happens to the protected `guests` of a node if it is lost; `free` is that of possible hosts."""
    others = {name: memory for name, memory in free.items() if name != node}
    ordered = sorted(guests, key=lambda one: (-one.priority, one.name))
    found = (Unplaced(guest.name, why) for guest, why in unplaced(ordered, others))
    return Loss(node, len(guests), tuple(found))


def hosts_of(template: str, secondary: str) -> tuple[str, ...] | None:
    """Return the nodes besides its own that have the data of an instance; None: all."""
    kind = facts(template)
    if kind.mirrored:
        return (secondary,) if secondary else ()
    return () if kind.is_local else None


def losses(cluster: Cluster) -> Iterator[Loss]:
    """Yield the loss of each node that has protected instances which are to run."""
    for node in cluster.nodes:
        guests = [
            Guest(one.name, one.memory, hosts_of(one.template, one.secondary), one.protection)
            for one in cluster.instances
            if one.primary == node.name and one.protection is not None and one.status in RUNNING
        ]
        free = {
            one.name: one.free_memory
            for one in cluster.nodes
            if one.group == node.group and not one.offline
        }
        if guests and not node.is_lost:
            yield loss_of(node.name, guests, free)
