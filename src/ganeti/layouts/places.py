"""The nodes of an instance's disks, and the way to another node. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from msgspec.structs import replace

from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.objects import Disk, Instance, NodeUuid


class Way(Enum):
    """The way of an instance to another node."""

    SHARED = "shared"
    """The node has its disks as well, or it has none."""
    SWAP = "swap"
    """The secondary becomes the primary, and the reverse."""
    COPY = "copy"
    """Its data is copied, and removed from its former node."""
    REPLACE = "replace"
    """The node becomes the secondary first; then the two are swapped."""


@dataclass(frozen=True)
class Relocation:
    """The move of an instance to another node."""

    way: Way
    after: Instance
    """Return the instance on the target; with REPLACE, its disks must be moved first."""

    @property
    def copies(self) -> bool:
        return self.way is Way.COPY


def relocate(instance: Instance, target: NodeUuid) -> Relocation:
    """Return the move of `instance` to `target`, another node than its own."""
    template = DISK_TEMPLATES[instance.disk_template]
    after = relocated(instance, target)
    if template.mirrored:
        return Relocation(Way.SWAP if target in instance.secondary_nodes else Way.REPLACE, after)
    return Relocation(Way.COPY if template.is_local else Way.SHARED, after)


def relocated(instance: Instance, target: NodeUuid) -> Instance:
    """Return the instance with `target` as its primary node; a mirrored one keeps its old primary as secondary."""
    if target == instance.primary_node:
        return instance
    others = instance.secondary_nodes
    if DISK_TEMPLATES[instance.disk_template].mirrored:
        others = (instance.primary_node, *(uuid for uuid in others if uuid != target))
    return replace(
        instance, primary_node=target, secondary_nodes=others[: len(instance.secondary_nodes)]
    )


def holders(instance: Instance) -> tuple[NodeUuid, ...]:
    """The nodes with changed parts of its disks, the primary first."""
    return instance.all_nodes if instance.disks else ()


def creation_order(instance: Instance) -> tuple[NodeUuid, ...]:
    """Secondaries first: a new primary may look for its peer at once."""
    return tuple(reversed(holders(instance)))


@dataclass(frozen=True)
class Growth:
    """One layer of a disk to grow on one node; sizes in MiB, absolute, so that the growth can be repeated."""

    node: NodeUuid
    path: tuple[int, ...]
    """The path from the disk down to the layer: positions among children."""
    size: int


def growth(instance: Instance, disk: Disk, grown: Disk) -> list[Growth]:
    """Return the layers to grow, in order: those below on every node that has them, then the disk where it is used."""
    steps = []
    for path, layer, wanted in _layers(disk, grown, ()):
        if wanted.size > layer.size or not path:
            nodes = creation_order(instance) if path else (instance.primary_node,)
            steps += [Growth(node, path, wanted.size) for node in nodes]
    return steps


def _layers(
    disk: Disk, grown: Disk, path: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], Disk, Disk]]:
    """Yield every layer with its grown form, those below first."""
    for at, (child, wanted) in enumerate(zip(disk.children, grown.children, strict=True)):
        yield from _layers(child, wanted, (*path, at))
    yield path, disk, grown
