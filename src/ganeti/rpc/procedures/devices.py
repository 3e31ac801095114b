"""Procedures that change a running guest; they do nothing for a guest that does not run."""

import enum

from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.rpc.procedures.form import NORMAL_S, QUICK_S, SLOW_S, Message, Nothing, Procedure
from ganeti.rpc.procedures.instances import InstanceArgs


class DeviceAction(enum.StrEnum):
    """A change to a device of a running guest; `modify` is only for NICs, `grow` only for disks."""

    ADD = "add"
    REMOVE = "remove"
    MODIFY = "modify"
    GROW = "grow"


class DiskChangeArgs(Message, frozen=True, kw_only=True):
    """A disk to add, remove or resize; the node opens it before, and closes it after."""

    instance: InstanceSpec
    action: DeviceAction
    disk: DiskSpec


class NicChangeArgs(Message, frozen=True, kw_only=True):
    """A NIC to add, remove, or reconnect according to `nic`."""

    instance: InstanceSpec
    action: DeviceAction
    nic: NicSpec


class MediumArgs(Message, frozen=True, kw_only=True):
    """Insert the medium that `instance` assigns to a CD drive, named by its hypervisor parameter."""

    instance: InstanceSpec
    drive: str


class MediumResult(Message, frozen=True, kw_only=True):
    """False if the running guest has no such drive."""

    is_changed: bool


class GuestLimits(Message, frozen=True, kw_only=True):
    """The processors, and the MiB of memory, that the running guest can have without a restart; 0 if it does not run."""

    least_vcpus: int = 0
    most_vcpus: int = 0
    most_memory: int = 0


class VcpusArgs(Message, frozen=True, kw_only=True):
    """The desired number of processors of the running guest."""

    instance: InstanceSpec
    vcpus: int


class VcpusResult(Message, frozen=True, kw_only=True):
    """The processors that the guest has; 0 if it does not run."""

    vcpus: int


class MemoryArgs(Message, frozen=True, kw_only=True):
    """The desired memory of the running guest, in MiB."""

    instance: InstanceSpec
    memory: int


class MemoryResult(Message, frozen=True, kw_only=True):
    """The memory in use after a while; 0 if the guest does not run."""

    memory: int


HOTPLUG_OBSTACLES = Procedure("hotplug_obstacles", InstanceArgs, list[str], QUICK_S, changes=False)
"""Obstacles to changing the running guest, a sentence each."""

HOTPLUG_LIMITS = Procedure("hotplug_limits", InstanceArgs, GuestLimits, QUICK_S, changes=False)

HOTPLUG_DISK = Procedure("hotplug_disk", DiskChangeArgs, Nothing, SLOW_S, changes=True)

HOTPLUG_NIC = Procedure("hotplug_nic", NicChangeArgs, Nothing, SLOW_S, changes=True)

HOTPLUG_MEDIUM = Procedure("hotplug_medium", MediumArgs, MediumResult, NORMAL_S, changes=True)

INSTANCE_VCPUS = Procedure("instance_vcpus", VcpusArgs, VcpusResult, SLOW_S, changes=True)

INSTANCE_MEMORY = Procedure("instance_memory", MemoryArgs, MemoryResult, NORMAL_S, changes=True)
