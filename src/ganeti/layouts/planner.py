"""What a planner decides for the disks of one template: names, layers, parts on nodes. Pure."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.model.disk_templates import DiskTemplate
from ganeti.model.objects import Cluster, Disk, Instance, NodeUuid
from ganeti.model.params import Params


class Names(Protocol):
    """Where new names come from; what is given is reserved for the job that asks."""

    def uuid(self) -> str: ...

    def secret(self) -> str:
        """A random secret."""
        ...

    def port(self) -> int:
        """A TCP port that nothing else in the cluster has."""
        ...

    def number(self, template: str, node: NodeUuid) -> int:
        """A number that no other disk of this template has on this node."""
        ...


@dataclass(frozen=True)
class NewDisk:
    """A checked request for one disk; size in MiB."""

    size: int
    mode: str = "rw"
    name: str | None = None
    params: Params | None = None
    adopt: str | None = None
    """The existing object that becomes the disk, if none is created."""


@dataclass(frozen=True)
class Site:
    """For whom a disk is; `directory` is the subdirectory that was asked for, if one was."""

    cluster: Cluster
    instance_name: str
    index: int
    directory: str | None = None
    others: tuple[Disk, ...] = ()
    """The disks that the instance has already."""


class Planner(abc.ABC):
    """One disk template. Nothing here changes anything; refusals are PrereqError or InputError."""

    template: ClassVar[DiskTemplate]

    def check_site(self, site: Site) -> None:
        """Refuse where no disk could be, or what was asked for means nothing to this template."""
        del site

    @abc.abstractmethod
    def new_disk(self, request: NewDisk, site: Site, names: Names) -> Disk:
        """The disk with its layers and the names that all nodes share; it is on no node yet."""

    def placed(self, disk: Disk, nodes: Sequence[NodeUuid], names: Names) -> Disk:
        """The disk on exactly these nodes, the primary first: those that had a part keep it."""
        del nodes, names
        return disk

    def renewed(self, disk: Disk, node: NodeUuid, names: Names) -> Disk:
        """The disk with new layers below on one node, which can be made beside the old ones."""
        del node, names
        raise PrereqError(
            f"disk {disk.uuid} of template {self.template.name} has no parts that could be replaced",
            ErrorCode.WRONG_STATE,
        )

    def around(
        self, below: Disk, node: NodeUuid, request: NewDisk, site: Site, names: Names
    ) -> Disk | None:
        """The disk as it is around one that `node` has already, which keeps its data; None if it cannot be."""
        del below, node, request, site, names
        return None

    def within(self, disk: Disk, node: NodeUuid) -> Disk | None:
        """Return what has the data on a node, as a disk of its own; None if nothing could be."""
        del disk, node
        return None

    def space_mib(self, disk: Disk, cluster: Cluster) -> int:
        """MiB that the disk takes on each node that has it, its metadata included; it may have no layers yet."""
        del cluster
        return disk.size

    def grown(self, disk: Disk, size: int) -> Disk:
        """The disk with its new size, in MiB, and that of its layers."""
        return replace(disk, size=size)


def placed_disks(
    planner: Planner, instance: Instance, nodes: Sequence[NodeUuid], names: Names
) -> Instance:
    """The instance and its disks on these nodes, the primary first."""
    disks = tuple(planner.placed(disk, nodes, names) for disk in instance.disks)
    return replace(instance, primary_node=nodes[0], secondary_nodes=tuple(nodes[1:]), disks=disks)
