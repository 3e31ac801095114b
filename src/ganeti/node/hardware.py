"""Answers calls about virtual hardware, where the hypervisor supports it; otherwise they do nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.interface import Hypervisor, options_of
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params
from ganeti.node.disks import DeviceFactory, InstanceDisks
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.hardware import (
    INSTANCE_SCREENSHOT,
    NVRAM_FORGET,
    NVRAM_READ,
    NVRAM_WRITE,
    PINNED_HVPARAMS,
    ForgetNvramArgs,
    Nvram,
    Screenshot,
    WriteNvramArgs,
)
from ganeti.rpc.procedures.instances import HvParamsArgs, InstanceArgs


def handlers(
    hypervisors: Mapping[str, Hypervisor], device: DeviceFactory, locks: InstanceLocks
) -> Handlers:
    """Return the handlers; the ones that change something wait for the instance's lock."""
    hardware = _Hardware(hypervisors, device, locks)
    return {
        PINNED_HVPARAMS.name: hardware.pinned,
        INSTANCE_SCREENSHOT.name: hardware.screenshot,
        NVRAM_READ.name: hardware.read_nvram,
        NVRAM_WRITE.name: hardware.write_nvram,
        NVRAM_FORGET.name: hardware.forget_nvram,
    }


@dataclass(frozen=True)
class _Hardware:
    hypervisors: Mapping[str, Hypervisor]
    device: DeviceFactory
    locks: InstanceLocks

    def _paths(self, instance: InstanceSpec) -> list[str]:
        return InstanceDisks(self.device, instance).images

    async def pinned(self, args: HvParamsArgs, _call: Call) -> Params:
        machines = options_of(self.hypervisors, args.hypervisor).machines
        return await machines.pinned(args.hvparams) if machines else {}

    async def screenshot(self, args: InstanceArgs, _call: Call) -> Screenshot:
        screens = options_of(self.hypervisors, args.instance.hypervisor).screens
        if screens is None:
            raise HypervisorError(
                f"instances of {args.instance.hypervisor} have no screenshot on this node"
            )
        return Screenshot(png=await screens.screenshot(args.instance))

    async def read_nvram(self, args: InstanceArgs, _call: Call) -> Nvram:
        nvram = options_of(self.hypervisors, args.instance.hypervisor).nvram
        if nvram is None:
            return Nvram()
        return Nvram(content=await nvram.read_nvram(args.instance, self._paths(args.instance)))

    async def write_nvram(self, args: WriteNvramArgs, _call: Call) -> Nothing:
        instance = args.instance
        nvram = options_of(self.hypervisors, instance.hypervisor).nvram
        if nvram is None:
            raise HypervisorError(f"{instance.hypervisor} keeps no NVRAM")
        async with self.locks.of(instance.name):
            await nvram.write_nvram(instance, self._paths(instance), args.content)
        return Nothing()

    async def forget_nvram(self, args: ForgetNvramArgs, _call: Call) -> Nothing:
        instance = args.instance
        nvram = options_of(self.hypervisors, instance.hypervisor).nvram
        if nvram is not None:
            async with self.locks.of(instance.name):
                await nvram.forget_nvram(
                    instance, self._paths(instance), everywhere=args.everywhere
                )
        return Nothing()
