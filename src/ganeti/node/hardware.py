"""Answers calls about virtual hardware, where the hypervisor has the ability; else there is nothing to do."""

from collections.abc import Mapping
from dataclasses import dataclass

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.abilities import KeepsNvram, PinsMachine, TakesScreenshots
from ganeti.hypervisor.interface import Hypervisor
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
    """The answers; those that change something wait for the instance's lock."""
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
    hypervisors: Mapping[str, object]
    """Looked at for what they can do, not for what all of them can."""
    device: DeviceFactory
    locks: InstanceLocks

    def _paths(self, instance: InstanceSpec) -> list[str]:
        return InstanceDisks(self.device, instance).paths

    async def pinned(self, args: HvParamsArgs, _call: Call) -> Params:
        driver = self.hypervisors.get(args.hypervisor)
        return await driver.pinned(args.hvparams) if isinstance(driver, PinsMachine) else {}

    async def screenshot(self, args: InstanceArgs, _call: Call) -> Screenshot:
        driver = self.hypervisors.get(args.instance.hypervisor)
        if not isinstance(driver, TakesScreenshots):
            raise HypervisorError(
                f"instances of {args.instance.hypervisor} show no screen on this node"
            )
        return Screenshot(png=await driver.screenshot(args.instance))

    async def read_nvram(self, args: InstanceArgs, _call: Call) -> Nvram:
        driver = self.hypervisors.get(args.instance.hypervisor)
        if not isinstance(driver, KeepsNvram):
            return Nvram()
        return Nvram(content=await driver.read_nvram(args.instance, self._paths(args.instance)))

    async def write_nvram(self, args: WriteNvramArgs, _call: Call) -> Nothing:
        driver, instance = self.hypervisors.get(args.instance.hypervisor), args.instance
        if not isinstance(driver, KeepsNvram):
            raise HypervisorError(f"{instance.hypervisor} keeps no NVRAM")
        async with self.locks.of(instance.name):
            await driver.write_nvram(instance, self._paths(instance), args.content)
        return Nothing()

    async def forget_nvram(self, args: ForgetNvramArgs, _call: Call) -> Nothing:
        driver, instance = self.hypervisors.get(args.instance.hypervisor), args.instance
        if isinstance(driver, KeepsNvram):
            async with self.locks.of(instance.name):
                await driver.forget_nvram(
                    instance, self._paths(instance), everywhere=args.everywhere
                )
        return Nothing()
