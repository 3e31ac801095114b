"""Procedures about moving a running guest."""

from enum import Enum
from typing import Self

from ganeti.model.instance_spec import InstanceSpec
from ganeti.rpc.procedures.form import HOURS_S, NORMAL_S, Message, Nothing, Procedure
from ganeti.rpc.procedures.instances import InstanceArgs, Lowered


class MigrationInfo(Message, frozen=True, kw_only=True):
    """The source's description of a guest, so that the target starts the same virtual hardware."""

    instance: InstanceSpec
    """The guest's present values, whatever the configuration assigns at its next start."""
    running: bool
    """False: the guest is paused, and stays paused."""
    mirrors_disks: bool = False
    """True if the hypervisor can copy disks during the migration."""
    memory: int = 0
    """Memory in MiB at its start, if it has changed since."""
    machine: str = ""
    """The version of its virtual hardware."""
    qemu_version: str = ""
    accelerator: str = ""
    slots: dict[str, int] = {}
    """UUID of a disk or NIC -> its slot."""
    lowered: Lowered | None = None
    added_cpus: tuple[int, ...] = ()
    """The positions of processors that it got since its start."""
    certificate: str = ""
    """The source's certificate for the target (PEM), new each time."""
    obstacle: str = ""
    """Why the guest cannot run while it is sent; '' if it can."""


class IncomingArgs(Message, frozen=True, kw_only=True):
    """Prepare to receive a guest; `info` comes from the source.

    With `copies_disks` its disks are received too, into the existing ones.
    """

    instance: InstanceSpec
    address: str
    info: MigrationInfo
    copies_disks: bool = False


class FitArgs(Message, frozen=True, kw_only=True):
    """Ask a node whether it could receive a guest; `info` comes from the source."""

    instance: InstanceSpec
    info: MigrationInfo


class Incoming(Message, frozen=True, kw_only=True):
    """The addresses that wait for the guest and for its disks (0: none).

    The receiver shows `certificate` (PEM).
    """

    address: str
    port: int
    disks_port: int = 0
    certificate: str = ""


class MigrateArgs(Message, frozen=True, kw_only=True):
    """Send a guest to the waiting address; if not `live`, the guest is paused meanwhile."""

    instance: InstanceSpec
    address: str
    port: int
    live: bool = True
    disks_port: int = 0
    certificate: str = ""
    bandwidth_mib_s: int = 0
    """Limit of the memory, and of the data of each disk; 0: that of the hypervisor parameters."""


class MigrationResult(Message, frozen=True, kw_only=True):
    """The statistics of a migration, in milliseconds and bytes."""

    status: str
    total_ms: int
    downtime_ms: int
    transferred: int
    error: str = ""


class MigrationEnd(Enum):
    """The action of one end of a migration once the outcome is known."""

    END_SOURCE = (True, True)
    """Remove the guest, which the target has."""
    RESUME_SOURCE = (True, False)
    """Resume the guest, which the target has not received."""
    RESUME_TARGET = (False, True)
    END_TARGET = (False, False)

    @classmethod
    def of(cls, *, is_source: bool, success: bool) -> Self:
        """Return the action that the arguments of a call mean at its end."""
        return cls((is_source, success))

    @property
    def is_source(self) -> bool:
        return self.value[0]

    @property
    def removes(self) -> bool:
        """Return whether this end has no guest afterwards."""
        return self.value[0] == self.value[1]


class FinishMigrationArgs(Message, frozen=True, kw_only=True):
    """Tell one end how the migration ended: the source removes or keeps the guest, the target the reverse."""

    instance: InstanceSpec
    success: bool


MIGRATION_INFO = Procedure("migration_info", InstanceArgs, MigrationInfo, NORMAL_S, changes=False)

MIGRATION_OBSTACLES = Procedure("migration_obstacles", FitArgs, list[str], NORMAL_S, changes=False)
"""Answered by the target: the reasons against receiving the guest, a sentence each."""

MIGRATION_ACCEPT = Procedure("migration_accept", IncomingArgs, Incoming, NORMAL_S, changes=True)

MIGRATION_RUN = Procedure("migration_run", MigrateArgs, MigrationResult, HOURS_S, changes=True)

MIGRATION_FINISH_SOURCE = Procedure(
    "migration_finish_source", FinishMigrationArgs, Nothing, NORMAL_S, changes=True
)

MIGRATION_FINISH_TARGET = Procedure(
    "migration_finish_target", FinishMigrationArgs, Nothing, NORMAL_S, changes=True
)


def finishing(
    end: MigrationEnd, instance: InstanceSpec
) -> tuple[Procedure[FinishMigrationArgs, Nothing], FinishMigrationArgs]:
    """Return the call that makes one end of a migration do this."""
    procedure = MIGRATION_FINISH_SOURCE if end.is_source else MIGRATION_FINISH_TARGET
    return procedure, FinishMigrationArgs(instance=instance, success=end.value[1])
