"""The interface of a planner for the disks of one template: names, layers, parts on nodes. Pure."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.model.disk_templates import DiskTemplate
from ganeti.model.objects import Cluster, Disk, Instance, NodeGroup, NodeUuid
from ganeti.model.params import Params


class Names(Protocol):
    """The source of new names; each is reserved for the requesting job."""

    def uuid(self) -> str: ...

    def secret(self) -> str:
        """Return a random secret."""
        ...

    def port(self) -> int:
        """Return a TCP port that is unused in the cluster."""
        ...

    def number(self, template: str, node: NodeUuid) -> int:
        """Return a number that no other disk of this template has on this node."""
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
    """The owner of a disk; `directory` is the requested subdirectory, if any."""

    cluster: Cluster
    instance_name: str
    index: int
    directory: str | None = None
    others: tuple[Disk, ...] = ()
    """The present disks of the instance."""
    use: str = ""
    """The use of a disk that is none of the guest's."""
    group: NodeGroup | None = None
    """The group of the primary node, if that is chosen."""

    def defaults(self, template: str) -> Params:
        """Return the parameters of new disks that the group or the cluster sets (S75)."""
        of_group = self.group.diskparams.get(template, {}) if self.group else {}
        return {**self.cluster.diskparams.get(template, {}), **of_group}

    @property
    def label(self) -> str:
        """Return the last part of the disk's name, for people."""
        return self.use or f"disk{self.index}"


class Planner(abc.ABC):
    """One disk template. Nothing here changes anything; refusals are PrereqError or InputError."""

    template: ClassVar[DiskTemplate]

    def check_site(self, site: Site) -> None:
        """Refuse if no disk is possible, or a request has no meaning for this template."""
        del site

    @abc.abstractmethod
    def new_disk(self, request: NewDisk, site: Site, names: Names) -> Disk:
        """Return the disk with its layers and the names that all nodes share; it is on no node yet."""

    def placed(self, disk: Disk, nodes: Sequence[NodeUuid], names: Names) -> Disk:
        """Return the disk on exactly these nodes, the primary first; present parts are kept."""
        del nodes, names
        return disk

    def renewed(self, disk: Disk, node: NodeUuid, names: Names) -> Disk:
        """Return the disk with new layers below on one node, which can be created beside the old ones."""
        del node, names
        raise PrereqError(
            f"disk {disk.uuid} of template {self.template.name} has no parts that could be replaced",
            ErrorCode.WRONG_STATE,
        )

    def around(
        self, below: Disk, node: NodeUuid, request: NewDisk, site: Site, names: Names
    ) -> Disk | None:
        """Return the disk built around one that `node` has already, with its data; None if that is impossible."""
        del below, node, request, site, names
        return None

    def within(self, disk: Disk, node: NodeUuid) -> Disk | None:
        """Return the part with the data on a node, as a disk of its own; None if there is none."""
        del disk, node
        return None

    def place(self, disk: Disk) -> str | None:
        """Return where on its node the disk is, if a disk of this template may also be elsewhere; else None."""
        del disk
        return None

    def space_mib(self, disk: Disk, cluster: Cluster) -> int:
        """Return the MiB that the disk uses on each of its nodes, metadata included; it may have no layers yet."""
        del cluster
        return disk.size

    def grown(self, disk: Disk, size: int) -> Disk:
        """Return the disk with its new size, in MiB, and that of its layers."""
        return replace(disk, size=size)


def placed_disks(
    planner: Planner, instance: Instance, nodes: Sequence[NodeUuid], names: Names
) -> Instance:
    """Return the instance and its disks on these nodes, the primary first."""
    disks = tuple(planner.placed(disk, nodes, names) for disk in instance.disks)
    return replace(instance, primary_node=nodes[0], secondary_nodes=tuple(nodes[1:]), disks=disks)
