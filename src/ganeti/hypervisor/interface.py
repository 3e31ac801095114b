"""The interface of every hypervisor driver."""

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

    Every operation may be repeated: starting a running guest, or stopping one that is down, succeeds.
    Guests outlive the node daemon; a new driver object finds them again. Drivers raise only
    HypervisorError.
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def __init__(self, paths: Paths, run: Run) -> None:
        """Work on the node with these paths; `run` runs programs there."""

    @property
    def options(self) -> Options:
        """The optional abilities of this driver."""
        return NO_OPTIONS

    @abc.abstractmethod
    async def verify(self) -> list[str]:
        """Return the reasons why this hypervisor does not work here, a sentence each; empty if there are none."""

    @abc.abstractmethod
    async def version(self) -> str: ...

    @abc.abstractmethod
    async def running(self) -> list[RunningInstance]:
        """Return all instances that are here now, including those that other programs started."""

    async def one_running(self, instance_uuid: str) -> RunningInstance | None:
        """Return one entry of `running`, which most drivers find without a full search; None if it is not here."""
        return next((one for one in await self.running() if one.uuid == instance_uuid), None)

    @abc.abstractmethod
    async def start(
        self, instance: InstanceSpec, disk_paths: Sequence[str], *, paused: bool = False
    ) -> None:
        """Start a guest, or fail and leave nothing; `disk_paths` in the order of its disks, opened as raw."""

    @abc.abstractmethod
    async def stop(self, instance: InstanceSpec, timeout_s: float) -> None:
        """Ask the guest to end, kill it after `timeout_s` (0: at once), and clean up."""

    @abc.abstractmethod
    async def reboot(self, instance: InstanceSpec, *, soft: bool, timeout_s: float) -> None:
        """Reboot the guest in place."""

    @abc.abstractmethod
    async def console(self, instance: InstanceSpec) -> ConsoleInfo: ...

    @abc.abstractmethod
    async def migration_info(self, instance: InstanceSpec) -> MigrationInfo:
        """Return the facts that the other node needs to start the same virtual hardware."""

    async def migration_obstacles(self, instance: InstanceSpec, info: MigrationInfo) -> list[str]:
        """Return the reasons why `accept` would refuse a guest, a sentence each; `info` is the other node's report."""
        del instance, info
        return []

    @abc.abstractmethod
    async def accept(self, wanted: IncomingArgs, disk_paths: Sequence[str]) -> Incoming:
        """Wait for a guest, and for its disks if they migrate with it; return the address."""

    @abc.abstractmethod
    async def migrate(self, where: MigrateArgs) -> MigrationResult:
        """Send the guest and wait for the end; after a failed migration it still runs here."""

    @abc.abstractmethod
    async def finish_migration(self, instance: InstanceSpec, end: MigrationEnd) -> None:
        """Remove this end of a migration, or resume its guest."""

    @abc.abstractmethod
    async def validate(self, hvparams: Params) -> list[str]:
        """Return the faults of these parameters on this node (missing files, unknown machines …)."""


def options_of(hypervisors: Mapping[str, Hypervisor], name: str) -> Options:
    """Return the optional abilities of a node's hypervisor; none if it is not installed."""
    hypervisor = hypervisors.get(name)
    return hypervisor.options if hypervisor else NO_OPTIONS
