"""What some hypervisor drivers offer beside `Hypervisor`; callers look whether a driver is one of these.

Like all of a driver, they raise only HypervisorError, and may be repeated.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params


@runtime_checkable
class PinsMachine(Protocol):
    """Knows virtual hardware in versions, of which an instance keeps the one that it was made with."""

    async def pinned(self, hvparams: Params) -> Params:
        """Parameters to store with a new instance, so that another version of the hypervisor does not change it."""
        ...


@runtime_checkable
class TakesScreenshots(Protocol):
    """Can show what a guest's screen shows."""

    async def screenshot(self, instance: InstanceSpec) -> bytes:
        """A PNG picture of at most 8 MiB."""
        ...


@runtime_checkable
class KeepsFirmware(Protocol):
    """Keeps variables of a guest's firmware while the guest is down."""

    async def read_firmware(
        self, instance: InstanceSpec, disk_paths: Sequence[str]
    ) -> bytes | None:
        """The variables, or None if there are none on this node."""
        ...

    async def write_firmware(
        self, instance: InstanceSpec, disk_paths: Sequence[str], content: bytes
    ) -> None:
        """Put variables from another node here; the guest is down."""
        ...

    async def forget_firmware(self, instance: InstanceSpec, disk_paths: Sequence[str]) -> None:
        """Remove them; nothing is fine."""
        ...
