"""What a driver offers that can look at one guest without looking at all of them."""

from typing import Protocol, runtime_checkable

from ganeti.hypervisor.interface import Hypervisor
from ganeti.rpc.procedures.instances import RunningInstance


@runtime_checkable
class LooksAtOne(Protocol):
    """A driver that finds a guest by its UUID."""

    async def one_running(self, instance_uuid: str) -> RunningInstance | None:
        """As the entry of `running`; None if it is not here."""
        ...


async def one_running(hypervisor: Hypervisor, instance_uuid: str) -> RunningInstance | None:
    """What a driver knows of one guest, found in the cheapest way that it offers."""
    if isinstance(hypervisor, LooksAtOne):
        return await hypervisor.one_running(instance_uuid)
    return next((one for one in await hypervisor.running() if one.uuid == instance_uuid), None)
