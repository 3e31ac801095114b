"""Procedures that change a guest while it runs; one that does not run has nothing to change."""

import enum

from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.rpc.procedures.form import NORMAL_S, QUICK_S, SLOW_S, Message, Nothing, Procedure
from ganeti.rpc.procedures.instances import InstanceArgs


class DeviceAction(enum.StrEnum):
    """What is done to a device of a running guest; `modify` only to NICs, `grow` only to disks."""

    ADD = "add"
    REMOVE = "remove"
    MODIFY = "modify"
    GROW = "grow"


class DiskChangeArgs(Message, frozen=True, kw_only=True):
    """A disk that comes, goes or has grown; it is made usable before, and given up after."""

    instance: InstanceSpec
    action: DeviceAction
    disk: DiskSpec


class NicChangeArgs(Message, frozen=True, kw_only=True):
    """A NIC that comes, goes or is connected as `nic` says now."""

    instance: InstanceSpec
    action: DeviceAction
    nic: NicSpec


class MediumArgs(Message, frozen=True, kw_only=True):
    """What `instance` says of a CD drive, named by its hypervisor parameter, is put into it."""

    instance: InstanceSpec
    drive: str


class MediumResult(Message, frozen=True, kw_only=True):
    """False if the running guest has no such drive."""

    is_changed: bool


class MemoryArgs(Message, frozen=True, kw_only=True):
    """How much memory, in MiB, the running guest is to use."""

    instance: InstanceSpec
    memory: int


class MemoryResult(Message, frozen=True, kw_only=True):
    """How much it uses after a while; 0 if it does not run."""

    memory: int


HOTPLUG_OBSTACLES = Procedure("hotplug_obstacles", InstanceArgs, list[str], QUICK_S, changes=False)
"""What keeps the guest from being changed while it runs, a sentence each."""

HOTPLUG_DISK = Procedure("hotplug_disk", DiskChangeArgs, Nothing, SLOW_S, changes=True)

HOTPLUG_NIC = Procedure("hotplug_nic", NicChangeArgs, Nothing, SLOW_S, changes=True)

HOTPLUG_MEDIUM = Procedure("hotplug_medium", MediumArgs, MediumResult, NORMAL_S, changes=True)

INSTANCE_MEMORY = Procedure("instance_memory", MemoryArgs, MemoryResult, NORMAL_S, changes=True)
