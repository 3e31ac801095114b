"""What every hypervisor driver offers."""

import abc
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ganeti.base.paths import Paths
from ganeti.base.process import Run
from ganeti.hypervisor.abilities import NO_OPTIONS, Options
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params
from ganeti.rpc.procedures.instances import ConsoleInfo, RunningInstance
from ganeti.rpc.procedures.migration import (
    Incoming,
    IncomingArgs,
    MigrateArgs,
    MigrationEnd,
    MigrationInfo,
    MigrationResult,
)


class Hypervisor(abc.ABC):
    """One hypervisor on one node.

    Every operation may be repeated: starting what runs, or stopping what is down, succeeds.
    Guests outlive the node daemon; a new driver object finds them again. Drivers raise only
    HypervisorError.
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def __init__(self, paths: Paths, run: Run) -> None:
        """Work on the node with these paths; `run` runs programs there."""

    @property
    def options(self) -> Options:
        """What this driver can do besides."""
        return NO_OPTIONS

    @abc.abstractmethod
    async def verify(self) -> list[str]:
        """Return what keeps this hypervisor from working here, a sentence each; empty if nothing."""

    @abc.abstractmethod
    async def version(self) -> str: ...

    @abc.abstractmethod
    async def running(self) -> list[RunningInstance]:
        """All instances that are here now, including those that others started."""

    async def one_running(self, instance_uuid: str) -> RunningInstance | None:
        """One entry of `running`, which most drivers find without looking at all; None if it is not here."""
        return next((one for one in await self.running() if one.uuid == instance_uuid), None)

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
        """Return what the other node must know to start the same virtual hardware."""

    @abc.abstractmethod
    async def accept(self, wanted: IncomingArgs, disk_paths: Sequence[str]) -> Incoming:
        """Wait for a guest, and for its disks if they come along; where is in the answer."""

    @abc.abstractmethod
    async def migrate(self, where: MigrateArgs) -> MigrationResult:
        """Send the guest and wait for the end; a failed migration leaves it running here."""

    @abc.abstractmethod
    async def finish_migration(self, instance: InstanceSpec, end: MigrationEnd) -> None:
        """Remove this end of a migration, or let its guest go on."""

    @abc.abstractmethod
    async def validate(self, hvparams: Params) -> list[str]:
        """Return what is wrong with these parameters on this node (missing files, unknown machines …)."""


def options_of(hypervisors: Mapping[str, Hypervisor], name: str) -> Options:
    """Return what a node's hypervisor can do besides; one that is not here can nothing."""
    hypervisor = hypervisors.get(name)
    return hypervisor.options if hypervisor else NO_OPTIONS
