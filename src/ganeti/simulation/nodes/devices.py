"""The calls that change running guests."""

from msgspec.structs import replace

from ganeti.base.errors import (
    InputError,
)
from ganeti.hypervisor.hotplug import (
    with_disk,
    with_nic,
    without_disk,
    without_nic,
)
from ganeti.rpc.procedures.devices import (
    DeviceAction,
    DiskChangeArgs,
    GuestLimits,
    MediumArgs,
    MediumResult,
    MemoryArgs,
    MemoryResult,
    NicChangeArgs,
    VcpusArgs,
    VcpusResult,
)
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.instances import (
    InstanceArgs,
)
from ganeti.simulation.nodes.guests import GuestCalls


class DeviceCalls(GuestCalls):
    """The calls that change running guests."""

    def on_hotplug_obstacles(self, args: InstanceArgs) -> list[str]:
        if args.instance.hypervisor not in self.hypervisors:
            return [f"hypervisor {args.instance.hypervisor} cannot change running guests"]
        return self.hotplug_obstacles if args.instance.uuid in self.guests else []

    def on_hotplug_limits(self, args: InstanceArgs) -> GuestLimits:
        self._check_hypervisor(args.instance.hypervisor)
        if args.instance.uuid not in self.guests:
            return GuestLimits()
        return GuestLimits(
            least_vcpus=1,
            most_vcpus=self.guests_may_have_vcpus,
            most_memory=self.guests_may_have_memory,
        )

    def on_hotplug_disk(self, args: DiskChangeArgs) -> Nothing:
        if args.action is DeviceAction.MODIFY:
            raise InputError("a disk is not modified", "action")
        if args.action is DeviceAction.ADD:
            self._check_disk(args.disk)
        if guest := self.guests.get(args.instance.uuid):
            if args.action is DeviceAction.REMOVE:
                guest.spec = without_disk(guest.spec, args.disk.uuid)
            else:
                guest.spec = with_disk(guest.spec, args.disk)
        return Nothing()

    def on_hotplug_nic(self, args: NicChangeArgs) -> Nothing:
        if args.action is DeviceAction.GROW:
            raise InputError("a NIC does not grow", "action")
        if guest := self.guests.get(args.instance.uuid):
            if args.action is DeviceAction.REMOVE:
                guest.spec = without_nic(guest.spec, args.nic.uuid)
            else:
                guest.spec = with_nic(guest.spec, args.nic)
        return Nothing()

    def on_hotplug_medium(self, args: MediumArgs) -> MediumResult:
        self._check_hypervisor(args.instance.hypervisor)
        if guest := self.guests.get(args.instance.uuid):
            if not guest.spec.hvparams.get(args.drive):
                return MediumResult(is_changed=False)
            image = args.instance.hvparams.get(args.drive) or "empty"
            guest.spec = replace(guest.spec, hvparams={**guest.spec.hvparams, args.drive: image})
        return MediumResult(is_changed=True)

    def on_instance_vcpus(self, args: VcpusArgs) -> VcpusResult:
        self._check_hypervisor(args.instance.hypervisor)
        guest = self.guests.get(args.instance.uuid)
        if guest is None:
            return VcpusResult(vcpus=0)
        guest.spec = replace(guest.spec, vcpus=args.vcpus)
        return VcpusResult(vcpus=args.vcpus)

    def on_instance_memory(self, args: MemoryArgs) -> MemoryResult:
        self._check_hypervisor(args.instance.hypervisor)
        guest = self.guests.get(args.instance.uuid)
        if guest is None:
            return MemoryResult(memory=0)
        guest.lowered = None
        if not self.guests_keep_memory:
            guest.spec = replace(guest.spec, memory=args.memory)
            self.guests[args.instance.uuid] = guest
        return MemoryResult(memory=guest.spec.memory)
