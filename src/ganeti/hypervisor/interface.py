"""What every hypervisor driver offers."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ganeti.hypervisor.hotplug import Hotplug
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params
from ganeti.rpc.procedures.instances import ConsoleInfo, RunningInstance
from ganeti.rpc.procedures.migration import (
    Incoming,
    IncomingArgs,
    MigrateArgs,
    MigrationInfo,
    MigrationResult,
)


@dataclass(frozen=True)
class Capabilities:
    """Facts about a driver, so that callers never ask for its name."""

    can_migrate: bool = False
    has_console: bool = False


class Hypervisor(abc.ABC):
    """One hypervisor on one node.

    Every operation may be repeated: starting what runs, or stopping what is down, succeeds.
    Guests outlive the node daemon; a new driver object finds them again. Drivers raise only
    HypervisorError.
    """

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    ancillary_files: ClassVar[tuple[str, ...]] = ()
    """Files of the host that must be the same on all nodes, as far as the master has them (S67)."""

    @property
    def hotplug(self) -> Hotplug | None:
        """What changes the devices of running guests, where the driver can."""
        return None

    @abc.abstractmethod
    async def verify(self) -> list[str]:
        """What keeps this hypervisor from working here, a sentence each; empty if nothing."""

    @abc.abstractmethod
    async def version(self) -> str: ...

    @abc.abstractmethod
    async def running(self) -> list[RunningInstance]:
        """The instances that are here now, whoever started them."""

    @abc.abstractmethod
    async def start(
        self, instance: InstanceSpec, disk_paths: Sequence[str], *, paused: bool = False
    ) -> None:
        """Start a guest, or fail and leave nothing; `disk_paths` in the order of its disks, opened as raw."""

    @abc.abstractmethod
    async def stop(self, instance: InstanceSpec, timeout_s: float) -> None:
        """Ask the guest to end, end it by force after `timeout_s` (0: at once), and clean up."""

    @abc.abstractmethod
    async def reboot(self, instance: InstanceSpec, *, soft: bool, timeout_s: float) -> None:
        """Reboot the guest in place."""

    @abc.abstractmethod
    async def console(self, instance: InstanceSpec) -> ConsoleInfo: ...

    @abc.abstractmethod
    async def migration_info(self, instance: InstanceSpec) -> MigrationInfo:
        """What the other node must know to start the same virtual hardware."""

    @abc.abstractmethod
    async def accept(self, wanted: IncomingArgs, disk_paths: Sequence[str]) -> Incoming:
        """Wait for a guest, and for its disks if they come along; where is in the answer."""

    @abc.abstractmethod
    async def migrate(self, where: MigrateArgs) -> MigrationResult:
        """Send the guest and wait for the end; a failed migration leaves it running here."""

    @abc.abstractmethod
    async def finish_migration(
        self, instance: InstanceSpec, *, is_source: bool, success: bool
    ) -> None:
        """Make this end what the outcome says: after success only the target has the guest, else only the source."""

    @abc.abstractmethod
    async def validate(self, hvparams: Params) -> list[str]:
        """What is wrong with these parameters on this node (missing files, unknown machines …)."""
