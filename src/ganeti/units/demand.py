"""The resources that an instance needs of its nodes, in the terms of policies and allocators."""

from dataclasses import dataclass
from typing import Any

from ganeti.config.fill import filled_nicparams, layered_beparams
from ganeti.config.storage_units import disk_usage
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.objects import Cluster, Disk, Instance, Nic
from ganeti.placement.policy import InstanceSize


@dataclass(frozen=True)
class Demand:
    """The resources that an instance needs of a node; sizes in MiB."""

    name: str
    memory: int
    vcpus: int
    spindle_use: int
    disks: tuple[Disk, ...]
    disk_space_total: int
    """The space that the disks use on each of the nodes, including metadata."""
    nics: tuple[dict[str, Any], ...]
    disk_template: str
    hypervisor: str
    os: str
    tags: tuple[str, ...]

    @classmethod
    def of(cls, cluster: Cluster, instance: Instance) -> "Demand":
        """Return the demand of `instance`, with defaults filled in."""
        beparams = layered_beparams(cluster, None, instance)
        return cls(
            name=instance.name,
            memory=beparams["maxmem"],
            vcpus=beparams["vcpus"],
            spindle_use=beparams["spindle_use"],
            disks=instance.disks,
            disk_space_total=disk_usage(cluster, instance.disks),
            nics=tuple(nic_message(cluster, nic) for nic in instance.nics),
            disk_template=instance.disk_template,
            hypervisor=instance.hypervisor,
            os=instance.os,
            tags=instance.tags,
        )

    def size(self, *, exclusive: bool = False) -> InstanceSize:
        """Return the size for an instance policy; with exclusive storage the disks' own spindles count, where known."""
        disks = tuple(disk.size for disk in self.disks)
        own = self.spindles if exclusive else None
        use = self.spindle_use if own is None else own
        return InstanceSize(self.memory, self.vcpus, disks, len(self.nics), self.disk_template, use)

    @property
    def spindles(self) -> int | None:
        """Return the number of physical devices for its disks alone; None if a disk does not name one."""
        each = [disk.spindles for disk in self.disks]
        return None if not each or None in each else sum(one or 0 for one in each)

    @property
    def required_nodes(self) -> int:
        return DISK_TEMPLATES[self.disk_template].nodes_needed

    def message(self) -> dict[str, Any]:
        """Return the demand in the allocator's form (S171)."""
        return {
            "memory": self.memory,
            "vcpus": self.vcpus,
            "spindle_use": self.spindle_use,
            "disks": [
                {"mode": disk.mode, "size": disk.size, "spindles": disk.spindles}
                for disk in self.disks
            ],
            "disk_space_total": self.disk_space_total,
            "disk_template": self.disk_template,
            "nics": list(self.nics),
            "hypervisor": self.hypervisor,
            "os": self.os,
            "tags": list(self.tags),
        }


def nic_message(cluster: Cluster, nic: Nic) -> dict[str, Any]:
    """Return an interface in the allocator's form (S171)."""
    params = filled_nicparams(cluster, nic)
    bridge = params["link"] if params["mode"] == "bridged" else None
    return {
        "ip": nic.ip,
        "mac": nic.mac,
        "mode": params["mode"],
        "link": params["link"],
        "bridge": bridge,
        "network": nic.network,
    }
